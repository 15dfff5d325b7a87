//! Tables of an older version, and databases without functions.

use super::{MARIADB, PATIENCE, Table, addresses};
use crate::database::Database;
use crate::schema::{self, Dialect, Engine};
use crate::{Address, SqlError, mysql, postgres};

/// The tables as version 1 made them.
fn first_version(dialect: Dialect) -> Vec<String> {
    let tables = schema::tables(dialect, Engine::default()).into_iter();
    let tables = tables.map(|table| table.replace("  fenced_term bigint,\n", ""));
    tables.chain(["insert into mandate_schema (version) values (1)".to_owned()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_first_version_are_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        // A database of its own, on the same server.
        let other: Address = match &address {
            Address::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                for statement in first_version(Dialect::Sqlite) {
                    connection.execute_batch(&statement).unwrap();
                }
                address.clone()
            }
            Address::Postgres(url) => {
                super::POSTGRES.lock().unwrap().sql("create database older").unwrap();
                let older = url.as_str().replace("/postgres", "/older").parse().unwrap();
                let Address::Postgres(url) = older else { panic!("{older}") };
                let heard = tokio::sync::broadcast::Sender::new(1);
                let (client, _) = postgres::connect(&url, heard).await.unwrap();
                client.batch_execute(&first_version(Dialect::Postgres).join(";")).await.unwrap();
                Address::Postgres(url)
            }
            Address::MySql(url) => {
                use mysql_async::prelude::Queryable;
                MARIADB.lock().unwrap().sql("create database older").unwrap();
                let mut url = url.clone();
                url.set_path("/older");
                let mut connection = mysql::connect(&url, PATIENCE).await.unwrap();
                for statement in first_version(Dialect::MySql) {
                    connection.query_drop(statement).await.unwrap();
                }
                Address::MySql(url)
            }
        };
        if !matches!(other, Address::Sqlite(_)) {
            let refused = Database::open(&other, PATIENCE).await.unwrap_err();
            assert!(matches!(refused, SqlError::Schema { found: 1, .. }), "{refused}");
        }
        let table = Table::open(&other, "older").await;
        table.join(1, None).await;
        Database::make_schema(&other).await.unwrap();
    }
}

/// As on TiDB, which has no procedures: here, an account that may not make any.
#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_and_used_where_functions_cannot_be() {
    let port = {
        let server = MARIADB.lock().unwrap();
        server
            .sql(
                "create database plain; create user 'plain'@'%' identified by 'plain'; grant select, insert, update, \
                 delete, create, alter on plain.* to 'plain'@'%'",
            )
            .unwrap();
        server.port()
    };
    let url = format!("mysql://plain:plain@127.0.0.1:{port}/plain");
    let table = Table::open(&url.parse().unwrap(), "plain").await;
    table.join(1, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_forget_what_it_acknowledged_is_told_of() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "doubts").await;
        let doubts = table.database.doubts().await;
        match &address {
            Address::Sqlite(_) => assert_eq!(doubts, [""; 0]),
            // The servers of these tests do not wait for the disk.
            Address::Postgres(_) => assert!(doubts[0].contains("fsync"), "{doubts:?}"),
            Address::MySql(_) => {
                MARIADB
                    .lock()
                    .unwrap()
                    .sql("set global innodb_flush_log_at_trx_commit = 2")
                    .unwrap();
                let doubts = table.database.doubts().await;
                assert!(doubts[0].contains("innodb_flush_log_at_trx_commit is 2"), "{doubts:?}");
            }
        }
    }
}
