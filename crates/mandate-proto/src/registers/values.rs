//! The value that a leader publishes with its term: beside the version in the control row, with the term that it belongs to.
//!
//! A takeover writes the value that is configured; what is published later is written with the next renewal, which comes at
//! once, and again until a renewal that carries it was acknowledged. Both name the version that they replace, so a value that
//! a deposed leader publishes finds no row. A value whose term is not that of the row is of an earlier leader, whose
//! successor published nothing, or is of a version that does not know the column: it is shown to nobody.

use super::{Effect, Event, Fx, Member};
use crate::election::State;
use crate::identity::{MemberId, Term};
use crate::time::Instant;
use crate::value::Value;

/// What is in the row, and what is to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    /// What the row shows, and of which term it is.
    seen: Option<(Term, Value)>,
    /// What this member has published, and no write was acknowledged that carries it.
    unwritten: Option<(Term, Value)>,
    /// What the application was told, with the leader of now.
    told: Option<Value>,
}

impl Values {
    /// The row shows this.
    pub(super) fn see(&mut self, value: Option<(Term, Value)>) {
        self.seen = value;
    }

    /// What a renewal of this term has to write.
    pub(super) fn unwritten(&self, of: Term) -> Option<Value> {
        self.unwritten.as_ref().filter(|(term, _)| *term == of).map(|(_, value)| value.clone())
    }

    /// A renewal of this term was acknowledged, and carried this.
    pub(super) fn written(&mut self, of: Term, value: Option<&Value>) {
        if self.unwritten.as_ref().is_some_and(|(term, it)| *term == of && Some(it) == value) {
            self.unwritten = None;
        }
    }

    /// Who leads has changed.
    pub(super) fn forget_told(&mut self) {
        self.told = None;
    }
}

impl Member {
    /// What the leader of now has published with its term, as this member last told who leads.
    pub fn value(&self) -> Option<&Value> {
        let (_, of) = self.leads_as_told()?;
        self.values.seen.as_ref().filter(|(term, _)| *term == of).map(|(_, value)| value)
    }

    fn leads_as_told(&self) -> Option<(MemberId, Term)> {
        match self.told {
            State::Electing => None,
            State::Leading { term } => Some((self.config.me, term)),
            State::Following { leader, term } => Some((leader, term)),
        }
    }

    /// Publishes a value, if this member holds a term: with a renewal, at once.
    pub(super) fn publish(&mut self, value: Value, now: Instant) {
        let Some((term, _)) = self.mandate(now) else { return };
        self.values.unwritten = Some((term, value));
        if let Some(claim) = &mut self.claim {
            claim.next = claim.next.min(now);
        }
    }

    pub(super) fn tell_value(&mut self, effects: &mut Fx) {
        let (Some((leader, term)), Some(value)) = (self.leads_as_told(), self.value().cloned())
        else {
            return;
        };
        if self.values.told.replace(value.clone()).as_ref() != Some(&value) {
            effects.push(Effect::Tell(Event::Published { leader, term, value }));
        }
    }
}
