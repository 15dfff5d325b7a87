//! Whether to move etcd's leader now, or why not: pure, from what was seen.
//!
//! Whoever the sidecars have elected judges, and moves leadership *to its own member*: it knows best how that one is,
//! and there is one such sidecar in a term. It asks etcd's leader, which may be anywhere, also where no sidecar runs.
//!
//! etcd does not look whether the target of a move lives or has the log. If it does not, writes stop for an election
//! timeout, and the old leader resumes. So before a move both members are asked, just now, and have to agree on who
//! leads and in which term; and the target may be behind by no more than what is on its way.

use std::fmt;
use std::time::Duration;

use mandate_proto::time::Instant;

use crate::client::{EtcdId, Position};

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
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            fresh: Duration::from_secs(2),
            lag: 1000,
            settle: Duration::from_millis(500),
            pause: Duration::from_secs(5),
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
}

impl Judge {
    /// One that has moved nothing yet.
    pub fn new(settings: Settings) -> Self {
        Judge { settings, tried: None, failures: 0 }
    }

    /// What to do now.
    pub fn judge(&self, sight: &Sight) -> Verdict {
        match self.ready(sight) {
            Ok((from, to)) => Verdict::Move { from, to },
            Err(reason) => Verdict::Stay(reason),
        }
    }

    fn ready(&self, sight: &Sight) -> Result<(EtcdId, EtcdId), Reason> {
        let fresh = |seen: &&Seen| sight.now - seen.asked <= self.settings.fresh;
        let elected = sight.elected.ok_or(Reason::NotElected)?;
        let own = &sight.own.as_ref().filter(fresh).ok_or(Reason::OwnSilent)?.position;
        if let Some(unwell) = unwell(own) {
            return Err(unwell);
        }
        let leads = own.leader.ok_or(Reason::NoLeader)?;
        if leads == own.member {
            return Err(Reason::LeadsAlready);
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
    // An alarm (no space, corruption) is told here; that there is no leader is no fault of this member.
    let mut errors = position.errors.iter().filter(|error| !error.contains("no leader"));
    errors.next().map(|error| Reason::OwnUnwell(error.clone()))
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
        let alarm = |position: &mut Position| position.errors = vec!["NOSPACE".into()];
        assert_eq!(stays(|sight| own(sight, alarm)), Reason::OwnUnwell("NOSPACE".into()));
        assert_eq!(stays(|sight| own(sight, |it| it.is_learner = true)), Reason::OwnLearner);
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
