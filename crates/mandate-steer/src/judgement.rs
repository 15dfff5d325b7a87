//! Whether to move the system's leader now, or why not: pure, from what was seen.
//!
//! The sidecar that the others have elected judges, and moves leadership *to its own server*: it knows best how that one is,
//! and there is one such sidecar in a term. It asks the system's leader, which may be anywhere, also where no sidecar runs.
//!
//! A system may not look whether a move's target is alive or has the log (etcd does not). If it does not, writes stop for an
//! election timeout, and the old leader resumes. So before a move both servers are asked, just now, and have to agree on which one
//! leads and in which term; and the target may be behind by no more than what is on its way.
//!
//! Who moves leadership by hand has a reason. If it leaves the own member while that one is well, and etcd's term rises
//! by one, somebody else has moved it (or etcd has elected anew after a short cut, which looks the same): it is left
//! where it is for a while. An operator who wants more says so ([`Wishes`]).

use std::fmt;
use std::time::Duration;

use mandate_proto::time::Instant;

use crate::system::{Position, ServerId, Wishes};

/// When moves are made.
#[derive(Clone, Copy, Debug)]
pub struct SteerSettings {
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

impl Default for SteerSettings {
    fn default() -> Self {
        SteerSettings {
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

/// What a server said, and when it was asked.
#[derive(Clone, Debug)]
pub struct ServerReading {
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
    pub own: Option<ServerReading>,
    /// The last answer of the member that the own one takes for the leader.
    pub leader: Option<ServerReading>,
    /// What operators want.
    pub wishes: Wishes,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SteerDecision {
    /// Ask this member, which leads, to hand over to the own one.
    Move {
        /// Who leads.
        from: ServerId,
        /// Who shall.
        to: ServerId,
    },
    /// Nothing.
    Stay(IdleReason),
}

/// Why nothing is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdleReason {
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
    LeftAlone(ServerId),
    /// The system has no leader. It elects one by itself.
    NoLeader,
    /// The leader does not answer, or its last answer is too old.
    LeaderSilent(ServerId),
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

impl fmt::Display for IdleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleReason::NotElected => f.write_str("another member would serve better than the own one"),
            IdleReason::LeadsAlready => f.write_str("the best member leads"),
            IdleReason::OwnSilent => f.write_str("the own member does not answer"),
            IdleReason::OwnUnwell(what) => write!(f, "the own member is not well: {what}"),
            IdleReason::OwnLearner => f.write_str("the own member does not vote yet"),
            IdleReason::Drained => f.write_str(
                "the own member is drained by an operator: it is not to lead (`mandate steer resume` ends that)",
            ),
            IdleReason::NobodyWell => f.write_str("no member could lead better than the own one"),
            IdleReason::Held(why) => write!(
                f,
                "an operator holds leadership where it is ({why}); `mandate steer resume` ends that"
            ),
            IdleReason::LeftAlone(leader) => write!(
                f,
                "somebody else has moved leadership to {leader}: it is left there for a while (--respect). \
                 `mandate steer hold` or `drain` keeps it there for longer"
            ),
            IdleReason::NoLeader => f.write_str("there is no leader; the system elects one by itself"),
            IdleReason::LeaderSilent(leader) => write!(f, "the leader {leader} does not answer"),
            IdleReason::Unsettled => f.write_str("the members do not agree on who leads"),
            IdleReason::Behind { by } => write!(f, "the own member is {by} entries behind"),
            IdleReason::TooSoon => f.write_str("the last change was a moment ago"),
        }
    }
}

/// Judges, and remembers its moves.
#[derive(Clone, Debug)]
pub struct Judge {
    settings: SteerSettings,
    tried: Option<Instant>,
    failures: u32,
    /// the system's term in which the own server led when it was looked at last, if it did and was well.
    led: Option<u64>,
    /// Until when leadership is left where somebody else has moved it.
    respects: Option<Instant>,
}

impl Judge {
    /// One that has moved nothing yet.
    pub fn new(settings: SteerSettings) -> Self {
        Judge { settings, tried: None, failures: 0, led: None, respects: None }
    }

    /// What to do now.
    pub fn judge(&mut self, sight: &Sight) -> SteerDecision {
        let ready = self.ready(sight);
        if matches!(
            ready,
            Err(IdleReason::NotElected
                | IdleReason::OwnSilent
                | IdleReason::OwnUnwell(_)
                | IdleReason::OwnLearner)
        ) {
            self.led = None;
        }
        match ready {
            Ok((from, to)) => SteerDecision::Move { from, to },
            Err(reason) => SteerDecision::Stay(reason),
        }
    }

    /// Whether somebody else has moved leadership from the own member just now or a while ago.
    fn is_respected(&mut self, now: Instant, term: u64) -> bool {
        if self.led.take() == term.checked_sub(1) && term > 0 {
            self.respects = Some(now + self.settings.respect);
        }
        self.respects.is_some_and(|until| now < until)
    }

    fn ready(&mut self, sight: &Sight) -> Result<(ServerId, ServerId), IdleReason> {
        let lasts = self.settings.fresh;
        let fresh = |seen: &&ServerReading| sight.now - seen.asked <= lasts;
        let elected = sight.elected.ok_or(IdleReason::NotElected)?;
        let own = &sight.own.as_ref().filter(fresh).ok_or(IdleReason::OwnSilent)?.position;
        if let Some(unwell) = unwell(own) {
            return Err(unwell);
        }
        if sight.wishes.drained.contains(&own.server) {
            return Err(IdleReason::Drained);
        }
        let leads = own.leader.clone().ok_or(IdleReason::NoLeader)?;
        if leads == own.server {
            (self.led, self.respects) = (Some(own.term), None);
            return Err(IdleReason::LeadsAlready);
        }
        let is_respected = self.is_respected(sight.now, own.term);
        if let Some(why) = &sight.wishes.hold {
            return Err(IdleReason::Held(why.clone()));
        }
        // What is not to lead is left, no matter who has moved leadership there.
        if is_respected && !sight.wishes.drained.contains(&leads) {
            return Err(IdleReason::LeftAlone(leads));
        }
        let leader = sight.leader.as_ref().filter(fresh);
        let leader = &leader.ok_or_else(|| IdleReason::LeaderSilent(leads.clone()))?.position;
        let agrees = leader.server == leads && leader.leader.as_ref() == Some(&leads);
        if !agrees || leader.term != own.term {
            return Err(IdleReason::Unsettled);
        }
        let behind = leader.index.saturating_sub(own.index);
        if behind > self.settings.lag {
            return Err(IdleReason::Behind { by: behind });
        }
        let is_settled = sight.now - elected >= self.settings.settle;
        let has_waited = self.tried.is_none_or(|tried| sight.now - tried >= self.pause());
        if is_settled && has_waited {
            Ok((leads, own.server.clone()))
        } else {
            Err(IdleReason::TooSoon)
        }
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
pub fn unwell(position: &Position) -> Option<IdleReason> {
    if !position.votes {
        return Some(IdleReason::OwnLearner);
    }
    position.trouble.clone().map(IdleReason::OwnUnwell)
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

    fn id(name: &str) -> ServerId {
        ServerId::new(name)
    }

    fn me() -> ServerId {
        id("1")
    }

    fn leader() -> ServerId {
        id("2")
    }

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    fn seen(server: ServerId, leader: Option<ServerId>, index: u64) -> Option<ServerReading> {
        let position = Position { server, leader, term: 7, index, votes: true, trouble: None };
        Some(ServerReading { asked: at(99_900), position })
    }

    /// Everything speaks for a move.
    fn sight() -> Sight {
        Sight {
            now: at(100_000),
            elected: Some(at(0)),
            own: seen(me(), Some(leader()), 5000),
            leader: seen(leader(), Some(leader()), 5100),
            wishes: Wishes::default(),
        }
    }

    fn stays(change: impl FnOnce(&mut Sight)) -> IdleReason {
        let mut sight = sight();
        change(&mut sight);
        match Judge::new(SteerSettings::default()).judge(&sight) {
            SteerDecision::Stay(reason) => reason,
            SteerDecision::Move { .. } => panic!("moved with {sight:?}"),
        }
    }

    #[test]
    fn the_elected_member_takes_leadership_from_the_one_that_has_it() {
        let verdict = Judge::new(SteerSettings::default()).judge(&sight());
        assert_eq!(verdict, SteerDecision::Move { from: leader(), to: me() });
    }

    #[test]
    fn a_sidecar_that_is_not_elected_moves_nothing() {
        assert_eq!(stays(|sight| sight.elected = None), IdleReason::NotElected);
    }

    #[test]
    fn figures_that_are_not_fresh_move_nothing() {
        let old = |seen: &mut Option<ServerReading>| seen.as_mut().unwrap().asked = at(97_000);
        assert_eq!(stays(|sight| old(&mut sight.own)), IdleReason::OwnSilent);
        assert_eq!(stays(|sight| sight.own = None), IdleReason::OwnSilent);
        assert_eq!(stays(|sight| old(&mut sight.leader)), IdleReason::LeaderSilent(leader()));
        assert_eq!(stays(|sight| sight.leader = None), IdleReason::LeaderSilent(leader()));
    }

    #[test]
    fn a_member_that_lags_is_not_made_leader() {
        let reason = stays(|sight| sight.leader = seen(leader(), Some(leader()), 6001));
        assert_eq!(reason, IdleReason::Behind { by: 1001 });
    }

    #[test]
    fn a_member_that_complains_or_does_not_vote_is_not_made_leader() {
        let own = |sight: &mut Sight, change: fn(&mut Position)| {
            change(&mut sight.own.as_mut().unwrap().position);
        };
        let alarm = |position: &mut Position| position.trouble = Some("no space".into());
        let unwell = IdleReason::OwnUnwell("no space".into());
        assert_eq!(stays(|sight| own(sight, alarm)), unwell);
        assert_eq!(stays(|sight| own(sight, |it| it.votes = false)), IdleReason::OwnLearner);
    }

    #[test]
    fn what_an_operator_wants_is_done() {
        let hold = |sight: &mut Sight| sight.wishes.hold = Some("new disks".into());
        assert_eq!(stays(hold), IdleReason::Held("new disks".into()));
        let drain = |sight: &mut Sight| sight.wishes.drained.extend([me()]);
        assert_eq!(stays(drain), IdleReason::Drained);
    }

    /// At this time, with this leader in this term.
    fn later(now: u64, leader: ServerId, term: u64) -> Sight {
        let mut sight = sight();
        sight.now = at(now);
        sight.own = seen(me(), Some(leader.clone()), 5000);
        sight.leader = seen(leader.clone(), Some(leader), 5000);
        for seen in [&mut sight.own, &mut sight.leader].into_iter().flatten() {
            (seen.asked, seen.position.term) = (at(now), term);
        }
        sight
    }

    #[test]
    fn a_move_by_somebody_else_is_left_alone_for_a_while() {
        let mut judge = Judge::new(SteerSettings::default());
        let stay = |reason| SteerDecision::Stay(reason);
        assert_eq!(judge.judge(&later(100_000, me(), 7)), stay(IdleReason::LeadsAlready));
        for now in [100_500, 200_000, 400_000] {
            let left = judge.judge(&later(now, leader(), 8));
            assert_eq!(left, stay(IdleReason::LeftAlone(leader())), "at {now}");
        }
        let moved = SteerDecision::Move { from: leader(), to: me() };
        assert_eq!(judge.judge(&later(400_500, leader(), 8)), moved, "after five minutes");

        // Drained afterwards, the member to which it was moved is left.
        let mut judge = Judge::new(SteerSettings::default());
        judge.judge(&later(100_000, me(), 7));
        judge.judge(&later(100_500, leader(), 8));
        let mut drained = later(101_000, leader(), 8);
        drained.wishes.drained.insert(leader());
        assert_eq!(judge.judge(&drained), moved);
    }

    #[test]
    fn what_the_system_elects_itself_after_a_failure_is_not_left_alone() {
        let moved = SteerDecision::Move { from: leader(), to: me() };
        // The own member was silent in between.
        let mut judge = Judge::new(SteerSettings::default());
        judge.judge(&later(100_000, me(), 7));
        judge.judge(&Sight { own: None, ..later(101_000, leader(), 8) });
        assert_eq!(judge.judge(&later(102_000, leader(), 8)), moved);
        // It took several elections.
        let mut judge = Judge::new(SteerSettings::default());
        judge.judge(&later(100_000, me(), 7));
        assert_eq!(judge.judge(&later(101_000, leader(), 10)), moved);
        // This sidecar was not the elected one.
        let mut judge = Judge::new(SteerSettings::default());
        judge.judge(&later(100_000, me(), 7));
        judge.judge(&Sight { elected: None, ..later(100_500, me(), 7) });
        assert_eq!(judge.judge(&later(101_000, leader(), 8)), moved);
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
        assert_eq!(stays(|sight| sight.own = seen(me(), None, 5000)), IdleReason::NoLeader);
        assert_eq!(
            stays(|sight| sight.own = seen(me(), Some(me()), 5000)),
            IdleReason::LeadsAlready
        );
        let other =
            |follows| stays(|sight: &mut Sight| sight.leader = seen(leader(), follows, 5000));
        assert_eq!(other(None), IdleReason::Unsettled);
        assert_eq!(other(Some(id("3"))), IdleReason::Unsettled);
        let later = |sight: &mut Sight| sight.leader.as_mut().unwrap().position.term = 8;
        assert_eq!(stays(later), IdleReason::Unsettled);
        // The one that answers at that address is not the one that we asked for.
        assert_eq!(
            stays(|sight| sight.leader = seen(id("3"), Some(leader()), 5000)),
            IdleReason::Unsettled
        );
    }

    #[test]
    fn an_election_of_this_moment_has_to_settle() {
        assert_eq!(stays(|sight| sight.elected = Some(at(99_800))), IdleReason::TooSoon);
    }

    #[test]
    fn moves_that_fail_are_tried_again_later_and_later() {
        let mut judge = Judge::new(SteerSettings::default());
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
                judge.judge(&sight) == SteerDecision::Move { from: leader(), to: me() }
            });
            waits.push(first.unwrap());
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300, 300, 300]);
        judge.tried(at(100_000), true);
        assert_eq!(judge.pause(), Duration::from_secs(5));
    }
}
