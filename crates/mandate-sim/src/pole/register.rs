//! A register that checks terms: what makes `Fenced` safe to use.
//!
//! A member that thinks that it leads writes to it, with its term; writes take their time, and may come
//! after the leader was replaced. The register refuses a term lower than one it has accepted. Then
//! no two members may ever have their writes accepted under one term, nor any write of a leader
//! after one of its successor's: that is what is checked.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use mandate_proto::identity::Term;

use crate::fault::MemberName;
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::time::SimTime;

/// The register, and writes that are under way to it.
pub(crate) struct Register {
    random: Random,
    under_way: VecDeque<(SimTime, Term, HostIndex)>,
    accepted: Term,
    writers: BTreeMap<Term, HostIndex>,
    next: BTreeMap<HostIndex, SimTime>,
}

/// Time between the writes of a leader.
const EVERY: Duration = Duration::from_millis(20);

impl Register {
    /// The name under which it is reported.
    pub(crate) const NAME: &str = "a register that checks terms";

    /// An empty one.
    pub(crate) fn new(seed: u64) -> Self {
        Register {
            random: Random::new(seed, Stream::Register),
            under_way: VecDeque::new(),
            accepted: Term::NONE,
            writers: BTreeMap::new(),
            next: BTreeMap::new(),
        }
    }

    /// A member that thinks that it leads writes, now and then.
    pub(crate) fn write(&mut self, host: HostIndex, term: Term, now: SimTime) {
        if self.next.get(&host).is_none_or(|next| now >= *next) {
            self.next.insert(host, now + EVERY);
            let arrives = now + self.random.exponential(Duration::from_millis(200));
            self.under_way.push_back((arrives, term, host));
        }
    }

    /// Takes what has arrived.
    pub(crate) fn check(&mut self, now: SimTime) -> Result<(), String> {
        while let Some(place) = self.under_way.iter().position(|(at, _, _)| *at <= now) {
            let Some((_, term, host)) = self.under_way.remove(place) else { break };
            if term < self.accepted {
                continue;
            }
            self.accepted = term;
            let writer = *self.writers.entry(term).or_insert(host);
            if writer != host {
                let (one, other) = (MemberName(writer), MemberName(host));
                return Err(format!("{one} and {other} have both written under term {term}"));
            }
        }
        Ok(())
    }
}
