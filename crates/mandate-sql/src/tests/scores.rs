//! What a member is worth can be stored wherever it elects.

use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::registers::{Config, Statement};
use mandate_proto::score::{MAX_COMPONENTS, Score};

use super::{DatabaseAnswer, Table, Term, addresses, opened};
use crate::database::Database;
use crate::{Setup, Sql};

#[tokio::test(flavor = "multi_thread")]
async fn the_least_and_the_largest_scores_are_stored_and_read_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let table = Table::open(&address, "scores").await;
        for part in [f64::MIN, f64::MAX, -1.0e-300, f64::MIN_POSITIVE] {
            let score = Some(Score::new(&[part; MAX_COMPONENTS]).unwrap());
            let (me, _) = table.join_with(MemberId::new(1), score, Term::NONE).await;
            let (changed, _) = table.control(Statement::Heartbeat { me, score }).await;
            assert!(changed, "{address}");
            let DatabaseAnswer::Members(rows) = table.ask(Statement::Sweep { limit: 10 }).await
            else {
                panic!("no rows")
            };
            assert_eq!(rows[0].score, score, "{address}");
        }
    }
}

/// Nobody has told a figure yet, so that all count as the least that there is.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_leads_by_every_oracle_on_every_database_before_it_was_told_a_figure() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        Database::make_schema(&address).await.unwrap();
        for oracle in ["constant", "requests", "history", "application", "history,application"] {
            let config = Config::new(MemberId::new(1), Duration::from_millis(500)).unwrap();
            let config = config.with_oracle(oracle.parse().unwrap());
            let database = opened(&address, config.round()).await;
            let (group, label) = (oracle.replace(',', "-"), "one".into());
            let member = Sql::start(&database, Setup { group, label, config }).unwrap();
            let led = tokio::time::timeout(Duration::from_secs(120), member.election().led());
            assert!(led.await.is_ok_and(|led| led.is_ok()), "{oracle} on {address}");
            member.shutdown().await;
        }
    }
}
