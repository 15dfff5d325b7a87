//! The value that a leader publishes with its term.
//!
//! The leader sends it to everyone when it is published, and again with each answer to the ping of a member that has not said
//! that it has it: in the same incarnation, since memory is all that keeps it. A member keeps the latest that it heard and shows
//! it only while it follows that very leader in that very term. So a value that overtakes the leader's first
//! heartbeat is not lost, one that comes late is not shown, and an old one is gone the moment that another is followed.
//!
//! Nothing is sent, and no message is longer than before, while nobody publishes anything.
//!
//! Bounded: one value heard, one of our own, one entry for each member that has taken it.

use alloc::collections::BTreeMap;

use super::{Effect, Event, Member, Message, Phase};
use crate::election::State;
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::pole::installation::Safeguard;
use crate::time::Instant;
use crate::value::Value;

/// What a leader has published in its term.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Publication {
    by: MemberId,
    term: Term,
    /// Rises with every value that a member publishes in one incarnation.
    revision: u64,
    value: Value,
}

impl Publication {
    /// Whether it comes after another. A term has one leader; if another publishes in it, what came last counts.
    fn follows(&self, other: &Publication) -> bool {
        let is_later = (self.term, self.revision) > (other.term, other.revision);
        is_later || self.term == other.term && self.by != other.by
    }
}

/// What this member has published, and what it has heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    own: Option<Publication>,
    heard: Option<Publication>,
    /// Who has taken which revision of ours, and in which incarnation.
    taken: BTreeMap<MemberId, (u64, Incarnation)>,
    revision: u64,
    /// What the application was told last, with the leader of now.
    told: Option<u64>,
}

impl Member {
    /// What the leader of now has published with its term.
    pub fn value(&self) -> Option<&Value> {
        self.publication().map(|it| &it.value)
    }

    fn publication(&self) -> Option<&Publication> {
        let (kept, by, term) = match self.state() {
            State::Electing => return None,
            State::Leading { term } => (&self.values.own, self.config.me, term),
            State::Following { leader, term } => (&self.values.heard, leader, term),
        };
        let is_theirs = |it: &&Publication| (it.by, it.term) == (by, term);
        kept.as_ref().filter(|it| is_theirs(it) || !self.keeps(Safeguard::ValueOfTerm))
    }

    /// Publishes a value, if this member holds a term.
    pub(super) fn publish(&mut self, value: Value, now: Instant, effects: &mut Effects<Effect>) {
        let Phase::Leading { term } = self.phase else { return };
        if self.mandate(now).is_none_or(|(held, _)| held != term) {
            return;
        }
        let by = self.config.me;
        let same = |it: &Publication| (it.by, it.term, &it.value) == (by, term, &value);
        if self.values.own.as_ref().is_some_and(same) {
            return;
        }
        self.values.revision += 1;
        let own = Publication { by, term, revision: self.values.revision, value };
        let Publication { revision, value, .. } = own.clone();
        self.values.own = Some(own);
        self.tell_value(effects);
        effects.push(Effect::Broadcast(Message::Value { term, revision, value }));
    }

    /// A term begins with the value that is configured, if one is.
    pub(super) fn publish_first(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if let Some(value) = self.config.value.clone() {
            self.publish(value, now, effects);
        }
    }

    /// A leader says what it has published.
    pub(super) fn receive_value(
        &mut self,
        by: MemberId,
        (term, revision, value): (Term, u64, Value),
        effects: &mut Effects<Effect>,
    ) {
        if !term.is_plausible_after(self.installation.highest()) {
            return;
        }
        let heard = Publication { by, term, revision, value };
        let known = self.values.heard.as_ref();
        let is_news = known.is_none_or(|known| heard.follows(known));
        if !is_news && known != Some(&heard) {
            return;
        }
        effects.push(Effect::Send {
            to: by,
            message: Message::ValueTaken { term, revision, life: self.incarnation },
        });
        if is_news {
            self.values.heard = Some(heard);
            self.tell_value(effects);
        }
    }

    /// A member has taken what we published.
    pub(super) fn value_taken(
        &mut self,
        by: MemberId,
        (term, revision, incarnation): (Term, u64, Incarnation),
    ) {
        let own = self.values.own.as_ref();
        if own.is_some_and(|own| (own.term, own.revision) == (term, revision)) {
            self.values.taken.insert(by, (revision, incarnation));
        }
    }

    /// A member in this incarnation has answered: it gets the value if it has not said that it has it.
    pub(super) fn repeat_value(
        &self,
        to: MemberId,
        incarnation: Incarnation,
        effects: &mut Effects<Effect>,
    ) {
        if !matches!(self.phase, Phase::Leading { .. }) {
            return;
        }
        let Some(Publication { term, revision, value, .. }) = self.publication() else { return };
        if self.values.taken.get(&to) != Some(&(*revision, incarnation)) {
            let (term, revision, value) = (*term, *revision, value.clone());
            effects.push(Effect::Send { to, message: Message::Value { term, revision, value } });
        }
    }

    /// Who leads has changed: what was told of the former one's value counts for nothing.
    pub(super) fn tell_value_anew(&mut self, effects: &mut Effects<Effect>) {
        self.values.told = None;
        self.tell_value(effects);
    }

    fn tell_value(&mut self, effects: &mut Effects<Effect>) {
        let (leader, term) = match self.state() {
            State::Electing => return,
            State::Leading { term } => (self.config.me, term),
            State::Following { leader, term } => (leader, term),
        };
        let Some(Publication { revision, value, .. }) = self.publication() else { return };
        let (revision, value) = (*revision, value.clone());
        if self.values.told.replace(revision) != Some(revision) {
            effects.push(Effect::Tell(Event::Published { leader, term, value }));
        }
    }
}
