//! The statements mean the same on every database: real servers, started here.

mod connecting;

use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use mandate_proto::election::RoleId;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::{
    Config, ControlState, DatabaseAnswer, Holder, Published, Reason, SqlGuarantee, Statement,
    Version,
};
use mandate_proto::score::Score;
use mandate_proto::value::Value as LeaderValue;
use mandate_servers::Server;
use mandate_servers::mariadb::{MariaDb, MariaDbConfig};
use mandate_servers::postgres::{Postgres, PostgresConfig};

use crate::database::Database;
use crate::statements::{Extra, Key};
use crate::{Address, Setup, Sql, SqlError};

mod crashes;
mod fences;
mod guarantees;
mod losses;
mod schemas;
mod scores;

/// For statements whose time is not what a test is about.
const PATIENCE: Duration = Duration::from_secs(30);

/// It only ends a test that would hang.
const BOUND: Duration = Duration::from_secs(120);

static POSTGRES: LazyLock<Mutex<Postgres>> =
    LazyLock::new(|| Mutex::new(Postgres::launch(&PostgresConfig::default()).unwrap()));

static MARIADB: LazyLock<Mutex<MariaDb>> =
    LazyLock::new(|| Mutex::new(MariaDb::launch(&MariaDbConfig::default()).unwrap()));

fn addresses(directory: &tempfile::TempDir) -> Vec<Address> {
    let sqlite = format!("sqlite:{}", directory.path().join("m.db").display());
    let urls = [sqlite, POSTGRES.lock().unwrap().url(), MARIADB.lock().unwrap().url()];
    urls.iter().map(|url| url.parse().unwrap()).collect()
}

/// Opens a database. On a busy host a statement may take longer than the patience of members with short rounds: then it is tried again.
async fn opened(address: &Address, patience: Duration) -> Database {
    let began = std::time::Instant::now();
    loop {
        match Database::open(address, patience).await {
            Ok(database) => return database,
            Err(error) => assert!(!error.is_final() && began.elapsed() < BOUND, "{error}"),
        }
    }
}

struct Table {
    database: Database,
    key: Key,
}

impl Table {
    async fn open(address: &Address, group: &str) -> Self {
        Database::make_schema(address).await.unwrap();
        let database = Database::open(address, PATIENCE).await.unwrap();
        Table { database, key: Key { group: group.into(), role: None } }
    }

    async fn ask(&self, statement: Statement) -> DatabaseAnswer {
        let extra = Extra { session: Some(77), label: "it's \"me\"".into() };
        self.database.execute(&self.key, &statement, &extra).await.unwrap().answer
    }

    async fn join(&self, id: u32, score: Option<f64>) -> Holder {
        let score = score.map(|score| Score::new(&[score, -1.5]).unwrap());
        let member = MemberId::new(id);
        self.join_with(member, score, Term::NONE).await.0
    }

    async fn join_with(
        &self,
        member: MemberId,
        score: Option<Score>,
        floor: Term,
    ) -> (Holder, ControlState) {
        let was_evicted = member.get() == 9;
        let join = Statement::Join { member, score, was_evicted, first: publish(&[]), floor };
        let DatabaseAnswer::Joined { incarnation, row, .. } = self.ask(join).await else {
            panic!("not joined")
        };
        (Holder { member, incarnation }, row)
    }

    async fn control(&self, statement: Statement) -> (bool, ControlState) {
        match self.ask(statement).await {
            DatabaseAnswer::Control { changed, row, .. } => (changed, row.unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

fn publish(successors: &[u32]) -> Published {
    Published {
        successors: successors.iter().copied().map(MemberId::new).collect(),
        round: Duration::from_millis(100),
        lease: Duration::from_millis(125),
        guarantee: SqlGuarantee::Leased,
    }
}

fn takeover(me: Holder, was: Version, of: Option<Holder>, term: u64) -> Statement {
    let (term, reason) = (Term::new(term), Reason::Silence);
    let (publish, value) = (publish(&[2, 3]), None);
    Statement::Takeover { me, was, of, term, reason, publish, value }
}

/// The longest value, of letters that take most room: what a column may not be able to hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_in_the_row_with_its_term_and_written_only_by_who_leads() {
    let directory = tempfile::tempdir().unwrap();
    let value = |text: &str| LeaderValue::new(text).unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "values").await;
        let (one, two) = (table.join(1, None).await, table.join(2, None).await);
        let shown = async |statement| match table.ask(statement).await {
            DatabaseAnswer::Control { changed, value, .. } => (changed, value),
            other => panic!("{other:?}"),
        };
        let longest = value(&"\u{1F600}".repeat(1024));
        let mut take = takeover(one, Version::default(), None, 1);
        if let Statement::Takeover { value, .. } = &mut take {
            *value = Some(longest.clone());
        }
        let first = Some((Term::new(1), longest));
        assert_eq!(shown(take).await, (true, first.clone()), "{address}");
        let was = Version { term: Term::new(1), beat: 0 };
        let renew = |me, was, value| Statement::Renew { me, was, publish: publish(&[2]), value };
        assert_eq!(
            shown(renew(two, was, Some(value("x")))).await,
            (false, first.clone()),
            "{address}"
        );
        assert_eq!(shown(renew(one, was, None)).await, (true, first), "{address}: it stays");
        let was = Version { beat: 1, ..was };
        let second = Some((Term::new(1), value("it's\n\"second\"")));
        let text = second.as_ref().map(|(_, value)| value.clone());
        assert_eq!(shown(renew(one, was, text)).await, (true, second.clone()), "{address}");
        let standing = table.database.standing("values").await.unwrap().unwrap();
        assert_eq!(standing.value, second.as_ref().map(|(_, value)| value.clone()), "{address}");
        // The next publishes nothing, as a member of an earlier version does not: what stays is of term 1.
        let was = Version { beat: 2, ..was };
        assert_eq!(shown(takeover(two, was, Some(one), 2)).await, (true, second), "{address}");
        let standing = table.database.standing("values").await.unwrap().unwrap();
        assert_eq!(standing.value, None, "{address}");
        let late = renew(one, Version { beat: 2, ..was }, Some(value("late")));
        assert!(!shown(late).await.0, "{address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_control_row_is_written_only_by_whoever_names_its_state() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "control").await;
        assert_eq!(
            table.ask(Statement::Look).await,
            DatabaseAnswer::Control { changed: false, row: None, value: None }
        );
        let (one, two) = (table.join(1, Some(0.5)).await, table.join(2, None).await);
        assert!(two.incarnation > one.incarnation);
        let (_, row) = table.control(Statement::Look).await;
        let first = Version::default();
        assert_eq!((row.version, row.leader, row.published), (first, None, publish(&[])));

        let (changed, row) = table.control(takeover(one, first, None, 1)).await;
        assert!(changed, "{address}");
        let version = Version { term: Term::new(1), beat: 0 };
        assert_eq!((row.version, row.leader, row.reason), (version, Some(one), Reason::Silence));
        assert_eq!(row.published, publish(&[2, 3]));
        let (changed, _) = table.control(takeover(two, first, None, 1)).await;
        assert!(!changed, "{address}: the state is another");
        let (changed, _) = table.control(takeover(two, version, None, 2)).await;
        assert!(!changed, "{address}: somebody leads");

        let renew = |me, was| Statement::Renew { me, was, publish: publish(&[2]), value: None };
        let (changed, row) = table.control(renew(one, version)).await;
        assert!(changed && row.version.beat == 1 && row.published == publish(&[2]), "{address}");
        let fenced = Published { guarantee: SqlGuarantee::Fenced, ..publish(&[2]) };
        let (me, was, value) = (one, row.version, None);
        let renewed = Statement::Renew { me, was, publish: fenced, value };
        let (changed, row) = table.control(renewed).await;
        assert!(changed && row.published == fenced, "{address}: what the leader relies on");
        let (changed, _) = table.control(renew(one, version)).await;
        assert!(!changed, "{address}: a beat behind");
        let (changed, _) = table.control(renew(two, row.version)).await;
        assert!(!changed, "{address}: another's");

        let (changed, row) = table.control(takeover(two, row.version, Some(one), 2)).await;
        assert!(changed && row.leader == Some(two), "{address}");
        let (reason, successors) = (Reason::Resigned, publish(&[1]).successors);
        let vacate = Statement::Vacate { me: two, was: row.version, reason, successors };
        let (changed, row) = table.control(vacate).await;
        assert!(changed && row.leader.is_none() && row.reason == Reason::Resigned, "{address}");
        assert_eq!(row.version, Version { term: Term::new(2), beat: 1 });

        let history = table.database.history("control", 10).await.unwrap();
        let terms: Vec<_> =
            history.iter().map(|reign| (reign.term.get(), reign.leader.get())).collect();
        assert_eq!(terms, [(2, 2), (1, 1)], "{address}");
        assert_eq!(history[0].former, Some(MemberId::new(1)));
        assert_eq!(history[0].label, "it's \"me\"");
        let standing = table.database.standing("control").await.unwrap().unwrap();
        assert!(!standing.has_session_lock, "given back with the term");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_join_beat_are_swept_and_evicted_by_the_counter_that_stood_still() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "members").await;
        let (one, nine) = (table.join(1, Some(0.5)).await, table.join(9, None).await);
        let score = Some(Score::new(&[2.0]).unwrap());
        let (changed, _) = table.control(Statement::Heartbeat { me: one, score }).await;
        assert!(changed, "{address}");
        let DatabaseAnswer::Members(mut rows) = table.ask(Statement::Sweep { limit: 10 }).await
        else {
            panic!("no rows")
        };
        rows.sort_by_key(|row| row.holder);
        assert_eq!((rows[0].holder, rows[0].counter, rows[0].score), (one, 1, score), "{address}");
        assert_eq!((rows[1].holder, rows[1].was_evicted, rows[1].score), (nine, true, None));
        let evict = |counter| Statement::Evict { holder: one, counter };
        assert_eq!(
            table.ask(evict(0)).await,
            DatabaseAnswer::Written(false),
            "{address}: it has beaten"
        );
        assert_eq!(table.ask(evict(1)).await, DatabaseAnswer::Written(true));
        let (changed, _) = table.control(Statement::Heartbeat { me: one, score: None }).await;
        assert!(!changed, "{address}: it is out");
        let again = table.join(9, None).await;
        assert!(again.incarnation > nine.incarnation, "{address}");
        assert_eq!(table.ask(Statement::Leave { me: nine }).await, DatabaseAnswer::Written(false));
        assert_eq!(table.ask(Statement::Leave { me: again }).await, DatabaseAnswer::Written(true));
        assert_eq!(
            table.ask(Statement::Sweep { limit: 10 }).await,
            DatabaseAnswer::Members(Vec::new())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_preferred_by_the_leader_of_the_group_alone() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "roles").await;
        let one = table.join(1, None).await;
        table.control(takeover(one, Version::default(), None, 4)).await;
        let changes = [(0, 1), (7, 2)].map(|(role, id)| (RoleId::new(role), MemberId::new(id)));
        let prefer = |term| Statement::Prefer { term: Term::new(term), changes: changes.into() };
        assert_eq!(table.ask(prefer(3)).await, DatabaseAnswer::Written(false), "{address}");
        assert_eq!(table.ask(Statement::ReadRoles).await, DatabaseAnswer::Roles(Vec::new()));
        for _ in 0..2 {
            assert_eq!(table.ask(prefer(4)).await, DatabaseAnswer::Written(true), "{address}");
        }
        let DatabaseAnswer::Roles(mut roles) = table.ask(Statement::ReadRoles).await else {
            panic!()
        };
        roles.sort_unstable();
        assert_eq!(roles, changes);
        let key = Key { role: Some(RoleId::new(7)), ..table.key.clone() };
        let role = Table { database: table.database.clone(), key };
        let (_, row) = role.control(Statement::Look).await;
        assert_eq!((row.version, row.preferred), (Version::default(), Some(MemberId::new(2))));
    }
}

/// A label longer than its column, with characters of several bytes and one that PostgreSQL has no place for.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_a_long_label_joins_with_what_fits() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let database = Table::open(&address, "labels").await.database;
        let config = Config::new(MemberId::new(1), Duration::from_millis(200)).unwrap();
        let label = format!("\0{}", "\u{1F5F3}".repeat(300));
        let member =
            Sql::start(&database, Setup { group: "labels".into(), label, config }).unwrap();
        let led = tokio::time::timeout(Duration::from_secs(120), member.election().led()).await;
        assert!(led.is_ok_and(|led| led.is_ok()), "{address}");
        let fits = "\u{1F5F3}".repeat(255);
        assert_eq!(database.members("labels").await.unwrap()[0].label, fits, "{address}");
        assert_eq!(database.history("labels", 1).await.unwrap()[0].label, fits, "{address}");
        member.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_yet_is_said_with_what_to_do() {
    let url = POSTGRES.lock().unwrap().url();
    POSTGRES.lock().unwrap().sql("create database empty").unwrap();
    let mut empty = url::Url::parse(&url).unwrap();
    empty.set_path("/empty");
    let address: Address = empty.as_str().parse().unwrap();
    let error = Database::open(&address, PATIENCE).await.unwrap_err();
    assert!(matches!(error, SqlError::NoSchema { .. }), "{error}");
    assert!(error.to_string().contains("mandate sql init"), "{error}");
    Database::make_schema(&address).await.unwrap();
    Database::make_schema(&address).await.unwrap();
    Database::open(&address, PATIENCE).await.unwrap();
}

/// Programs that are deployed together make the tables several times at once.
#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_by_several_at_once() {
    let postgres = Postgres::launch(&PostgresConfig::default()).unwrap();
    let mariadb = MariaDb::launch(&MariaDbConfig::default()).unwrap();
    for url in [postgres.url(), mariadb.url()] {
        let address: Address = url.parse().unwrap();
        let all = (0..8).map(|_| Database::make_schema(&address));
        for made in futures_util::future::join_all(all).await {
            assert!(made.is_ok(), "{address}: {made:?}");
        }
        Database::open(&address, PATIENCE).await.unwrap();
    }
}
