//! A member's interface, on a file of SQLite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mandate::sql::{self, Config};
use mandate::{ElectionState, Error, Guarantee, Member, MemberId};
use tempfile::TempDir;
use tokio::time::sleep;

/// A lease is a quarter longer: none is lost because a thread or a write waits for a second or two.
const ROUND: Duration = Duration::from_secs(3);

fn builder(directory: &TempDir) -> sql::Builder {
    let url = format!("sqlite:{}", directory.path().join("m.db").display());
    sql::join(&url, "billing").config(Config::new(MemberId::new(0), ROUND).unwrap())
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let bound = Duration::from_secs(120);
    let looked = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(bound, looked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leads_again_and_again_until_it_is_shut_down() {
    let directory = tempfile::tempdir().unwrap();
    let member = builder(&directory).await.unwrap();
    let (terms, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let leading = {
        let (member, terms, last) = (member.clone(), terms.clone(), last.clone());
        tokio::spawn(async move {
            member
                .lead(async |mandate| {
                    assert!(mandate.check());
                    let before = last.swap(mandate.term().get(), Ordering::SeqCst);
                    assert!(mandate.term().get() > before, "terms rise");
                    terms.fetch_add(1, Ordering::SeqCst);
                })
                .await
        })
    };
    until("it leads three times", async || terms.load(Ordering::SeqCst) >= 3).await;
    member.shutdown().await;
    leading.await.unwrap().expect("it was asked to stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_knows_is_there_and_the_rest_is_absent() {
    let directory = tempfile::tempdir().unwrap();
    let first = builder(&directory).member(MemberId::new(1)).await.unwrap();
    let second = builder(&directory).await.unwrap();
    assert!(matches!(first.guarantee(), Guarantee::Leased { lease } if lease > ROUND));
    assert!(first.roles().is_none() && first.peer().is_none() && first.kafka().is_none());
    assert_eq!(first.oracle().unwrap().to_string(), "constant");
    assert_ne!(second.id(), first.id());
    until("they know each other", async || {
        let known = first.members().await.expect("a database knows its members");
        let labelled = |info: &mandate::MemberInfo| info.label.is_some();
        known.len() == 2 && known.iter().all(labelled)
    })
    .await;
    let twin = builder(&directory).member(MemberId::new(1)).await;
    let error = twin.expect_err("that id is in use");
    assert!(matches!(&error, Error::InUse { member, .. } if *member == first.id()), "{error}");
    assert!(error.is_final() && !error.to_string().contains("--"), "{error}");
    for member in [first, second] {
        member.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_have_names_and_are_shared() {
    let directory = tempfile::tempdir().unwrap();
    let mut members: Vec<Member> = Vec::new();
    for _ in 0..2 {
        members.push(builder(&directory).roles(4).start().await.unwrap());
    }
    until("each leads two", async || {
        members.iter().all(|member| member.roles().unwrap().owned().len() == 2)
    })
    .await;
    let roles = members[0].roles().unwrap();
    assert_eq!(roles.count(), 4);
    assert!(roles.named("4").is_err() && roles.named("invoices").is_ok());
    let names = ["0", "1", "2", "3"].map(|name| roles.named(name).unwrap());
    // Asked one after the other, and a role may change hands in between; twice it does not.
    let all = |role| members.iter().all(|one| one.roles().unwrap().is_leader(role));
    assert!(names.into_iter().all(|role| !(all(role) && all(role))));
    for member in members {
        member.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_is_led_by_its_name_until_the_member_is_shut_down() {
    let directory = tempfile::tempdir().unwrap();
    let member = builder(&directory).roles(4).start().await.unwrap();
    let wrong = member.lead_role("4", async |_| {}).await.unwrap_err();
    assert!(wrong.to_string().contains("counted from 0"), "{wrong}");
    let led = Arc::new(AtomicU64::new(0));
    let leading = {
        let (member, led) = (member.clone(), led.clone());
        tokio::spawn(async move {
            member
                .lead_role("invoices", async |mandate| {
                    led.store(mandate.term().get(), Ordering::SeqCst);
                    std::future::pending::<()>().await;
                })
                .await
        })
    };
    until("it leads the role", async || led.load(Ordering::SeqCst) > 0).await;
    let roles = member.roles().unwrap();
    assert!(roles.is_leader(roles.named("invoices").unwrap()));
    member.shutdown().await;
    leading.await.unwrap().expect("it was asked to stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_election_of_a_role_ends_with_its_member() {
    let directory = tempfile::tempdir().unwrap();
    let member = builder(&directory).roles(2).start().await.unwrap();
    let election = member.election_of("1").unwrap();
    until("it leads the role", async || election.state().borrow().mandate().is_some()).await;
    drop(member);
    let has_ended = || matches!(*election.state().borrow(), ElectionState::Stopped);
    until("the role's election ends", async || has_ended()).await;
}

#[tokio::test]
async fn what_is_wrong_is_said_without_passwords() {
    let wrong = sql::join("mysql//root:secret@db", "billing").await.unwrap_err();
    assert!(wrong.is_final() && !format!("{wrong} {wrong:?}").contains("secret"), "{wrong:?}");
    let file = mandate::from_file("there/is/none.toml").unwrap_err();
    assert!(file.to_string().contains("cannot open there/is/none.toml"), "{file}");
}
