//! What was seen of the control row, and since when.
//!
//! A row can be lost: removed, restored from a backup, or gone with a standby that took over too early. What is lost with
//! it may be a lease that its leader still counts on, also one that this member never saw. So who sees that a row is gone,
//! went back, or was made again takes nothing over for the longest lease, whatever the row says.

use super::config::{Config, MIN_ROUND, SqlGuarantee};
use super::interface::Reason;
use super::statement::{ControlState, Holder, Version};
use crate::identity::{MemberId, Term};
use crate::time::Instant;
use core::time::Duration;

/// The control row, watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    seen: Option<Seen>,
    /// The highest term ever seen.
    pub(super) highest: Term,
    /// Whether the row was ever read, be it there or not.
    pub(super) has_looked: bool,
    /// The row is of another version of the protocol, or says what cannot be.
    pub(super) is_foreign: bool,
    gone: Option<Gone>,
    lost: Option<Lost>,
}

/// We heard that the session of a leader had ended.
#[derive(Clone, Copy, Debug)]
struct Gone {
    term: Term,
    at: Instant,
    /// How many versions of its term were seen since.
    seen_since: u32,
}

/// Writes of the row were lost.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Until when a lease among them may run.
    until: Instant,
    /// It went back from this. When that is there again, or what came of it, nothing was lost: an answer was stale. Not by
    /// its version alone: another leader may have come to the same term.
    from: Option<ControlState>,
}

/// Its last write may be seen after the hint, and one more that was under way. A leader that writes on has
/// lost a connection, but has not died.
const LAST_WRITES: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) row: ControlState,
    /// When the answer arrived that showed this version first.
    pub(super) since: Instant,
    /// How much longer than others we wait for our turn: by chance.
    pub(super) jitter: Duration,
    /// The row was a later one before: what it says of ourselves is not to be relied on.
    pub(super) went_back: bool,
}

/// What is new in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    /// What was seen before.
    pub(super) before: Option<ControlState>,
    /// Whether it went back.
    pub(super) went_back: bool,
    /// Whether it was lost and made again, and this is the first that we see of it.
    pub(super) was_remade: bool,
}

impl Gone {
    /// What is left of it when another version is seen.
    fn after(self, term: Term) -> Option<Self> {
        let seen_since = self.seen_since + 1;
        (term == self.term && seen_since <= LAST_WRITES).then_some(Gone { seen_since, ..self })
    }
}

/// Whether the protocol's own writes lead from one state of the row to another. Within a term the leader renews, and may
/// vacate the row; a term has no second leader.
fn leads_to(before: &ControlState, row: &ControlState) -> bool {
    let is_vacated = row.leader.is_none() && row.version > before.version;
    match row.version.term == before.version.term {
        true => row.version >= before.version && (row.leader == before.leader || is_vacated),
        false => row.version > before.version,
    }
}

/// Whether the row was made in a group that is not new: it begins with a term that somebody has had.
fn is_remade(row: &ControlState) -> bool {
    row.leader.is_none() && row.reason == Reason::First && row.version.term > Term::NONE
}

impl Watch {
    pub(super) fn row(&self) -> Option<&ControlState> {
        self.seen.as_ref().map(|seen| &seen.row)
    }

    pub(super) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.row().map(|row| row.version)
    }

    /// The row is not there. What was there before, if it was.
    pub(super) fn see_nothing(&mut self, config: &Config, now: Instant) -> Option<Version> {
        self.has_looked = true;
        self.gone = None;
        let before = self.seen.take()?;
        self.lose(before.row.published.lease, None, config, now);
        Some(before.row.version)
    }

    /// Writes were lost until now. Leases among them began before now, and none is longer than this.
    fn lose(&mut self, lease: Duration, from: Option<ControlState>, config: &Config, now: Instant) {
        let until = now + config.wait(lease.max(config.longest_lease()));
        let until = self.lost.map_or(until, |lost| lost.until.max(until));
        // Once a row was gone, no version that comes back shows that nothing was lost.
        let from = match (self.lost, from) {
            (Some(Lost { from: None, .. }), _) | (_, None) => None,
            (Some(Lost { from: Some(before), .. }), Some(from)) => match () {
                () if leads_to(&before, &from) => Some(from),
                () if leads_to(&from, &before) => Some(before),
                // Two states that no writes of ours connect: one of them was lost for certain.
                () => None,
            },
            (None, from) => from,
        };
        self.lost = Some(Lost { until, from });
    }

    /// Before when nothing is taken over, because a lease may have been lost with the row.
    pub(super) fn lost_until(&self) -> Option<Instant> {
        self.lost.map(|lost| lost.until)
    }

    /// The row as an answer showed it.
    pub(super) fn see(
        &mut self,
        row: ControlState,
        jitter: Duration,
        config: &Config,
        now: Instant,
    ) -> News {
        self.has_looked = true;
        self.highest = self.highest.max(row.version.term);
        let before = self.row().copied();
        let state = |row: &ControlState| (row.version, row.leader);
        let is_new = before.is_none_or(|before| state(&before) != state(&row));
        let went_back = before.is_some_and(|before| !leads_to(&before, &row));
        let was_remade = is_new && is_remade(&row);
        if self.lost.is_some_and(|lost| now >= lost.until) {
            self.lost = None;
        }
        if let Some(before) = before.filter(|_| went_back) {
            let lease = before.published.lease.max(row.published.lease);
            self.lose(lease, Some(before), config, now);
        } else if was_remade {
            self.lose(row.published.lease, None, config, now);
        } else if self.lost.and_then(|lost| lost.from).is_some_and(|from| leads_to(&from, &row)) {
            self.lost = None;
        }
        if is_new {
            self.seen = Some(Seen { row, since: now, jitter, went_back });
            self.gone = self.gone.and_then(|gone| gone.after(row.version.term));
        } else if let Some(seen) = &mut self.seen {
            // Only what is written beside the version may have changed.
            seen.row = row;
        }
        News { before, went_back, was_remade }
    }

    /// The session of the leader of this term has ended. True if that is the one we know.
    pub(super) fn session_gone(&mut self, term: Term, now: Instant) -> bool {
        let is_known = self.row().is_some_and(|row| row.version.term == term);
        if is_known && self.gone.is_none() {
            self.gone = Some(Gone { term, at: now, seen_since: 0 });
        }
        is_known
    }

    /// Since when the leader is known to be gone, where that is enough: for a leader that relies on terms alone.
    pub(super) fn gone_at(&self) -> Option<Instant> {
        let is_enough = self.row()?.published.guarantee == SqlGuarantee::Fenced;
        self.gone.filter(|_| is_enough).map(|gone| gone.at)
    }

    /// The leader whose guarantee is not ours, if there is one.
    pub(super) fn differs(&self, config: &Config) -> Option<(Holder, SqlGuarantee)> {
        let row = self.row()?;
        let theirs = row.published.guarantee;
        row.leader.filter(|_| theirs != config.guarantee).map(|leader| (leader, theirs))
    }

    /// Time between heartbeats, as the leader has it. One that is longer than our own can become is another's setting and
    /// not contention: then we go by our own.
    pub(super) fn round(&self, config: &Config) -> Duration {
        let Some(row) = self.row() else { return config.round };
        match row.published.round.max(MIN_ROUND) {
            round if round > config.max_round => config.round,
            round => round,
        }
    }

    /// The place of a member among the successors.
    pub(super) fn rank_of(&self, member: MemberId) -> Option<usize> {
        let row = self.row()?;
        match row.preferred {
            Some(preferred) => (preferred == member).then_some(0),
            None => row.published.successors.rank_of(member),
        }
    }

    /// Who leads, in which term, and until when that can be believed.
    pub(super) fn leader_until(&self, config: &Config) -> Option<(Holder, Term, Instant)> {
        let seen = self.seen.as_ref().filter(|_| !self.is_foreign)?;
        let leader = seen.row.leader?;
        let until = seen.since + config.wait(seen.row.published.lease);
        let until = self.gone_at().map_or(until, |gone| gone.min(until));
        Some((leader, seen.row.version.term, until))
    }
}
