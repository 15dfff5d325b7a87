//! Terms, checked in transactions of the application.

use std::time::Duration;

use futures_util::future::join_all;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::Version;
use mandate_servers::Server;
use mysql_async::prelude::Queryable;
use tokio::sync::broadcast;

use super::{Holder, MARIADB, PATIENCE, POSTGRES, Table, addresses, takeover};
use crate::fence::{self, Refused};
use crate::{Address, mysql, postgres};

const OLD: Term = Term::new(3);
const NEW: Term = Term::new(4);

impl Table {
    /// A group whose terms have come to [`OLD`].
    async fn at_old_term(address: &Address, group: &str) -> (Self, Holder) {
        let table = Table::open(address, group).await;
        let one = table.join(1, None).await;
        let (changed, _) = table.control(takeover(one, Version::default(), None, 3)).await;
        assert!(changed, "{address}");
        (table, one)
    }

    /// The leader renews, and then another takes over.
    async fn elect_on(&self, one: Holder) {
        let (was, publish) = (Version { term: OLD, beat: 0 }, super::publish(&[2]));
        let (changed, row) =
            self.control(super::Statement::Renew { me: one, was, publish, value: None }).await;
        assert!(changed);
        let two = self.join(2, None).await;
        let (changed, _) = self.control(takeover(two, row.version, Some(one), 4)).await;
        assert!(changed);
    }

    async fn raise_to_new_term(&self, one: Holder) {
        let was = Version { term: OLD, beat: 0 };
        let (changed, _) = self.control(takeover(one, was, Some(one), 4)).await;
        assert!(changed);
    }
}

/// A connection of an application.
enum App {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
    MySql(mysql_async::Conn),
}

impl App {
    async fn open(address: &Address) -> Self {
        match address {
            Address::Sqlite(path) => App::Sqlite(rusqlite::Connection::open(path).unwrap()),
            Address::Postgres(url) => {
                let heard = broadcast::Sender::new(1);
                App::Postgres(postgres::connect(url, heard).await.unwrap().0)
            }
            Address::MySql(url) => App::MySql(mysql::connect(url, PATIENCE).await.unwrap()),
        }
    }

    async fn set_level(&mut self, level: &str) {
        match self {
            App::Postgres(client) => {
                let set = format!("set default_transaction_isolation = '{level}'");
                client.batch_execute(&set).await.unwrap();
            }
            App::MySql(connection) => {
                let set = format!("set session transaction isolation level {level}");
                connection.query_drop(set).await.unwrap();
            }
            App::Sqlite(_) => {}
        }
    }

    /// A transaction that does nothing else.
    async fn fenced(&mut self, group: &str, term: Term) -> Result<(), Refused> {
        match self {
            App::Sqlite(connection) => {
                let transaction = connection.transaction().unwrap();
                fence::sqlite(&transaction, group, None, term)?;
                transaction.commit().unwrap();
            }
            App::Postgres(client) => {
                let transaction = client.transaction().await.unwrap();
                fence::postgres(&transaction, group, None, term).await?;
                transaction.commit().await.unwrap();
            }
            App::MySql(connection) => {
                let options = Default::default();
                let mut transaction = connection.start_transaction(options).await.unwrap();
                fence::mysql(&mut transaction, group, None, term).await?;
                transaction.commit().await.unwrap();
            }
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_term_that_was_given_out_last_passes_on_every_database() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let (table, one) = Table::at_old_term(&address, "fence").await;
        let mut app = App::open(&address).await;
        for _ in 0..2 {
            app.fenced("fence", OLD).await.unwrap();
        }
        let future = app.fenced("fence", Term::new(999_999)).await;
        assert!(matches!(future, Err(Refused::UnknownTerm(_))), "{address}: {future:?}");
        let unknown = app.fenced("fense", OLD).await;
        assert!(matches!(unknown, Err(Refused::UnknownGroup(_))), "{address}: {unknown:?}");
        table.raise_to_new_term(one).await;
        let early = app.fenced("fence", OLD).await;
        let what = "from the takeover on, before the new leader has written";
        assert!(matches!(early, Err(Refused::OldTerm(_))), "{address}: {what}: {early:?}");
        app.fenced("fence", NEW).await.unwrap();
        let late = app.fenced("fence", OLD).await;
        assert!(matches!(late, Err(Refused::OldTerm(_))), "{address}: {late:?}");
    }
}

/// The row of the fence is what refuses a transaction that began before the takeover and whose view of the control row is old.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_an_older_term_does_not_commit_after_one_of_a_newer() {
    let address: Address = POSTGRES.lock().unwrap().url().parse().unwrap();
    let (table, one) = Table::at_old_term(&address, "order").await;
    let (App::Postgres(mut first), App::Postgres(mut second)) =
        (App::open(&address).await, App::open(&address).await)
    else {
        panic!("not PostgreSQL")
    };
    let level = tokio_postgres::IsolationLevel::RepeatableRead;
    let early = first.build_transaction().isolation_level(level).start().await.unwrap();
    early.execute("select 1 from mandate_control", &[]).await.unwrap();
    table.raise_to_new_term(one).await;
    let late = second.transaction().await.unwrap();
    fence::postgres(&late, "order", None, NEW).await.unwrap();
    late.commit().await.unwrap();
    let refused = fence::postgres(&early, "order", None, OLD).await;
    assert!(refused.is_err(), "its view of the control row is that of before");
}

/// A leader that was stopped inside a fenced transaction, and its successor.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_of_an_older_term_is_waited_for_with_a_limit_and_named() {
    let address: Address = POSTGRES.lock().unwrap().url().parse().unwrap();
    let (table, one) = Table::at_old_term(&address, "open").await;
    let (App::Postgres(mut first), App::Postgres(mut second)) =
        (App::open(&address).await, App::open(&address).await)
    else {
        panic!("not PostgreSQL")
    };
    // The very first of a term writes the row; those after it share it.
    let very_first = first.transaction().await.unwrap();
    fence::postgres(&very_first, "open", None, OLD).await.unwrap();
    very_first.commit().await.unwrap();
    let stopped = first.transaction().await.unwrap();
    fence::postgres(&stopped, "open", None, OLD).await.unwrap();
    let pid: i32 = stopped.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    // Others of its term do not wait for it.
    let other = second.transaction().await.unwrap();
    fence::postgres(&other, "open", None, OLD).await.unwrap();
    let limit: String = other.query_one("show lock_timeout", &[]).await.unwrap().get(0);
    assert_eq!(limit, "0", "the function leaves the caller's own limit as it was");
    other.commit().await.unwrap();
    table.raise_to_new_term(one).await;
    // A third waits for it, too, and holds nothing up.
    let App::Postgres(mut third) = App::open(&address).await else { panic!("not PostgreSQL") };
    third.batch_execute("set lock_timeout = '100s'").await.unwrap();
    let third_pid: i32 = third.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let waits = tokio::spawn(async move {
        let next = third.transaction().await.unwrap();
        fence::postgres(&next, "open", None, NEW).await
    });
    let is_waiting = "select exists (select 1 from pg_locks where pid = $1 and not granted)";
    let waiting = async {
        while !second.query_one(is_waiting, &[&third_pid]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(100), waiting).await.expect("the third waits");
    for set in ["select 1", "set lock_timeout = '300ms'"] {
        second.batch_execute(set).await.unwrap();
        let next = second.transaction().await.unwrap();
        let waited = fence::postgres(&next, "open", None, NEW);
        let refused = tokio::time::timeout(Duration::from_secs(120), waited).await;
        let refused = refused.expect("a limit").unwrap_err().to_string();
        let names = |pid: i32| {
            refused.split(|c: char| !c.is_ascii_digit()).any(|word| word == pid.to_string())
        };
        assert!(names(pid) && !names(third_pid), "{third_pid}: {refused}");
        assert!(refused.contains("one of these"), "others cannot be told from it: {refused}");
        assert!(refused.contains("pg_blocking_pids"), "{refused}");
        assert!(refused.contains("pg_terminate_backend"), "{refused}");
    }
    drop(stopped);
    waits.await.unwrap().unwrap();
    let next = second.transaction().await.unwrap();
    fence::postgres(&next, "open", None, NEW).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_function_checks_the_tables_beside_it_whatever_the_search_path() {
    let address: Address = POSTGRES.lock().unwrap().url().parse().unwrap();
    Table::at_old_term(&address, "tenants").await;
    let App::Postgres(client) = App::open(&address).await else { panic!("not PostgreSQL") };
    client
        .batch_execute(
            "create schema tenant; create table tenant.mandate_control (like public.mandate_control); \
             create table tenant.mandate_fence (like public.mandate_fence); set search_path = tenant, public",
        )
        .await
        .unwrap();
    client.batch_execute("select mandate_fence('tenants', -1, 3)").await.unwrap();
}

/// Writers of one leader, many at a time, while it renews: they wait for each other, and nobody fails.
async fn writers(address: &Address, group: &str, levels: &[&str]) {
    const WRITERS: usize = 8;
    const TRANSACTIONS: usize = 12;
    let (table, one) = Table::at_old_term(address, group).await;
    let mut was = Version { term: OLD, beat: 0 };
    for level in levels {
        let apps = join_all((0..WRITERS).map(|_| App::open(address))).await;
        let written = apps.into_iter().map(|mut app| async move {
            app.set_level(level).await;
            for _ in 0..TRANSACTIONS {
                app.fenced(group, OLD).await?;
            }
            Ok::<_, Refused>(())
        });
        let mut written = Box::pin(join_all(written));
        let done = loop {
            let publish = super::publish(&[2]);
            let renew = super::Statement::Renew { me: one, was, publish, value: None };
            let (changed, row) = table.control(renew).await;
            assert!(changed, "{address} at {level}");
            was = row.version;
            tokio::select! {
                done = &mut written => break done,
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        };
        for written in done {
            written.unwrap_or_else(|error| panic!("{address} at {level}: {error}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_of_one_term_fence_at_once_without_a_deadlock() {
    let address: Address = MARIADB.lock().unwrap().url().parse().unwrap();
    writers(&address, "writers", &["read committed", "repeatable read"]).await;
    let address: Address = POSTGRES.lock().unwrap().url().parse().unwrap();
    writers(&address, "writers", &["read committed", "repeatable read", "serializable"]).await;
}

/// A leader's process that is stopped inside a fenced transaction keeps neither it from renewing nor others from taking over.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_fenced_transaction_stands_in_the_way_of_no_election() {
    let address: Address = MARIADB.lock().unwrap().url().parse().unwrap();
    let levels = ["read committed", "repeatable read"].map(|level| (address.clone(), level));
    let address: Address = POSTGRES.lock().unwrap().url().parse().unwrap();
    let more = ["read committed", "serializable"].map(|level| (address.clone(), level));
    for (at, (address, level)) in levels.into_iter().chain(more).enumerate() {
        let group = format!("stopped-{at}");
        let (table, one) = Table::at_old_term(&address, &group).await;
        let mut app = App::open(&address).await;
        app.set_level(level).await;
        match &mut app {
            App::Postgres(client) => {
                let open = client.transaction().await.unwrap();
                fence::postgres(&open, &group, None, OLD).await.unwrap();
                table.elect_on(one).await;
            }
            App::MySql(connection) => {
                let mut open = connection.start_transaction(Default::default()).await.unwrap();
                fence::mysql(&mut open, &group, None, OLD).await.unwrap();
                table.elect_on(one).await;
            }
            App::Sqlite(_) => panic!("not a server"),
        }
    }
}

/// There a read locks what it reads, until the transaction ends: a leader could not renew beside its own transactions.
#[tokio::test(flavor = "multi_thread")]
async fn mysql_at_serializable_is_refused_with_the_reason() {
    let address: Address = MARIADB.lock().unwrap().url().parse().unwrap();
    let (table, one) = Table::at_old_term(&address, "serializable").await;
    let mut app = App::open(&address).await;
    app.set_level("serializable").await;
    let App::MySql(connection) = &mut app else { panic!("not MariaDB") };
    let mut open = connection.start_transaction(Default::default()).await.unwrap();
    let refused =
        fence::mysql(&mut open, "serializable", None, OLD).await.map_err(|it| it.to_string());
    table.elect_on(one).await;
    let refused = refused.unwrap_err();
    assert!(refused.contains("SERIALIZABLE") && refused.contains("REPEATABLE READ"), "{refused}");
}

/// Members join while the leader renews: no statement is refused because two wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn many_join_at_once_while_the_leader_renews_and_none_is_refused() {
    const JOINS: u32 = 40;
    let urls = [MARIADB.lock().unwrap().url(), POSTGRES.lock().unwrap().url()];
    for address in urls.map(|url| url.parse::<Address>().unwrap()) {
        let (leader, one) = Table::at_old_term(&address, "joins").await;
        let tables = join_all((0..8).map(|_| Table::open(&address, "joins"))).await;
        let joins = tables.iter().enumerate().map(|(place, table)| async move {
            for id in (10..10 + JOINS).filter(|id| *id as usize % 8 == place) {
                table.join_with(MemberId::new(id), None, Term::NONE).await;
            }
        });
        let renews = async {
            let mut was = Version { term: OLD, beat: 0 };
            for _ in 0..JOINS {
                let publish = super::publish(&[2]);
                let renew = super::Statement::Renew { me: one, was, publish, value: None };
                let (changed, row) = leader.control(renew).await;
                assert!(changed, "{address}");
                was = row.version;
            }
        };
        tokio::join!(join_all(joins), renews);
    }
}
