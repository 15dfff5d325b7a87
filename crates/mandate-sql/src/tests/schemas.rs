//! Tables of an older version, databases without functions, and servers that may forget.

use std::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{Config, Version};
use mandate_servers::Server;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
use mandate_servers::postgres::{Postgres, PostgresConfig};

use super::{MARIADB, PATIENCE, Table, addresses, takeover};
use crate::database::Database;
use crate::schema::{self, Dialect, Engine};
use crate::statements::Extra;
use crate::{Address, Setup, Sql, SqlError, mysql, postgres};

/// The tables as version 1 made them.
fn first_version(dialect: Dialect) -> Vec<String> {
    let tables = schema::tables(dialect, Engine::default()).into_iter();
    let mut tables: Vec<_> = tables.collect();
    let later = [
        "fenced_term bigint",
        "leader_value text",
        "value_term bigint",
        "request_term bigint",
        "request_to bigint",
        "request_id bigint",
    ];
    for column in later {
        let of_mysql = format!("  {column} character set utf8mb4 collate utf8mb4_bin,\n");
        let without = |table: &mut String| {
            *table = table.replace(&of_mysql, "").replace(&format!("  {column},\n"), "");
        };
        tables.iter_mut().for_each(without);
    }
    let tables = tables.into_iter();
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

async fn lead(url: &str) -> Result<Sql, SqlError> {
    let address: Address = url.parse().unwrap();
    let database = Database::open(&address, PATIENCE).await.unwrap();
    start(&database)
}

fn start(database: &Database) -> Result<Sql, SqlError> {
    let config = Config::new(MemberId::new(1), Duration::from_millis(200)).unwrap();
    Sql::start(database, Setup { group: "doubts".into(), label: "p1".into(), config })
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leads_on_a_server_that_may_forget_unless_that_is_accepted() {
    // The servers of these tests do not wait for the disk, and say that this is accepted.
    let postgres = Postgres::launch(&PostgresConfig {
        settings: vec![("mandate.durability".into(), "whatever".into())],
        ..PostgresConfig::default()
    });
    let postgres = postgres.unwrap();
    let mariadb = MariaDb::launch(&MariaDbConfig::default()).unwrap();
    mariadb.sql("set global innodb_flush_log_at_trx_commit = 2").unwrap();
    let bound = Duration::from_secs(120);
    for (url, setting) in
        [(postgres.url(), "fsync"), (mariadb.url(), "innodb_flush_log_at_trx_commit")]
    {
        let address: Address = url.parse().unwrap();
        let table = Table::open(&address, "doubts").await;
        let doubts = table.database.doubts().await;
        assert!(doubts[0].contains(setting), "{doubts:?}");
        let refused = lead(&url).await.unwrap_err();
        assert!(refused.is_final(), "{refused}");
        let said = refused.to_string();
        assert!(
            said.contains(setting) && said.contains("mandate_durability=accept-loss"),
            "{said}"
        );
        // Who began before there was a connection is refused with its first statement that decides something.
        let one = table.join(1, None).await;
        let key = &table.key;
        let take = takeover(one, Version::default(), None, 1);
        let trouble = table.database.execute(key, &take, &Extra::default()).await.unwrap_err();
        assert!(trouble.is_final && trouble.reason.contains(setting), "{trouble:?}");

        let accepted = lead(&format!("{url}?mandate_durability=accept-loss")).await.unwrap();
        let led = tokio::time::timeout(bound, accepted.election().led()).await;
        assert!(led.is_ok_and(|led| led.is_ok()), "{url}");
        accepted.shutdown().await;
    }
    // An operator may accept it where the setting is.
    postgres.sql("alter database postgres set mandate.durability = 'accept-loss'").unwrap();
    lead(&postgres.url()).await.unwrap().shutdown().await;
    mariadb.sql("set global innodb_flush_log_at_trx_commit = 1").unwrap();
    lead(&mariadb.url()).await.unwrap().shutdown().await;
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("m.db").display());
    let table = Table::open(&sqlite.parse().unwrap(), "doubts").await;
    assert_eq!(table.database.doubts().await, [""; 0]);
    start(&table.database).unwrap().shutdown().await;
}

/// What the release that speaks protocol version 4 makes, and has in its rows (`tests/fixtures`).
const TABLES_OF_3: [(Dialect, &str); 3] = [
    (Dialect::Sqlite, include_str!("../../tests/fixtures/tables-3-sqlite.sql")),
    (Dialect::Postgres, include_str!("../../tests/fixtures/tables-3-postgres.sql")),
    (Dialect::MySql, include_str!("../../tests/fixtures/tables-3-mysql.sql")),
];
const ROWS_OF_4: &str = include_str!("../../tests/fixtures/rows-4-sqlite.sql");

#[test]
fn tables_of_this_version_are_as_they_were_when_it_was_made() {
    assert_eq!(schema::VERSION, 3, "tables of a new version have files of their own");
    for (dialect, kept) in TABLES_OF_3 {
        assert_eq!(schema::script(dialect).trim_end(), kept.trim_end(), "{}", dialect.name());
    }
}

/// A member of the release before this one led, and crashed; a release to come has added to the tables since.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_goes_on_from_rows_of_an_older_release_in_tables_of_a_newer_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch(TABLES_OF_3[0].1).unwrap();
    connection.execute_batch(ROWS_OF_4).unwrap();
    connection.execute_batch("alter table mandate_control add column later text").unwrap();
    connection.execute_batch("insert into mandate_schema (version) values (4)").unwrap();
    let address: Address = format!("sqlite:{}", path.display()).parse().unwrap();
    let table = Table::open(&address, "orders").await;
    let (me, was) = table.join_with(MemberId::new(7), None, Term::NONE).await;
    assert_eq!((was.protocol, was.version.term.get()), (1, 1), "{was:?}");
    assert_eq!(was.leader.map(|leader| leader.member.get()), Some(1), "{was:?}");
    let (changed, row) = table.control(takeover(me, was.version, was.leader, 2)).await;
    assert!(changed, "{row:?}");
    assert_eq!((row.version.term.get(), row.leader.map(|it| it.member.get())), (2, Some(7)));

    connection.execute_batch("insert into mandate_schema (version) values (100)").unwrap();
    let refused = Database::open(&address, PATIENCE).await.unwrap_err();
    assert!(matches!(refused, SqlError::Schema { found: 100, .. }), "{refused}");
    assert!(refused.to_string().contains("use a newer program"), "{refused}");
}
