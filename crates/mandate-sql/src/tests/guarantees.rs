//! Members of one group with different guarantees, on a real server.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::registers::{Config, Event as OnDatabase, SqlGuarantee};
use mandate_runtime::Event;
use mandate_servers::Server;
use tracing::field::{Field, Visit};
use tracing::span;

use super::{BOUND, MARIADB, POSTGRES, opened};
use crate::{Address, Database, Setup, Sql};

/// So long that a busy host does not cost the leader its place while the other one looks.
const ROUND: Duration = Duration::from_secs(1);

/// What this thread logs as a warning.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

async fn member(address: &Address, id: u32, guarantee: SqlGuarantee) -> Sql {
    // A database for each, as in two processes.
    let database = opened(address, ROUND).await;
    let config = Config::new(MemberId::new(id), ROUND).unwrap();
    let config = config.with_guarantee(guarantee);
    let setup = Setup { group: "guarantees".into(), label: format!("p{id}"), config };
    Sql::start(&database, setup).unwrap()
}

async fn leads(member: &Sql) {
    let led = tokio::time::timeout(BOUND, member.election().led()).await;
    assert!(led.is_ok_and(|led| led.is_ok()));
}

/// One thread, which logs for both members.
#[tokio::test(flavor = "current_thread")]
async fn a_member_with_another_guarantee_than_the_leader_says_so_and_waits_until_it_has_left() {
    let warnings = Warnings::default();
    let _logs = tracing::subscriber::set_default(warnings.clone());
    let urls = [POSTGRES.lock().unwrap().url(), MARIADB.lock().unwrap().url()];
    for address in urls.map(|url| url.parse::<Address>().unwrap()) {
        Database::make_schema(&address).await.unwrap();
        for (first, second, words) in [
            (SqlGuarantee::Leased, SqlGuarantee::Fenced, ["theirs=\"leased\"", "ours=\"fenced\""]),
            (SqlGuarantee::Fenced, SqlGuarantee::Leased, ["theirs=\"fenced\"", "ours=\"leased\""]),
        ] {
            warnings.0.lock().unwrap().clear();
            let leader = member(&address, 1, first).await;
            leads(&leader).await;
            let other = member(&address, 2, second).await;
            let mut events = other.election().events();
            let told = async {
                loop {
                    if let Event::OnDatabase(OnDatabase::Differs { leader, theirs }) =
                        events.recv().await.unwrap()
                    {
                        return (leader, theirs);
                    }
                }
            };
            let told = tokio::time::timeout(BOUND, told).await.expect("it says nothing");
            assert_eq!(told, (MemberId::new(1), first), "{address}");
            let logged = warnings.0.lock().unwrap().join("\n");
            let is_logged = logged.lines().any(|line| {
                line.contains("another guarantee") && words.iter().all(|word| line.contains(word))
            });
            assert!(is_logged, "{address}: {logged}");
            assert!(other.election().state().borrow().mandate().is_none(), "{address}");
            leader.shutdown().await;
            leads(&other).await;
            other.shutdown().await;
        }
    }
}
