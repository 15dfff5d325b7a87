//! What Prometheus reads, on standbys as on the leader.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use mandate_proto::pole::member::{Event, State};
use mandate_runtime::Election;
use tokio::sync::broadcast::error::RecvError;

use super::document::StatusDocument;

/// Counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Elections that ended, by cause.
    elections: BTreeMap<String, u64>,
    /// How often this member came to lead.
    reigns: u64,
    suspicions: u64,
    /// Suspicions that were taken back.
    mistakes: u64,
    moves: u64,
}

impl Metrics {
    /// Counts what happens, until the election ends.
    pub(crate) async fn count(&self, election: Election) {
        let mut events = election.events();
        // The handle would keep the member alive.
        drop(election);
        loop {
            match events.recv().await {
                Ok(event) => self.take(&event),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn take(&self, event: &Event) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Elected(record) => {
                let cause = format!("{:?}", record.cause);
                *counts.elections.entry(cause).or_default() += 1;
            }
            Event::Changed(State::Leading { .. }) => counts.reigns += 1,
            Event::Suspected { suspected: true, .. } => counts.suspicions += 1,
            Event::Suspected { suspected: false, .. } => counts.mistakes += 1,
            Event::Moved(_) => counts.moves += 1,
            _ => {}
        }
    }

    pub(crate) fn text(&self, status: &StatusDocument) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let group = &status.group;
        let leads = u8::from(["leading", "jeopardy"].contains(&status.state.as_str()));
        let mut page = Page::default();
        page.gauge("leader_election_master_status", "1 on the leader.");
        page.value(&format!("{{name=\"{group}\"}}"), f64::from(leads));
        page.gauge("mandate_term", "The term of the leader that is known, 0 without one.");
        page.value("", status.term.unwrap_or(0) as f64);
        if let Some(left) = status.lease_remaining_ms {
            page.gauge("mandate_lease_remaining_seconds", "How long the lease lasts.");
            page.value("", left / 1000.0);
        }
        page.gauge("mandate_has_vote", "0 after the disk was lost, until it is recovered.");
        page.value("", f64::from(u8::from(status.has_vote)));
        page.gauge("mandate_member_suspected", "1 for members that do not answer.");
        for peer in &status.members {
            page.value(&format!("{{member=\"{}\"}}", peer.id), f64::from(u8::from(peer.suspected)));
        }
        page.gauge("mandate_round_trip_seconds", "Mean round trip to members that answer.");
        for peer in &status.members {
            if let Some(time) = peer.round_trip_ms {
                page.value(&format!("{{member=\"{}\"}}", peer.id), time / 1000.0);
            }
        }
        page.counter("mandate_elections_total", "Elections that ended, by cause.");
        for (cause, count) in &counts.elections {
            page.value(&format!("{{cause=\"{cause}\"}}"), *count as f64);
        }
        page.counter("mandate_reigns_total", "How often this member came to lead.");
        page.value("", counts.reigns as f64);
        page.counter("mandate_suspicions_total", "How often a member was suspected.");
        page.value("", counts.suspicions as f64);
        page.counter("mandate_mistakes_total", "Suspicions that were taken back.");
        page.value("", counts.mistakes as f64);
        page.counter("mandate_moves_total", "Moves by score whose effect is known.");
        page.value("", counts.moves as f64);
        page.text
    }
}

/// A page in Prometheus' text format.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    fn gauge(&mut self, name: &'static str, help: &str) {
        self.begin(name, "gauge", help);
    }

    fn counter(&mut self, name: &'static str, help: &str) {
        self.begin(name, "counter", help);
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}
