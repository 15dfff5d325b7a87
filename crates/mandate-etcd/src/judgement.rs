//! Whether to move etcd's leader now, or why not: pure, from what was seen.
//!
//! Whoever the sidecars have elected judges, and moves leadership *to its own member*: it knows best how that one is,
//! and there is one such sidecar in a term. It asks etcd's leader, which may be anywhere, also where no sidecar runs.
//!
//! etcd does not look whether the target of a move lives or has the log. If it does not, writes stop for an election
//! timeout, and the old leader resumes. So before a move both members are asked, just now, and have to agree on who
//! leads and in which term; and the target may be behind by no more than what is on its way.
//!
//! Who moves leadership by hand has a reason. If it leaves the own member while that one is well, and etcd's term rises
//! by one, somebody else has moved it (or etcd has elected anew after a short cut, which looks the same): it is left
//! where it is for a while. An operator who wants more says so ([`Wishes`]).

use std::fmt;
use std::time::Duration;

use mandate_proto::time::Instant;

use crate::client::{EtcdId, Position};
use crate::wishes::Wishes;

/// When moves are made.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Answers that were asked for longer ago than this say nothing about now.
    pub fresh: Duration,
    /// By how many entries the target may be behind.
    pub lag: u64,
    /// For how long one must have been elected before it acts.
    pub settle: Duration,
    /// Between two moves, at least; after one that failed twice as long, and so on up to [`MOST_PAUSE`].
    pub pause: Duration,
    /// For how long leadership is left where somebody else has moved it.
    pub respect: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            fresh: Duration::from_secs(2),
            lag: 1000,
            settle: Duration::from_millis(500),
            pause: Duration::from_secs(5),
            respect: Duration::from_secs(300),
        }
    }
}

/// However often moves failed, one is tried again after this.
pub const MOST_PAUSE: Duration = Duration::from_secs(300);

/// What a member of etcd said, and when it was asked.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Before the question was sent.
    pub asked: Instant,
    /// The answer.
    pub position: Position,
}

/// What is known when a judgement is made.
#[derive(Clone, Debug)]
pub struct Sight {
    /// Now.
    pub now: Instant,
    /// Since when this sidecar holds the sidecars' mandate, if it does.
    pub elected: Option<Instant>,
    /// Its own member's last answer.
    pub own: Option<Seen>,
    /// The last answer of the member that the own one takes for the leader.
    pub leader: Option<Seen>,
    /// What operators want.
    pub wishes: Wishes,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ask this member, which leads, to hand over to the own one.
    Move {
        /// Who leads.
        from: EtcdId,
        /// Who shall.
        to: EtcdId,
    },
    /// Nothing.
    Stay(Reason),
}

/// Why nothing is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another sidecar's member is the best.
    NotElected,
    /// The best leads.
    LeadsAlready,
    /// The own member does not answer, or its last answer is too old.
    OwnSilent,
    /// The own member complains.
    OwnUnwell(String),
    /// The own member does not vote.
    OwnLearner,
    /// The own member is not to lead, an operator says.
    Drained,
    /// The own member cannot lead, and neither can any other: leading the sidecars is left where it is.
    NobodyWell,
    /// Leadership is to stay where it is, an operator says, and why.
    Held(String),
    /// Somebody else has moved leadership there.
    LeftAlone(EtcdId),
    /// etcd has no leader. It elects one by itself.
    NoLeader,
    /// The leader does not answer, or its last answer is too old.
    LeaderSilent(EtcdId),
    /// The leader says something else about who leads than the own member.
    Unsettled,
    /// The own member has not caught up.
    Behind {
        /// By so many entries.
        by: u64,
    },
    /// It is too soon.
    TooSoon,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NotElected => f.write_str("another member would serve better than the own one"),
            Reason::LeadsAlready => f.write_str("the best member leads"),
            Reason::OwnSilent => f.write_str("the own member does not answer"),
            Reason::OwnUnwell(what) => write!(f, "the own member is not well: {what}"),
            Reason::OwnLearner => f.write_str("the own member does not vote yet"),
            Reason::Drained => f.write_str(
                "the own member is drained by an operator: it is not to lead (`mandate steer resume` ends that)",
            ),
            Reason::NobodyWell => f.write_str("no member could lead better than the own one"),
            Reason::Held(why) => write!(
                f,
                "an operator holds leadership where it is ({why}); `mandate steer resume` ends that"
            ),
            Reason::LeftAlone(leader) => write!(
                f,
                "somebody else has moved leadership to {leader}: it is left there for a while (--respect). \
                 `mandate steer hold` or `drain` keeps it there for longer"
            ),
            Reason::NoLeader => f.write_str("etcd has no leader, and elects one by itself"),
            Reason::LeaderSilent(leader) => write!(f, "etcd's leader {leader} does not answer"),
            Reason::Unsettled => f.write_str("the members do not agree on who leads etcd"),
            Reason::Behind { by } => write!(f, "the own member is {by} entries behind"),
            Reason::TooSoon => f.write_str("the last change was a moment ago"),
        }
    }
}

/// Judges, and remembers its moves.
#[derive(Clone, Debug)]
pub struct Judge {
    settings: Settings,
    tried: Option<Instant>,
    failures: u32,
    /// etcd's term in which the own member led when it was looked at last, if it did and was well.
    led: Option<u64>,
    /// Until when leadership is left where somebody else has moved it.
    respects: Option<Instant>,
}

impl Judge {
    /// One that has moved nothing yet.
    pub fn new(settings: Settings) -> Self {
        Judge { settings, tried: None, failures: 0, led: None, respects: None }
    }

    /// What to do now.
    pub fn judge(&mut self, sight: &Sight) -> Verdict {
        let ready = self.ready(sight);
        if matches!(
            ready,
            Err(Reason::NotElected | Reason::OwnSilent | Reason::OwnUnwell(_) | Reason::OwnLearner)
        ) {
            self.led = None;
        }
        match ready {
            Ok((from, to)) => Verdict::Move { from, to },
            Err(reason) => Verdict::Stay(reason),
        }
    }

    /// Whether somebody else has moved leadership from the own member just now or a while ago.
    fn is_respected(&mut self, now: Instant, term: u64) -> bool {
        if self.led.take() == term.checked_sub(1) && term > 0 {
            self.respects = Some(now + self.settings.respect);
        }
        self.respects.is_some_and(|until| now < until)
    }

    fn ready(&mut self, sight: &Sight) -> Result<(EtcdId, EtcdId), Reason> {
        let lasts = self.settings.fresh;
        let fresh = |seen: &&Seen| sight.now - seen.asked <= lasts;
        let elected = sight.elected.ok_or(Reason::NotElected)?;
        let own = &sight.own.as_ref().filter(fresh).ok_or(Reason::OwnSilent)?.position;
        if let Some(unwell) = unwell(own) {
            return Err(unwell);
        }
        if sight.wishes.drained.contains(&own.member) {
            return Err(Reason::Drained);
        }
        let leads = own.leader.ok_or(Reason::NoLeader)?;
        if leads == own.member {
            (self.led, self.respects) = (Some(own.term), None);
            return Err(Reason::LeadsAlready);
        }
        let is_respected = self.is_respected(sight.now, own.term);
        if let Some(why) = &sight.wishes.hold {
            return Err(Reason::Held(why.clone()));
        }
        // What is not to lead is left, whoever has moved leadership there.
        if is_respected && !sight.wishes.drained.contains(&leads) {
            return Err(Reason::LeftAlone(leads));
        }
        let leader = sight.leader.as_ref().filter(fresh);
        let leader = &leader.ok_or(Reason::LeaderSilent(leads))?.position;
        if (leader.member, leader.leader) != (leads, Some(leads)) || leader.term != own.term {
            return Err(Reason::Unsettled);
        }
        let behind = leader.index.saturating_sub(own.index);
        if behind > self.settings.lag {
            return Err(Reason::Behind { by: behind });
        }
        let is_settled = sight.now - elected >= self.settings.settle;
        let has_waited = self.tried.is_none_or(|tried| sight.now - tried >= self.pause());
        if is_settled && has_waited { Ok((leads, own.member)) } else { Err(Reason::TooSoon) }
    }

    fn pause(&self) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.settings.pause.saturating_mul(factor).min(MOST_PAUSE.max(self.settings.pause))
    }

    /// A move was made, or came to nothing.
    pub fn tried(&mut self, now: Instant, succeeded: bool) {
        self.tried = Some(now);
        self.failures = if succeeded { 0 } else { (self.failures + 1).min(16) };
    }
}

/// Why a member cannot lead as it is, if it cannot.
pub fn unwell(position: &Position) -> Option<Reason> {
    if position.is_learner {
        return Some(Reason::OwnLearner);
    }
    let trouble = position.troubles().next();
    trouble.map(|trouble| Reason::OwnUnwell(trouble.to_owned()))
}

/// Gives the sidecars' leadership back, and not too often: where no other member is better, it comes back at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resignations {
    last: Option<Instant>,
    count: u32,
}

/// After the first resignation, at least this long until the next; then twice as long, and so on up to
/// [`MOST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);

impl Resignations {
    /// Whether it may be done now.
    pub fn may(&self, now: Instant) -> bool {
        let factor = 1_u32.checked_shl(self.count.saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = FIRST_PAUSE.saturating_mul(factor).min(MOST_PAUSE);
        self.last.is_none_or(|last| now - last >= pause)
    }

    /// It was done.
    pub fn made(&mut self, now: Instant) {
        (self.last, self.count) = (Some(now), (self.count + 1).min(16));
    }

    /// The own member is well: what comes after it is another story, once the last is long past.
    pub fn well(&mut self, now: Instant) {
        if self.may(now) {
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: EtcdId = EtcdId(1);
    const LEADER: EtcdId = EtcdId(2);

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    fn seen(member: EtcdId, leader: Option<EtcdId>, index: u64) -> Option<Seen> {
        let (term, applied, is_learner, errors) = (7, index, false, Vec::new());
        let position = Position { member, leader, term, index, applied, is_learner, errors };
        Some(Seen { asked: at(99_900), position })
    }

    /// Everything speaks for a move.
    fn sight() -> Sight {
        Sight {
            now: at(100_000),
            elected: Some(at(0)),
            own: seen(ME, Some(LEADER), 5000),
            leader: seen(LEADER, Some(LEADER), 5100),
            wishes: Wishes::default(),
        }
    }

    fn stays(change: impl FnOnce(&mut Sight)) -> Reason {
        let mut sight = sight();
        change(&mut sight);
        match Judge::new(Settings::default()).judge(&sight) {
            Verdict::Stay(reason) => reason,
            Verdict::Move { .. } => panic!("moved with {sight:?}"),
        }
    }

    #[test]
    fn the_elected_member_takes_leadership_from_whoever_has_it() {
        let verdict = Judge::new(Settings::default()).judge(&sight());
        assert_eq!(verdict, Verdict::Move { from: LEADER, to: ME });
    }

    #[test]
    fn whoever_is_not_elected_moves_nothing() {
        assert_eq!(stays(|sight| sight.elected = None), Reason::NotElected);
    }

    #[test]
    fn figures_that_are_not_fresh_move_nothing() {
        let old = |seen: &mut Option<Seen>| seen.as_mut().unwrap().asked = at(97_000);
        assert_eq!(stays(|sight| old(&mut sight.own)), Reason::OwnSilent);
        assert_eq!(stays(|sight| sight.own = None), Reason::OwnSilent);
        assert_eq!(stays(|sight| old(&mut sight.leader)), Reason::LeaderSilent(LEADER));
        assert_eq!(stays(|sight| sight.leader = None), Reason::LeaderSilent(LEADER));
    }

    #[test]
    fn a_member_that_lags_is_not_made_leader() {
        let reason = stays(|sight| sight.leader = seen(LEADER, Some(LEADER), 6001));
        assert_eq!(reason, Reason::Behind { by: 1001 });
    }

    #[test]
    fn a_member_that_complains_or_does_not_vote_is_not_made_leader() {
        let own = |sight: &mut Sight, change: fn(&mut Position)| {
            change(&mut sight.own.as_mut().unwrap().position);
        };
        let alarm =
            |position: &mut Position| position.errors = vec!["memberID:1 alarm:NOSPACE".into()];
        let unwell = Reason::OwnUnwell("memberID:1 alarm:NOSPACE".into());
        assert_eq!(stays(|sight| own(sight, alarm)), unwell);
        assert_eq!(stays(|sight| own(sight, |it| it.is_learner = true)), Reason::OwnLearner);
    }

    #[test]
    fn the_alarm_of_another_member_changes_nothing() {
        let mut sight = sight();
        let alarm = "memberID:3 alarm:NOSPACE".to_owned();
        sight.own.as_mut().unwrap().position.errors.push(alarm);
        let verdict = Judge::new(Settings::default()).judge(&sight);
        assert_eq!(verdict, Verdict::Move { from: LEADER, to: ME });
    }

    #[test]
    fn what_an_operator_wants_is_done() {
        let hold = |sight: &mut Sight| sight.wishes.hold = Some("new disks".into());
        assert_eq!(stays(hold), Reason::Held("new disks".into()));
        let drain = |sight: &mut Sight| sight.wishes.drained.extend([ME]);
        assert_eq!(stays(drain), Reason::Drained);
    }

    /// At this time, with this leader of etcd in this term.
    fn later(now: u64, leader: EtcdId, term: u64) -> Sight {
        let mut sight = sight();
        sight.now = at(now);
        sight.own = seen(ME, Some(leader), 5000);
        sight.leader = seen(leader, Some(leader), 5000);
        for seen in [&mut sight.own, &mut sight.leader].into_iter().flatten() {
            (seen.asked, seen.position.term) = (at(now), term);
        }
        sight
    }

    #[test]
    fn a_move_by_somebody_else_is_left_alone_for_a_while() {
        let mut judge = Judge::new(Settings::default());
        let stay = |reason| Verdict::Stay(reason);
        assert_eq!(judge.judge(&later(100_000, ME, 7)), stay(Reason::LeadsAlready));
        for now in [100_500, 200_000, 400_000] {
            let left = judge.judge(&later(now, LEADER, 8));
            assert_eq!(left, stay(Reason::LeftAlone(LEADER)), "at {now}");
        }
        let moved = Verdict::Move { from: LEADER, to: ME };
        assert_eq!(judge.judge(&later(400_500, LEADER, 8)), moved, "after five minutes");

        // Drained afterwards, the member to which it was moved is left.
        let mut judge = Judge::new(Settings::default());
        judge.judge(&later(100_000, ME, 7));
        judge.judge(&later(100_500, LEADER, 8));
        let mut drained = later(101_000, LEADER, 8);
        drained.wishes.drained.insert(LEADER);
        assert_eq!(judge.judge(&drained), moved);
    }

    #[test]
    fn what_etcd_elects_itself_after_a_failure_is_not_left_alone() {
        let moved = Verdict::Move { from: LEADER, to: ME };
        // The own member was silent in between.
        let mut judge = Judge::new(Settings::default());
        judge.judge(&later(100_000, ME, 7));
        judge.judge(&Sight { own: None, ..later(101_000, LEADER, 8) });
        assert_eq!(judge.judge(&later(102_000, LEADER, 8)), moved);
        // It took several elections.
        let mut judge = Judge::new(Settings::default());
        judge.judge(&later(100_000, ME, 7));
        assert_eq!(judge.judge(&later(101_000, LEADER, 10)), moved);
        // This sidecar was not the elected one.
        let mut judge = Judge::new(Settings::default());
        judge.judge(&later(100_000, ME, 7));
        judge.judge(&Sight { elected: None, ..later(100_500, ME, 7) });
        assert_eq!(judge.judge(&later(101_000, LEADER, 8)), moved);
    }

    #[test]
    fn resignations_that_change_nothing_become_rare() {
        let mut resignations = Resignations::default();
        let (mut now, mut made) = (0, Vec::new());
        while now < 1_000_000 {
            if resignations.may(at(now)) {
                resignations.made(at(now));
                made.push(now / 1000);
            }
            now += 100;
        }
        assert_eq!(made, [0, 2, 6, 14, 30, 62, 126, 254, 510, 810]);
        resignations.well(at(now));
        assert!(!resignations.may(at(now)), "well for a moment");
        resignations.well(at(now + 300_000));
        resignations.made(at(now + 300_000));
        assert!(resignations.may(at(now + 302_000)), "well again for long");
    }

    #[test]
    fn nothing_is_moved_while_members_do_not_agree_on_who_leads() {
        assert_eq!(stays(|sight| sight.own = seen(ME, None, 5000)), Reason::NoLeader);
        assert_eq!(stays(|sight| sight.own = seen(ME, Some(ME), 5000)), Reason::LeadsAlready);
        let other = |leader| stays(|sight: &mut Sight| sight.leader = seen(LEADER, leader, 5000));
        assert_eq!(other(None), Reason::Unsettled);
        assert_eq!(other(Some(EtcdId(3))), Reason::Unsettled);
        let later = |sight: &mut Sight| sight.leader.as_mut().unwrap().position.term = 8;
        assert_eq!(stays(later), Reason::Unsettled);
        // Whoever answers at that address is not whom we asked for.
        assert_eq!(
            stays(|sight| sight.leader = seen(EtcdId(3), Some(LEADER), 5000)),
            Reason::Unsettled
        );
    }

    #[test]
    fn an_election_of_this_moment_has_to_settle() {
        assert_eq!(stays(|sight| sight.elected = Some(at(99_800))), Reason::TooSoon);
    }

    #[test]
    fn moves_that_fail_are_tried_again_later_and_later() {
        let mut judge = Judge::new(Settings::default());
        let mut waits = Vec::new();
        for _ in 0..9 {
            judge.tried(at(100_000), false);
            let first = (0..2000).find(|second| {
                let mut sight = sight();
                let now = at(100_000 + second * 1000);
                for seen in [&mut sight.own, &mut sight.leader] {
                    seen.as_mut().unwrap().asked = now;
                }
                sight.now = now;
                judge.judge(&sight) == Verdict::Move { from: LEADER, to: ME }
            });
            waits.push(first.unwrap());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300, 300]);
        judge.tried(at(100_000), true);
        assert_eq!(judge.pause(), Duration::from_secs(5));
    }
}
