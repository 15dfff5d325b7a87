//! What members on a ledger led, partition by partition, and what they lost though it did not move.
//!
//! Acts are of one role; partitions are many. So each member writes a line into its log whenever a partition comes to be led or is led
//! no more, by the clock that all processes share.

use std::collections::{BTreeMap, BTreeSet};

use mandate_proto::identity::MemberId;
use mandate_proto::neli::{Event, RoleLoss};

/// How such a line begins.
const BEGINS: &str = "partition-change ";

/// A partition came to be led at a member, or was led no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) member: MemberId,
    pub(crate) partition: u32,
    /// Why it is led no more; `None` if it is led from now on.
    pub(crate) lost: Option<String>,
}

/// What a member writes of an event, if it is about what is led.
pub(crate) fn line(at: u64, event: &Event) -> Option<String> {
    let partition = event.partition()?.get();
    let what = match event {
        Event::Acquired { .. } => "led",
        Event::Ended { loss, .. } => name(*loss),
        _ => return None,
    };
    Some(format!("{BEGINS}{at} {partition} {what}"))
}

fn name(loss: RoleLoss) -> &'static str {
    match loss {
        RoleLoss::Lapsed => "lapsed",
        RoleLoss::Revoked => "revoked",
        RoleLoss::Lost => "lost",
        RoleLoss::Fenced => "fenced",
        RoleLoss::Left => "left",
    }
}

/// Whether a line of a log is one of these.
pub(super) fn is_change(line: &str) -> bool {
    line.starts_with(BEGINS)
}

/// What a member has written.
fn read(member: MemberId, log: &str) -> impl Iterator<Item = Change> + '_ {
    log.lines().filter_map(move |line| {
        let mut words = line.strip_prefix(BEGINS)?.split(' ');
        let (at, partition) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let lost = words.next().filter(|what| *what != "led").map(str::to_owned);
        Some(Change { at, member, partition, lost })
    })
}

/// What all members have written, by time.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<Change>);

impl Changes {
    pub(super) fn read<'a>(logs: impl Iterator<Item = (MemberId, &'a str)>) -> Self {
        let mut all: Vec<_> = logs.flat_map(|(member, log)| read(member, log)).collect();
        all.sort_by_key(|change| change.at);
        Changes(all)
    }

    /// Who leads which partition, as far as they have written. A killed member wrote nothing of its end.
    pub(super) fn leaders(&self) -> BTreeMap<u32, MemberId> {
        let mut leaders = BTreeMap::new();
        for change in &self.0 {
            match change.lost {
                None => {
                    leaders.insert(change.partition, change.member);
                }
                Some(_) if leaders.get(&change.partition) == Some(&change.member) => {
                    leaders.remove(&change.partition);
                }
                Some(_) => {}
            }
        }
        leaders
    }

    /// Whether so many partitions are led by these members, and nothing has changed since then.
    pub(super) fn is_quiet(&self, partitions: u32, among: &BTreeSet<MemberId>, since: u64) -> bool {
        let leaders = self.leaders();
        let all = leaders.len() as u32 == partitions;
        all && leaders.values().all(|leader| among.contains(leader))
            && self.0.last().is_none_or(|last| last.at < since)
    }

    /// Partitions that were led no more since then, though nobody had asked for them and nobody else led them next: they did not move, and a
    /// healthy leader has lost them.
    pub(super) fn lapses(&self, since: u64) -> Vec<Change> {
        let of = |change: &&Change| change.at >= since;
        let lapsed =
            self.0.iter().enumerate().filter(|(_, change)| of(change)).filter(|(_, one)| {
                matches!(one.lost.as_deref(), Some("lapsed" | "lost" | "fenced"))
            });
        let stayed = lapsed.filter(|(place, one)| {
            let next = self.0[place + 1..]
                .iter()
                .find(|next| next.partition == one.partition && next.lost.is_none());
            next.is_none_or(|next| next.member == one.member)
        });
        stayed.map(|(_, change)| change.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::identity::Term;
    use mandate_proto::neli::Partition;

    const P1: MemberId = MemberId::new(1);
    const P2: MemberId = MemberId::new(2);

    fn log(changes: &[(u64, u32, Option<RoleLoss>)]) -> String {
        let written = changes.iter().filter_map(|(at, partition, loss)| {
            let (partition, term) = (Partition::new(*partition), Some(Term::new(3)));
            line(
                *at,
                &match *loss {
                    None => Event::Acquired { partition, term },
                    Some(loss) => Event::Ended { partition, term, loss },
                },
            )
        });
        written.fold("a warning\n".to_owned(), |log, line| log + &line + "\n")
    }

    #[test]
    fn what_moved_is_no_lapse_and_what_came_back_to_its_leader_is() {
        let first = log(&[
            (1, 0, None),
            (1, 1, None),
            (5, 0, Some(RoleLoss::Lapsed)),
            (6, 1, Some(RoleLoss::Lapsed)),
            (8, 0, None),
            (20, 0, Some(RoleLoss::Revoked)),
        ]);
        let second = log(&[(9, 1, None), (21, 0, None)]);
        let changes = Changes::read([(P1, first.as_str()), (P2, second.as_str())].into_iter());
        let lapses = |since| {
            let found = changes.lapses(since).into_iter();
            found.map(|one| (one.at, one.member, one.partition)).collect::<Vec<_>>()
        };
        assert_eq!(lapses(0), [(5, P1, 0)], "1 moved, and 0 was revoked later");
        assert_eq!(lapses(6), []);
        assert_eq!(changes.leaders(), [(0, P2), (1, P2)].into());
        assert!(changes.is_quiet(2, &[P1, P2].into(), 22));
        assert!(!changes.is_quiet(2, &[P1, P2].into(), 21), "something has changed since");
        assert!(!changes.is_quiet(3, &[P1, P2].into(), 22), "one is not led");
        assert!(!changes.is_quiet(2, &[P1].into(), 22), "its leader is gone");
    }
}
