//! What was worked out once: the outcome of delivering a message to a member depends on nothing
//! else, and the same member and message meet in very many states of the group.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::host::{Host, Outcome};
use crate::keyed::Keyed;
use crate::network::Envelope;

/// Enough that two threads seldom wait for each other.
const SHARDS: usize = 64;

/// What came of a delivery, if anything did.
pub(crate) type Known<P, M> = Option<Arc<Outcome<P, M>>>;

type Shard<P, M> = Mutex<HashMap<u64, Known<P, M>, BuildHasherDefault<Mixed>>>;

/// Takes a key that is a hash already.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers")
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// Outcomes by the keys of what they depend on.
pub(crate) struct Memo<P, M> {
    shards: Vec<Shard<P, M>>,
}

impl<P, M> Default for Memo<P, M> {
    fn default() -> Self {
        Memo { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<P, M> Memo<P, M> {
    /// What comes of delivering that message to that member, which may depend on something
    /// `besides`.
    pub(crate) fn outcome(
        &self,
        host: &Keyed<Host<P, M>>,
        envelope: &Keyed<Envelope<M>>,
        besides: u64,
        work_out: impl FnOnce() -> Outcome<P, M>,
    ) -> Known<P, M> {
        let (a, b, c) = (host.key(), envelope.key(), besides);
        // The keys are hashes; multiplied, so that they do not cancel out.
        let key = (a ^ b.rotate_left(21).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ c.rotate_left(43))
            .wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let shard = &self.shards[(key >> 40) as usize % SHARDS];
        let mut known = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let work_out = || {
            let outcome = work_out();
            let is_nothing = !outcome.is_change_of(host) && outcome.sent.is_empty();
            (!is_nothing).then(|| Arc::new(outcome))
        };
        known.entry(key).or_insert_with(work_out).clone()
    }
}
