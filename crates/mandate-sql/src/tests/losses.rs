//! Rows that are lost, and terms that are known all the same.

use std::time::Duration;

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{Config, Reason, Statement, Version};

use super::{
    DatabaseAnswer, Key, MARIADB, PATIENCE, POSTGRES, Table, addresses, publish, takeover,
};
use crate::database::Database;
use crate::{Address, Setup, Sql, SqlError, fence};

/// Has somebody else write to the tables.
fn meddle(address: &Address, sql: &str) {
    match address {
        Address::Sqlite(path) => {
            rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
        }
        Address::Postgres(_) => {
            POSTGRES.lock().unwrap().sql(sql).unwrap();
        }
        Address::MySql(_) => {
            MARIADB.lock().unwrap().sql(sql).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_row_that_was_lost_begins_with_the_highest_term_that_anything_knows() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "lost").await;
        let one = table.join(1, None).await;
        table.control(takeover(one, Version::default(), None, 3)).await;
        let lose = "delete from mandate_control where group_name = 'lost'";
        meddle(&address, lose);
        let (one, row) = table.join_with(MemberId::new(1), None, Term::NONE).await;
        assert_eq!(row.version, Version { term: Term::new(3), beat: 0 }, "{address}: the history");
        assert_eq!((row.leader, row.reason), (None, Reason::First));
        meddle(&address, "update mandate_fence set term = 5 where group_name = 'lost'");
        meddle(&address, lose);
        let (_, row) = table.join_with(MemberId::new(2), None, Term::new(2)).await;
        assert_eq!(row.version.term, Term::new(5), "{address}: the fence");
        meddle(&address, lose);
        let (_, row) = table.join_with(MemberId::new(2), None, Term::new(8)).await;
        assert_eq!(row.version.term, Term::new(8), "{address}: what a living member has seen");
        let (_, row) = table.join_with(MemberId::new(3), None, Term::new(9)).await;
        assert_eq!(row.version.term, Term::new(8), "{address}: a row that is there is left alone");

        // A role's row comes with the preference of the group's leader.
        let (changed, _) = table.control(takeover(one, row.version, None, 9)).await;
        assert!(changed, "{address}");
        let prefer = Statement::Prefer {
            term: Term::new(9),
            changes: [(RoleId::new(4), MemberId::new(1))].into(),
        };
        assert_eq!(table.ask(prefer.clone()).await, DatabaseAnswer::Written(true));
        meddle(
            &address,
            "update mandate_fence set term = 6 where group_name = 'lost' and role = 4",
        );
        meddle(&address, "delete from mandate_control where group_name = 'lost' and role = 4");
        assert_eq!(table.ask(prefer).await, DatabaseAnswer::Written(true));
        let key = Key { role: Some(RoleId::new(4)), ..table.key.clone() };
        let role = Table { database: table.database.clone(), key };
        let (_, row) = role.control(Statement::Look).await;
        assert_eq!(row.version.term, Term::new(6), "{address}: of the role");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_put_back_behind_the_history_gives_no_term_out_again() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "behind").await;
        let (one, two) = (table.join(1, None).await, table.join(2, None).await);
        table.control(takeover(one, Version::default(), None, 3)).await;
        let was = Version { term: Term::new(3), beat: 0 };
        let (changed, _) = table.control(takeover(two, was, Some(one), 4)).await;
        assert!(changed, "{address}");
        meddle(
            &address,
            "update mandate_control set term = 3, beat = 7 where group_name = 'behind'",
        );
        // A member that has not seen term 4 asks for it.
        let was = Version { term: Term::new(3), beat: 7 };
        let (changed, row) = table.control(takeover(one, was, Some(two), 4)).await;
        assert!(!changed, "{address}");
        let raised = Version { term: Term::new(4), beat: 0 };
        assert_eq!((row.version, row.leader, row.reason), (raised, None, Reason::First));
        let (changed, row) = table.control(takeover(one, raised, None, 5)).await;
        assert!(changed, "{address}");
        assert_eq!(row.version.term, Term::new(5));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_raises_terms_whether_or_not_there_is_a_row_and_never_lowers_them() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "raised").await;
        let raise = async |above| {
            table.database.raise("raised", Term::new(above), &publish(&[])).await.unwrap().control
        };
        assert_eq!(raise(4).await.version.term, Term::new(4), "{address}: there was none");
        let one = table.join(1, None).await;
        let was = Version { term: Term::new(4), beat: 0 };
        let (changed, _) = table.control(takeover(one, was, None, 5)).await;
        assert!(changed, "{address}");
        let row = raise(41).await;
        assert_eq!((row.version.term, row.leader), (Term::new(41), None), "{address}");
        assert_eq!(row.reason, Reason::First, "{address}: it counts as made again");
        let renew = Statement::Renew {
            me: one,
            was: Version { term: Term::new(5), beat: 0 },
            publish: publish(&[]),
            value: None,
        };
        let (changed, _) = table.control(renew).await;
        assert!(!changed, "{address}: who led leads no more");
        assert_eq!(raise(7).await.version.term, Term::new(41), "{address}");
        let refused = table.database.raise("no such/name", Term::new(1), &publish(&[])).await;
        assert!(matches!(refused, Err(SqlError::Group(_))), "{refused:?}");
    }
}

async fn start(database: &Database, id: u32, round: Duration) -> Sql {
    let config = Config::new(MemberId::new(id), round).unwrap();
    let setup = Setup { group: "rounds".into(), label: format!("p{id}"), config };
    Sql::start(database, setup).unwrap()
}

/// One mistaken run with rounds of an hour, and all that come after it.
#[tokio::test(flavor = "multi_thread")]
async fn the_round_of_a_member_that_is_gone_binds_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("m.db").display());
    let database = Database::open(&url.parse().unwrap(), PATIENCE).await.unwrap();
    let bound = Duration::from_secs(120);
    let (short, hour) = (Duration::from_millis(500), Duration::from_secs(3600));
    for (id, round) in [(1, short), (2, hour), (3, short)] {
        let member = start(&database, id, round).await;
        let led = tokio::time::timeout(bound, member.election().led()).await;
        assert!(led.is_ok_and(|led| led.is_ok()), "p{id}");
        let standing = database.standing("rounds").await.unwrap().unwrap();
        assert_eq!(standing.control.published.round, round);
        member.shutdown().await;
    }
}

/// The guide's statement, as it is printed.
#[tokio::test(flavor = "multi_thread")]
async fn the_fence_for_sqlite_works_as_the_guide_prints_it() {
    let guide = include_str!("../../../../docs/sql.md");
    let begin = guide.find("insert into mandate_fence").expect("the statement");
    let statement = guide[begin..].split(';').next().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.db");
    let address: Address = format!("sqlite:{}", path.display()).parse().unwrap();
    let table = Table::open(&address, "orders").await;
    let one = table.join(1, None).await;
    table.control(takeover(one, Version::default(), None, 7)).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(connection.execute(statement, ()).unwrap(), 1, "{statement}");
    assert_eq!(connection.execute(statement, ()).unwrap(), 1, "again, in the same term");
    let was = Version { term: Term::new(7), beat: 0 };
    table.control(takeover(one, was, Some(one), 8)).await;
    assert_eq!(connection.execute(statement, ()).unwrap(), 0, "from the takeover on");
    assert!(fence::RAISE.starts_with("insert into mandate_fence"));
}
