//! What was seen of the control row, and since when.

use super::config::{Config, Guarantee, MIN_ROUND};
use super::statement::{Control, Holder, Version};
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
}

/// We heard that the session of a leader had ended.
#[derive(Clone, Copy, Debug)]
struct Gone {
    term: Term,
    at: Instant,
    /// How many versions of its term were seen since.
    seen_since: u32,
}

/// Its last write may be seen after the hint, and one more that was under way. A leader that writes on has
/// lost a connection, and not its life.
const LAST_WRITES: u32 = 2;

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) row: Control,
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
    pub(super) before: Option<Control>,
    /// Whether it went back.
    pub(super) went_back: bool,
}

impl Gone {
    /// What is left of it when another version is seen.
    fn after(self, term: Term) -> Option<Self> {
        let seen_since = self.seen_since + 1;
        (term == self.term && seen_since <= LAST_WRITES).then_some(Gone { seen_since, ..self })
    }
}

impl Watch {
    pub(super) fn row(&self) -> Option<&Control> {
        self.seen.as_ref().map(|seen| &seen.row)
    }

    pub(super) fn seen(&self) -> Option<&Seen> {
        self.seen.as_ref()
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.row().map(|row| row.version)
    }

    /// The row is not there.
    pub(super) fn see_nothing(&mut self) {
        self.seen = None;
        self.has_looked = true;
    }

    /// The row as an answer showed it.
    pub(super) fn see(&mut self, row: Control, jitter: Duration, now: Instant) -> News {
        self.has_looked = true;
        self.highest = self.highest.max(row.version.term);
        let before = self.row().copied();
        let went_back = before.is_some_and(|before| row.version < before.version);
        let state = |row: &Control| (row.version, row.leader);
        match &mut self.seen {
            // Only what is written beside the version may have changed.
            Some(seen) if state(&seen.row) == state(&row) => seen.row = row,
            seen => {
                *seen = Some(Seen { row, since: now, jitter, went_back });
                self.gone = self.gone.and_then(|gone| gone.after(row.version.term));
            }
        }
        News { before, went_back }
    }

    /// The session of the leader of this term has ended. True if that is the one we know.
    pub(super) fn session_gone(&mut self, term: Term, now: Instant) -> bool {
        let is_known = self.row().is_some_and(|row| row.version.term == term);
        if is_known && self.gone.is_none() {
            self.gone = Some(Gone { term, at: now, seen_since: 0 });
        }
        is_known
    }

    /// Since when the leader is known to be gone, where that is enough.
    pub(super) fn gone_at(&self, config: &Config) -> Option<Instant> {
        let gone = self.gone?;
        (config.guarantee == Guarantee::Fenced).then_some(gone.at)
    }

    /// Time between heartbeats, as the leader has it.
    pub(super) fn round(&self, config: &Config) -> Duration {
        self.row().map_or(config.round, |row| row.published.round.max(MIN_ROUND))
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
        let until = self.gone_at(config).map_or(until, |gone| gone.min(until));
        Some((leader, seen.row.version.term, until))
    }
}
