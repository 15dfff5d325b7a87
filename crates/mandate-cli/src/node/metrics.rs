//! What Prometheus reads, on standbys as on the leader.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use mandate::peer::engine::links::Links;
use mandate::{Event, Member};
use mandate_proto::identity::MemberId;
use mandate_proto::neli;
use mandate_proto::registers;

use super::document::{DiskDocument, StatusDocument, cause_name};
use crate::ledger::RoleMapDocument;
use crate::sql::words::reason_name;

/// Counted since the start.
pub(crate) struct Metrics {
    counts: Mutex<Counts>,
    member: Member,
}

#[derive(Debug, Default)]
struct Counts {
    /// Changes of leader, by what this member became and why there was an election.
    transitions: BTreeMap<(&'static str, &'static str), u64>,
    suspicions: u64,
    /// Suspicions that were taken back.
    mistakes: u64,
    moves: u64,
}

impl Metrics {
    pub(crate) fn new(member: Member) -> Self {
        Metrics { counts: Mutex::default(), member }
    }

    /// Counts an event of member `me`.
    pub(crate) fn count(&self, event: &Event, me: MemberId) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Elected(record) => {
                let to = if record.leader == me { "leading" } else { "following" };
                *counts.transitions.entry((to, cause_name(record.cause))).or_default() += 1;
            }
            Event::OnDatabase(registers::Event::Reigned(reign)) if reign.leader.is_some() => {
                let to = if reign.leader == Some(me) { "leading" } else { "following" };
                *counts.transitions.entry((to, reason_name(reign.reason))).or_default() += 1;
            }
            Event::OnDatabase(registers::Event::Removed { .. }) => counts.suspicions += 1,
            Event::OnDatabase(registers::Event::Evicted { .. }) => counts.mistakes += 1,
            Event::Suspected { suspected: true, .. } => counts.suspicions += 1,
            Event::Suspected { suspected: false, .. } => counts.mistakes += 1,
            Event::Moved(_) => counts.moves += 1,
            Event::OnLedger(neli::Event::Acquired { .. }) => {
                *counts.transitions.entry(("leading", "assigned")).or_default() += 1;
            }
            _ => {}
        }
    }

    pub(crate) fn text(&self, status: &StatusDocument) -> String {
        let mut page = Page::default();
        leadership(&mut page, status);
        members(&mut page, status);
        quality(&mut page, status);
        if let Some(map) = &status.role_map {
            roles(&mut page, &status.group, map);
        }
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        page.counter("mandate_transitions_total", "Changes of leader, by what this member became.");
        for ((to, reason), count) in &counts.transitions {
            page.value(&[("to", to), ("reason", reason)], *count as f64);
        }
        page.counter("mandate_renewals_total", "How often this member's lease was renewed.");
        page.value(&[], status.renewals as f64);
        page.counter("mandate_suspicions_total", "How often a member was suspected.");
        page.value(&[], counts.suspicions as f64);
        page.counter("mandate_mistakes_total", "Suspicions that were taken back.");
        page.value(&[], counts.mistakes as f64);
        page.counter("mandate_moves_total", "Moves by score whose effect is known.");
        page.value(&[], counts.moves as f64);
        if let Some(disk) = &status.disk {
            writes(&mut page, disk);
        }
        if let Some(peer) = self.member.peer() {
            if let Some(left) = peer.certificate_expires().map(seconds_until) {
                let help = "Until this member's certificate expires; negative once it has.";
                page.gauge("mandate_certificate_expires_seconds", help);
                page.value(&[], left);
            }
            page.traffic(peer.links());
            page.counter(
                "mandate_twins_total",
                "How often a second process showed the id of a member.",
            );
            page.value(&[], peer.links().twins() as f64);
        }
        page.text
    }
}

/// Quality of detection: wanted, planned, delivered.
fn quality(page: &mut Page, status: &StatusDocument) {
    for quality in &status.quality {
        let leader = quality.member.as_ref().map(|leader| ("leader", leader.as_str()));
        for (name, help, value) in quality.figures() {
            page.gauge(name, help);
            page.value(leader.as_slice(), value);
        }
    }
}

fn leadership(page: &mut Page, status: &StatusDocument) {
    let leads = ["leading", "jeopardy"].contains(&status.state.as_str());
    page.gauge("leader_election_master_status", "1 on the leader.");
    page.value(&[("name", &status.group)], flag(leads));
    page.gauge("mandate_term", "The term of the leader that is known, 0 without one.");
    page.value(&[], status.term.unwrap_or(0) as f64);
    page.gauge(
        "mandate_lease_remaining_seconds",
        "How long this member's lease lasts; with leases.",
    );
    if let Some(left) = status.lease_remaining_ms {
        page.value(&[], left / 1000.0);
    }
    if let Some(has_vote) = status.has_vote {
        page.gauge(
            "mandate_has_vote",
            "0 while this member is new, has lost its disk or was changed, and not all others have answered.",
        );
        page.value(&[], flag(has_vote));
    }
    page.gauge("mandate_candidate", "0 while this member has no score, and could not be elected.");
    page.value(&[], flag(status.not_a_candidate.is_none()));
    page.gauge(
        "mandate_score",
        "What this member measures of itself, by term of the oracle: times in milliseconds.",
    );
    for (term, value) in &status.values {
        page.value(&[("term", term)], *value);
    }
}

/// What a member leads of a group on a ledger.
fn roles(page: &mut Page, group: &str, map: &RoleMapDocument) {
    let led = map.partitions.iter().filter(|one| one.leads).count();
    let assigned = map.partitions.iter().filter(|one| one.assigned).count();
    let dry = map.partitions.iter().filter(|one| one.dry_since_ms.is_some()).count();
    for (name, help, value) in [
        ("mandate_roles", "Roles of the group.", map.roles as usize),
        ("mandate_roles_led", "Roles that this member leads.", map.roles_led as usize),
        ("mandate_partitions_led", "Partitions whose roles this member leads.", led),
        ("mandate_partitions_assigned", "Partitions that are assigned to this member.", assigned),
        ("mandate_partitions_dry", "Partitions found dry since the last assignment.", dry),
        ("mandate_barrier_stuck", "1 while nothing is assigned for too long.", map.stuck.into()),
    ] {
        page.gauge(name, help);
        page.value(&[("group", group)], value as f64);
    }
    let counts = &map.counts;
    page.counter("mandate_partitions_lost_total", "Partitions not led any more, by reason.");
    for (reason, count) in [
        ("lapsed", counts.lapsed),
        ("revoked", counts.revoked),
        ("lost", counts.lost),
        ("fenced", counts.fenced),
        ("left", counts.left),
    ] {
        page.value(&[("group", group), ("reason", reason)], count as f64);
    }
    for (name, help, count) in [
        ("mandate_partitions_acquired_total", "Partitions that came to be led.", counts.acquired),
        ("mandate_partitions_dry_total", "How often a partition was dry.", counts.dry),
        ("mandate_barriers_stuck_total", "How often a barrier was stuck.", counts.stuck),
        ("mandate_drains_overrun_total", "How often work took too long to end.", counts.overran),
        ("mandate_ledger_failures_total", "Requests that failed or are unknown.", counts.failed),
        (
            "mandate_layouts_differ_total",
            "Other layouts that members were found to have.",
            counts.disagreed,
        ),
    ] {
        page.counter(name, help);
        page.value(&[("group", group)], count as f64);
    }
}

fn members(page: &mut Page, status: &StatusDocument) {
    page.gauge("mandate_member_suspected", "1 for members that do not answer.");
    for peer in &status.members {
        if let Some(suspected) = peer.suspected {
            page.value(&[("member", &peer.id)], flag(suspected));
        }
    }
    page.gauge(
        "mandate_member_refused",
        "1 for members that are refused, or that two processes show the id of.",
    );
    for peer in &status.members {
        page.value(&[("member", &peer.id)], flag(peer.trouble.is_some()));
    }
    page.gauge("mandate_round_trip_seconds", "Mean round trip to members that answer.");
    for peer in &status.members {
        if let Some(time) = peer.round_trip_ms {
            page.value(&[("member", &peer.id)], time / 1000.0);
        }
    }
    page.gauge("mandate_member_requests", "Requests a second that clients send to a member.");
    let own = (&status.member, status.requests);
    let each = status.members.iter().map(|peer| (&peer.id, peer.requests));
    for (member, requests) in [own].into_iter().chain(each) {
        if let Some(requests) = requests {
            page.value(&[("member", member)], requests);
        }
    }
}

/// How the writes of the state go. A member that cannot write takes no part, whatever else it shows.
fn writes(page: &mut Page, disk: &DiskDocument) {
    for (name, help, count) in [
        ("mandate_disk_writes_total", "Writes of the state that are on disk.", disk.writes as f64),
        (
            "mandate_disk_write_failures_total",
            "Attempts to write the state that failed.",
            disk.failures as f64,
        ),
        (
            "mandate_disk_slow_writes_total",
            "Writes of the state that took longer than 0.5 s.",
            disk.slow as f64,
        ),
        (
            "mandate_disk_write_seconds_total",
            "What all writes of the state took together.",
            disk.spent_ms / 1000.0,
        ),
    ] {
        page.counter(name, help);
        page.value(&[], count);
    }
    page.gauge("mandate_disk_failing", "1 while the state cannot be written.");
    page.value(&[], flag(disk.error.is_some()));
    page.gauge(
        "mandate_disk_waiting_seconds",
        "How long a write of the state has taken that is waited for; else 0.",
    );
    page.value(&[], disk.waiting_ms.unwrap_or(0.0) / 1000.0);
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

fn seconds_until(time: SystemTime) -> f64 {
    match time.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs_f64().floor(),
        Err(passed) => -passed.duration().as_secs_f64().ceil(),
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

    fn traffic(&mut self, links: &Links) {
        let traffic = links.traffic();
        self.counter("mandate_packets_total", "UDP packets of the links, by direction.");
        self.value(&[("direction", "sent")], traffic.sent_packets as f64);
        self.value(&[("direction", "received")], traffic.received_packets as f64);
        self.counter("mandate_bytes_total", "Bytes in these packets.");
        self.value(&[("direction", "sent")], traffic.sent_bytes as f64);
        self.value(&[("direction", "received")], traffic.received_bytes as f64);
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = match labels.join(",") {
            none if none.is_empty() => none,
            labels => format!("{{{labels}}}"),
        };
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_label_early_is_escaped() {
        let mut page = Page::default();
        page.gauge("m", "A gauge.");
        page.value(&[("a", "x"), ("b", "say \"\\\"\nand go")], 1.5);
        assert_eq!(
            page.text,
            "# HELP m A gauge.\n# TYPE m gauge\nm{a=\"x\",b=\"say \\\"\\\\\\\"\\nand go\"} 1.5\n"
        );
    }
}
