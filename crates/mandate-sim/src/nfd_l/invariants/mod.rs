//! What must hold of NFD-L, one file each.

use core::ops::RangeInclusive;
use core::time::Duration;

use mandate_proto::nfd_l::NfdL;

use crate::subject::{Moment, Observation};
use crate::watch::{Broken, Invariants};

pub(crate) mod agreement;
pub(crate) mod labels_rise;
pub(crate) mod no_false_claim;
pub(crate) mod one_broadcaster;
pub(crate) mod one_write;
pub(crate) mod stability;

use agreement::Agreement;
use labels_rise::LabelsRise;
use no_false_claim::NoFalseClaim;
use one_write::OneWrite;
use stability::Stability;

/// All of them.
pub(super) struct Court {
    /// Who takes whom for the leader.
    pub(super) agreement: Agreement,
    labels_rise: LabelsRise,
    no_false_claim: NoFalseClaim,
    one_write: OneWrite,
    stability: Stability,
}

impl Court {
    /// Watches a group of `size` members with intervals up to this, whose detection times lie in
    /// `detect`.
    pub(super) fn new(size: usize, interval: Duration, detect: RangeInclusive<Duration>) -> Self {
        Court {
            agreement: Agreement::new(size),
            labels_rise: LabelsRise::new(size),
            no_false_claim: NoFalseClaim::new(size, detect.start().saturating_sub(interval)),
            one_write: OneWrite::new(size),
            stability: Stability::new(size, *detect.end()),
        }
    }
}

impl Invariants<NfdL> for Court {
    fn check(&mut self, moment: Moment, what: &Observation<'_, NfdL>) -> Result<(), Broken> {
        if let Observation::Delivered { from, message } = what {
            self.no_false_claim.deliver(moment, *from, message);
            return Ok(());
        }
        self.agreement.observe(moment, what);
        let checks = [
            (no_false_claim::NAME, self.no_false_claim.check(moment, what)),
            (labels_rise::NAME, self.labels_rise.check(moment, what)),
            (one_write::NAME, self.one_write.check(moment, what)),
            (stability::NAME, self.stability.check(moment, what)),
        ];
        let mut broken =
            checks.into_iter().filter_map(|(name, result)| Some((name, result.err()?)));
        broken.next().map_or(Ok(()), Err)
    }

    fn reigns(&self) -> u64 {
        self.agreement.reigns()
    }
}
