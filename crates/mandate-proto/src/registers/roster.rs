//! Whom the leader knows to live, whom to evict, and who is to succeed it.
//!
//! Eviction decides nothing about who may lead, unlike in the paper: it keeps the list of successors and
//! the spread of roles to those who live. So it may take its time, and does:
//!
//! - A member is evicted when its counter stood still for more rounds than it may miss, as seen by sweeps:
//!   between two sweeps no more than a round is counted, however long the leader could not look. A
//!   database that stood still for an hour has cost nobody more than one round.
//! - When most members seem dead at once, it is rather the database that was: they get twice the time.
//! - The statement names the counter that stood still. Who has beaten since stays.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::config::MAX_MEMBERS;
use super::statement::{Holder, MAX_SUCCESSORS, MemberRow, Successors};
use crate::identity::MemberId;
use crate::score::Score;
use crate::time::Instant;

#[derive(Clone, Debug)]
struct Seen {
    row: MemberRow,
    /// For how long its counter has stood still while we looked.
    still: Duration,
    /// It has beaten, or joined, since we began to look.
    is_alive: bool,
}

/// The leader's table of members.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    members: BTreeMap<MemberId, Seen>,
    /// When the first sweep was answered,
    first: Option<Instant>,
    /// and the last.
    last: Option<Instant>,
    /// Rows to remove, with the counters that stood still.
    pub(super) due: VecDeque<(Holder, u64)>,
    /// Who was removed last, and has not come back.
    gone: VecDeque<MemberId>,
}

/// So many of those that were removed are remembered.
const GONE: usize = 64;

impl Roster {
    /// Takes the rows of a sweep. True if someone has had to join again: a sign of contention.
    pub(super) fn swept(
        &mut self,
        rows: Vec<MemberRow>,
        me: MemberId,
        (round, missed): (Duration, u32),
        now: Instant,
    ) -> bool {
        let looked = self.last.replace(now);
        self.first.get_or_insert(now);
        let counted = looked.map_or(Duration::ZERO, |last| (now - last).min(round));
        let mut contended = false;
        let mut members = BTreeMap::new();
        for row in rows.into_iter().take(MAX_MEMBERS) {
            let before = self.members.get(&row.holder.member);
            let same = before.filter(|seen| seen.row.holder == row.holder);
            contended |= looked.is_some() && same.is_none() && row.was_evicted;
            let unmoved = same.filter(|seen| seen.row.counter == row.counter);
            let still = unmoved.map_or(Duration::ZERO, |seen| seen.still + counted);
            let is_alive = match unmoved {
                Some(seen) => seen.is_alive,
                None => looked.is_some(),
            };
            members.insert(row.holder.member, Seen { row, still, is_alive });
        }
        self.gone.retain(|id| !members.contains_key(id));
        self.members = members;
        self.find_due(me, round.saturating_mul(missed));
        contended
    }

    fn find_due(&mut self, me: MemberId, allowed: Duration) {
        let others = || self.members.values().filter(|seen| seen.row.holder.member != me);
        let silent = others().filter(|seen| seen.still > allowed).count();
        // One of two is no crowd.
        let is_crowd = silent > 1 && silent * 2 > others().count();
        let allowed = if is_crowd { allowed.saturating_mul(2) } else { allowed };
        let due = others().filter(|seen| seen.still > allowed);
        self.due = due.map(|seen| (seen.row.holder, seen.row.counter)).collect();
    }

    /// A member was removed.
    pub(super) fn removed(&mut self, holder: Holder) {
        if self.members.get(&holder.member).is_some_and(|seen| seen.row.holder == holder) {
            self.members.remove(&holder.member);
            self.gone.truncate(GONE - 1);
            self.gone.push_front(holder.member);
        }
    }

    /// Those that are silent: about to be removed, or removed and not back.
    pub(super) fn suspected(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.due.iter().map(|(holder, _)| holder.member).chain(self.gone.iter().copied())
    }

    /// Whether a member is there; `None` if we have not looked yet.
    pub(super) fn has(&self, member: MemberId) -> Option<bool> {
        self.last.map(|_| self.members.contains_key(&member))
    }

    /// All that are there and may lead, in order.
    pub(super) fn candidates(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.members.values().filter(|s| s.row.score.is_some()).map(|s| s.row.holder.member)
    }

    /// Whether to look again before the round is over: it is our first, and of those who could succeed us fewer have
    /// given a sign of life than there are places. A leader that dies young should have named someone who is alive.
    pub(super) fn looks_again(&self, me: MemberId, round: Duration) -> bool {
        let is_young = self.first.zip(self.last).is_none_or(|(first, last)| last - first < round);
        let others = self.members.values().filter(|seen| seen.row.holder.member != me);
        let others = others.filter(|seen| seen.row.score.is_some());
        let (living, all) = others
            .fold((0, 0), |(living, all), seen| (living + usize::from(seen.is_alive), all + 1));
        is_young && living < all.min(MAX_SUCCESSORS)
    }

    /// The best of the living: by score, then by how long they have been there. Who is a successor
    /// already stays in its place unless another is better by `threshold`.
    ///
    /// A row may be that of a leader that has just died, and the eldest of all. So those come first that have given a
    /// sign of life, or that the leader before has named; others only where there is nobody else, and of those the
    /// youngest first: the dead are rather among the elder.
    pub(super) fn successors(
        &self,
        me: MemberId,
        before: &Successors,
        (threshold, round): (f64, Duration),
    ) -> Successors {
        let lives = |seen: &Seen| seen.is_alive || before.rank_of(seen.row.holder.member).is_some();
        let candidates = || {
            self.members.values().filter(|seen| {
                let is_other = seen.row.holder.member != me;
                is_other && seen.still <= round && seen.row.score.is_some()
            })
        };
        let some_live = candidates().any(lives);
        let mut left: Vec<(Score, &MemberRow)> = candidates()
            .filter(|seen| !some_live || lives(seen))
            .filter_map(|seen| Some((seen.row.score?, &seen.row)))
            .collect();
        let mut chosen = Vec::new();
        for place in 0..MAX_SUCCESSORS {
            let age = |row: &MemberRow| (row.holder.incarnation, row.holder.member);
            let best = if some_live {
                left.iter().max_by_key(|(score, row)| (*score, Reverse(age(row))))
            } else {
                left.iter().max_by_key(|(score, row)| (*score, age(row)))
            };
            let Some((best_score, best)) = best.copied() else { break };
            let incumbent = before.iter().nth(place);
            let incumbent = left.iter().find(|(_, row)| Some(row.holder.member) == incumbent);
            let stays = incumbent.filter(|(score, _)| !is_better(&best_score, score, threshold));
            let pick = stays.map_or(best.holder.member, |(_, row)| row.holder.member);
            chosen.push(pick);
            left.retain(|(_, row)| row.holder.member != pick);
        }
        chosen.into_iter().collect()
    }
}

/// Whether a score is better than another by more than a share, in the component that decides.
fn is_better(score: &Score, than: &Score, threshold: f64) -> bool {
    let Some(place) = score.decided_against(than).filter(|_| score > than) else { return false };
    match (score.components().get(place), than.components().get(place)) {
        (Some(a), Some(b)) => a - b > threshold * libm::fmax(libm::fabs(*a), libm::fabs(*b)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::statement::StayId;

    const ROUND: Duration = Duration::from_secs(2);
    const ME: MemberId = MemberId::new(1);

    fn row(id: u32, counter: u64, score: f64) -> MemberRow {
        let incarnation = StayId::new(u64::from(id));
        let holder = Holder { member: MemberId::new(id), incarnation };
        let score = Some(Score::new(&[score]).unwrap());
        MemberRow { holder, counter, score, was_evicted: false }
    }

    fn rows(counters: &[u64]) -> Vec<MemberRow> {
        counters.iter().zip(1..).map(|(counter, id)| row(id, *counter, 1.0)).collect()
    }

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    fn due(roster: &Roster) -> Vec<u32> {
        roster.due.iter().map(|(holder, _)| holder.member.get()).collect()
    }

    /// Section 4.2: a process that fails to update its counter in more rounds than allowed.
    #[test]
    fn who_misses_more_rounds_than_allowed_is_evicted_by_the_counter_that_stood_still() {
        let mut roster = Roster::default();
        for round in 0..4u64 {
            assert_eq!(due(&roster), [0; 0], "before round {round}");
            roster.swept(rows(&[0, 7, round]), ME, (ROUND, 2), at(round * 2000));
        }
        let (holder, counter) = roster.due[0];
        assert_eq!((due(&roster), counter), ([2].into(), 7));
        let suspected = |roster: &Roster| roster.suspected().map(MemberId::get).collect::<Vec<_>>();
        assert_eq!(suspected(&roster), [2]);
        roster.removed(holder);
        roster.due.clear();
        assert_eq!(roster.has(holder.member), Some(false));
        assert_eq!(suspected(&roster), [2], "until it is back");
        roster.swept(rows(&[0, 8, 4]), ME, (ROUND, 2), at(8000));
        assert_eq!(suspected(&roster), [0; 0]);
    }

    #[test]
    fn time_in_which_the_leader_could_not_look_counts_as_one_round() {
        let mut roster = Roster::default();
        roster.swept(rows(&[0, 7, 7]), ME, (ROUND, 2), at(0));
        roster.swept(rows(&[0, 7, 7]), ME, (ROUND, 2), at(3_600_000));
        assert_eq!(due(&roster), [0; 0]);
    }

    #[test]
    fn a_crowd_that_stands_still_gets_twice_the_time() {
        let mut roster = Roster::default();
        for round in 0..5 {
            roster.swept(rows(&[0, 7, 7, round]), ME, (ROUND, 2), at(round * 2000));
            assert_eq!(due(&roster), [0; 0], "round {round}");
        }
        roster.swept(rows(&[0, 7, 7, 9]), ME, (ROUND, 2), at(10_000));
        assert_eq!(due(&roster), [2, 3]);
    }

    #[test]
    fn who_joined_again_because_it_was_evicted_is_a_sign_of_contention_once() {
        let mut roster = Roster::default();
        let mut again = row(2, 0, 1.0);
        again.was_evicted = true;
        assert!(!roster.swept([again].into(), ME, (ROUND, 2), at(0)), "of another's reign");
        again.holder.incarnation = StayId::new(9);
        assert!(roster.swept([again].into(), ME, (ROUND, 2), at(2000)));
        assert!(!roster.swept([again].into(), ME, (ROUND, 2), at(4000)));
    }

    /// Of members that all live.
    fn successors(scores: &[f64], before: &Successors) -> Successors {
        let mut roster = Roster::default();
        for counter in 0..2 {
            let rows = scores.iter().zip(1..).map(|(score, id)| row(id, counter, *score));
            roster.swept(rows.collect(), ME, (ROUND, 2), at(counter * 2000));
        }
        roster.successors(ME, before, (0.1, ROUND))
    }

    #[test]
    fn the_best_of_the_living_come_first_and_of_equals_the_eldest() {
        let ids = |s: Successors| s.iter().map(MemberId::get).collect::<Vec<_>>();
        let none = Successors::default();
        assert_eq!(ids(successors(&[9.0, 1.0, 5.0, 1.0], &none)), [3, 2, 4], "and never itself");
        let mut again = row(2, 1, 1.0);
        again.holder.incarnation = StayId::new(9);
        let mut roster = Roster::default();
        for counter in 0..2 {
            let rows = [row(1, counter, 1.0), MemberRow { counter, ..again }, row(3, counter, 1.0)];
            roster.swept(rows.into(), ME, (ROUND, 2), at(counter * 2000));
        }
        let chosen = ids(roster.successors(ME, &none, (0.1, ROUND)));
        assert_eq!(chosen, [3, 2], "p2 has come back, and is the youngest");
    }

    #[test]
    fn who_has_given_no_sign_of_life_comes_only_where_there_is_nobody_else() {
        let ids = |s: Successors| s.iter().map(MemberId::get).collect::<Vec<_>>();
        let mut roster = Roster::default();
        // The second is the eldest, and died just before we took over; the third was named by the leader before.
        roster.swept(rows(&[0, 7, 7, 7]), ME, (ROUND, 2), at(0));
        let named = [MemberId::new(3)].into_iter().collect();
        assert_eq!(ids(roster.successors(ME, &named, (0.1, ROUND))), [3]);
        let nobody = Successors::default();
        let chosen = ids(roster.successors(ME, &nobody, (0.1, ROUND)));
        assert_eq!(chosen, [4, 3, 2], "the youngest, of those of whom nothing is known");
        assert!(roster.looks_again(ME, ROUND));
        roster.swept(rows(&[0, 7, 8, 8]), ME, (ROUND, 2), at(500));
        assert_eq!(ids(roster.successors(ME, &named, (0.1, ROUND))), [3, 4]);
        assert!(roster.looks_again(ME, ROUND), "there are three places");
        roster.swept(rows(&[0, 8, 8, 8]), ME, (ROUND, 2), at(1000));
        assert!(!roster.looks_again(ME, ROUND));
        roster.swept(rows(&[0, 8, 8, 8, 3]), ME, (ROUND, 2), at(3000));
        assert!(!roster.looks_again(ME, ROUND));
    }

    #[test]
    fn who_never_gives_a_sign_of_life_is_looked_for_in_the_first_round_only() {
        let mut roster = Roster::default();
        for ms in [0, 500, 1000, 1500] {
            roster.swept(rows(&[0, 7]), ME, (ROUND, 2), at(ms));
            assert!(roster.looks_again(ME, ROUND), "after {ms} ms");
        }
        roster.swept(rows(&[0, 7]), ME, (ROUND, 2), at(2000));
        assert!(!roster.looks_again(ME, ROUND));
    }

    #[test]
    fn near_equals_do_not_change_places_and_clearly_better_ones_do() {
        let before = [2, 3].map(MemberId::new).into_iter().collect();
        assert_eq!(successors(&[0.0, 100.0, 105.0], &before), before);
        let ids: Vec<_> = successors(&[0.0, 100.0, 120.0], &before).iter().collect();
        assert_eq!(ids, [3, 2].map(MemberId::new));
    }
}
