//! What must hold of NFD-L, one file each.

use core::ops::RangeInclusive;
use core::time::Duration;

use mandate_proto::nfd_l::NfdL;

use super::scenario::Kind;
use crate::subject::{Moment, Observation, Observer};
use crate::trace::Trace;
use crate::verdict::Violation;

pub mod agreement;
pub mod labels_rise;
pub mod no_false_claim;
pub mod one_broadcaster;
pub mod one_write;
pub mod stability;

use agreement::Agreement;
use labels_rise::LabelsRise;
use no_false_claim::NoFalseClaim;
use one_write::OneWrite;
use stability::Stability;

/// Watches all of them at once, and stops the run at the first that breaks.
pub struct Court<'a> {
    /// Who takes whom for the leader.
    pub agreement: Agreement,
    labels_rise: LabelsRise,
    no_false_claim: NoFalseClaim,
    one_write: OneWrite,
    stability: Stability,
    trace: Option<Trace<'a>>,
    violation: Option<Violation>,
}

impl<'a> Court<'a> {
    /// Watches a group of `size` members with intervals up to this, whose detection times lie in
    /// `detect`.
    pub fn new(
        size: usize,
        interval: Duration,
        detect: RangeInclusive<Duration>,
        trace: Option<Trace<'a>>,
    ) -> Self {
        Court {
            agreement: Agreement::new(size),
            labels_rise: LabelsRise::new(size),
            no_false_claim: NoFalseClaim::new(size, detect.start().saturating_sub(interval)),
            one_write: OneWrite::new(size),
            stability: Stability::new(size, *detect.end()),
            trace,
            violation: None,
        }
    }

    /// What was violated, if anything.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    /// Notes a violation that the scenario found.
    pub fn fail(&mut self, kind: Kind, invariant: &'static str, what: String) {
        let violation = match kind {
            Kind::Correctness => Violation::Correctness { invariant, what },
            Kind::Liveness => Violation::Liveness { invariant, what },
        };
        self.violation.get_or_insert(violation);
    }

    /// Writes a line into the trace.
    pub fn note(&mut self, moment: Moment, text: &str) {
        if let Some(trace) = &mut self.trace {
            trace.note(moment, text);
        }
    }
}

impl Observer<NfdL> for Court<'_> {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, NfdL>) {
        if let Some(trace) = &mut self.trace {
            trace.observe(moment, what);
        }
        if let Observation::Delivered { from, message } = what {
            self.no_false_claim.deliver(moment, *from, message);
            return;
        }
        self.agreement.observe(moment, what);
        let checks = [
            (no_false_claim::NAME, self.no_false_claim.check(moment, what)),
            (labels_rise::NAME, self.labels_rise.check(moment, what)),
            (one_write::NAME, self.one_write.check(moment, what)),
            (stability::NAME, self.stability.check(moment, what)),
        ];
        for (name, result) in checks {
            if let Err(what) = result {
                let what = format!("{what} (at {} s)", moment.now);
                self.fail(Kind::Correctness, name, what);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}
