//! What is watched of a run.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Event, Holding, Loss, Partition};

use super::Node;
use crate::fault::Name;
use crate::network::HostIndex;
use crate::pole::register::Register;
use crate::subject::{Moment, Observation, Observer};
use crate::time::SimTime;
use crate::trace::Trace;
use crate::verdict::Violation;

/// Reported when two hold one role at once.
pub(super) const ONE_HOLDER: &str = "one holder at a time";
/// Reported when a term is not above all that were held before.
pub(super) const TERMS_RISE: &str = "terms rise";

/// Watches a run.
pub(super) struct Watch<'a> {
    trace: Option<Trace<'a>>,
    /// How often a partition was acquired.
    pub(super) reigns: u64,
    /// What was led no more, by whom and why.
    pub(super) ended: Vec<(HostIndex, Partition, Loss)>,
    pub(super) violation: Option<Violation>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(trace: Option<Trace<'a>>) -> Self {
        Watch { trace, reigns: 0, ended: Vec::new(), violation: None }
    }

    pub(super) fn fail(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Correctness { invariant, what });
    }

    pub(super) fn stall(&mut self, invariant: &'static str, what: String) {
        self.violation.get_or_insert(Violation::Liveness { invariant, what });
    }
}

impl Observer<Node> for Watch<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Node>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        if let Observation::Told(Event::Acquired { .. }) = what {
            self.reigns += 1;
        }
        if let Observation::Told(Event::Ended { partition, loss, .. }) = what {
            self.ended.push((moment.host, *partition, *loss));
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}

/// Who holds one partition, and under which terms it was held; with a register that checks them.
pub(super) struct Holders {
    partition: Partition,
    highest: Option<(Term, HostIndex)>,
    /// What each host held when it was last asked.
    held: BTreeMap<HostIndex, Term>,
    register: Register,
}

impl Holders {
    pub(super) fn new(partition: Partition, seed: u64) -> Self {
        let seed = seed.wrapping_add(u64::from(partition.get()) << 32);
        let (highest, held) = (None, BTreeMap::new());
        Holders { partition, highest, held, register: Register::new(seed) }
    }

    /// Everyone was asked, and these said yes.
    pub(super) fn check(
        &mut self,
        holders: &[(HostIndex, Holding)],
        now: SimTime,
    ) -> Result<(), (&'static str, String)> {
        let partition = self.partition;
        // Where there are no terms, several may hold it for a while.
        let is_exclusive = holders.iter().any(|(_, holding)| holding.term.is_some());
        if let ([(one, _), (other, _), ..], true) = (holders, is_exclusive) {
            let (one, other) = (Name(*one), Name(*other));
            let what = format!("{one} and {other} both hold {partition} (at {now} s)");
            return Err((ONE_HOLDER, what));
        }
        for (host, holding) in holders {
            let Some(term) = holding.term else { continue };
            let before = self.held.insert(*host, term);
            let is_new = before != Some(term);
            if is_new && self.highest.is_some_and(|(highest, _)| term <= highest) {
                let (highest, by) = self.highest.expect("checked");
                let what = format!(
                    "{} holds {partition} in term {term}, and {} held it in {highest} (at {now} s)",
                    Name(*host),
                    Name(by)
                );
                return Err((TERMS_RISE, what));
            }
            self.highest = self.highest.max(Some((term, *host)));
            self.register.write(*host, term, now);
        }
        self.register.check(now).map_err(|what| (Register::NAME, format!("{what} (at {now} s)")))
    }

    /// The highest term under which it was held.
    pub(super) fn highest(&self) -> Option<Term> {
        self.highest.map(|(term, _)| term)
    }
}
