//! Roles over members, on a real file: spread evenly, and never led by two.

use std::time::{Duration, Instant};

use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
use mandate_proto::registers::Config;
use mandate_sql::{Database, Setup, SqlRoles};

const ROLES: u32 = 9;

/// For what hangs.
const BOUND: Duration = Duration::from_secs(120);

async fn start(directory: &tempfile::TempDir, id: u32) -> SqlRoles {
    // So long that a busy host, with a slow disk, can renew what is led.
    let config = Config::new(MemberId::new(id), Duration::from_secs(1)).unwrap();
    let address = format!("sqlite:{}", directory.path().join("m.db").display());
    let began = Instant::now();
    let database = loop {
        match Database::open(&address.parse().unwrap(), config.round()).await {
            Ok(database) => break database,
            // Another writes for longer than a round.
            Err(error) => assert!(!error.is_final() && began.elapsed() < BOUND, "{error}"),
        }
    };
    let setup = Setup { group: "roles".into(), label: format!("p{id}"), config };
    SqlRoles::start(&database, setup, ROLES).unwrap()
}

/// How many roles each leads. Of two mandates that held at one instant the first would still hold when the second was
/// read.
fn loads(members: &[SqlRoles]) -> Vec<usize> {
    for role in (0..ROLES).map(RoleId::new) {
        let held: Vec<_> = members.iter().filter_map(|member| member.mandate(role)).collect();
        let both = held.len() > 1 && held.iter().all(|mandate| mandate.check());
        assert!(!both, "two lead role {}", role.get());
    }
    members.iter().map(|member| member.owned().len()).collect()
}

async fn until(members: &[SqlRoles], what: &str, expected: &[usize]) {
    let began = Instant::now();
    loop {
        let mut loads = loads(members);
        loads.sort_unstable();
        if loads == expected {
            return;
        }
        assert!(began.elapsed() < BOUND, "{what}: {loads:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_spread_over_whoever_lives_and_move_when_one_comes_or_goes() {
    let directory = tempfile::tempdir().unwrap();
    let mut members = vec![start(&directory, 1).await];
    until(&members, "one leads all", &[9]).await;
    let mut changes = members[0].changes();
    members.push(start(&directory, 2).await);
    members.push(start(&directory, 3).await);
    until(&members, "three share", &[3, 3, 3]).await;
    let told = async { while changes.recv().await.unwrap().mandate.is_some() {} };
    tokio::time::timeout(BOUND, told).await.expect("the first was told what it lost");
    let last = members.pop().unwrap();
    last.shutdown().await;
    until(&members, "two share", &[4, 5]).await;
    drop(last);
}
