//! The network: the set of all that was ever sent.
//!
//! Nothing is taken from it. Whatever is in it may arrive at any time from then on: never (it is
//! lost), once, or again and again, and in any order. That is more than any real network does, and
//! a smaller space than a network that forgets: there is no difference between a message that was
//! lost, one that has done its work and one that is still under way.

use core::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use mandate_proto::identity::MemberId;

use crate::keyed::Keyed;

/// A message and its way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Envelope<M> {
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
    pub(crate) message: M,
}

impl<M: fmt::Debug> fmt::Debug for Envelope<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}: {:?}", self.from, self.to, self.message)
    }
}

/// What was sent, in the order of its keys: two networks with the same content are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network<M> {
    /// The sum of the keys of what was sent.
    key: u64,
    sent: Arc<Vec<Keyed<Envelope<M>>>>,
}

impl<M> Hash for Network<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key);
    }
}

impl<M: Clone + Eq + Hash> Network<M> {
    pub(crate) fn new() -> Self {
        Network { key: 0, sent: Arc::default() }
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// Sends; what was sent before is there already.
    pub(crate) fn send(&mut self, envelopes: &[Keyed<Envelope<M>>]) {
        for envelope in envelopes {
            if let Err(place) = find(&self.sent, envelope) {
                self.key = self.key.wrapping_add(envelope.key());
                Arc::make_mut(&mut self.sent).insert(place, envelope.clone());
            }
        }
    }

    /// Takes out what can never matter again.
    pub(crate) fn retain(&mut self, matters: impl Fn(&Envelope<M>) -> bool) {
        if !self.sent.iter().all(|envelope| matters(envelope)) {
            Arc::make_mut(&mut self.sent).retain(|envelope| matters(envelope));
            self.key = self.sent.iter().fold(0, |sum, envelope| sum.wrapping_add(envelope.key()));
        }
    }

    /// Whether this was sent.
    pub(crate) fn contains(&self, envelope: &Keyed<Envelope<M>>) -> bool {
        find(&self.sent, envelope).is_ok()
    }

    /// All that may arrive.
    pub(crate) fn sent(&self) -> &[Keyed<Envelope<M>>] {
        &self.sent
    }
}

/// Its place, or where it belongs.
fn find<M>(sent: &[Keyed<Envelope<M>>], envelope: &Keyed<Envelope<M>>) -> Result<usize, usize> {
    sent.binary_search_by_key(&envelope.key(), |other| other.key())
}
