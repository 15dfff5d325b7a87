//! One write to stable storage in a lifetime (section 3.2): each disk is written to at most once,
//! and before the first heartbeat.

use mandate_proto::nfd_l::NfdL;

use crate::fault::{DiskFate, Fault};
use crate::subject::{Moment, Observation};

/// The name under which it is reported.
pub(crate) const NAME: &str = "one write";

/// Writes to each member's present disk.
pub(crate) struct OneWrite {
    writes: Vec<u32>,
}

impl OneWrite {
    /// Watches `size` members.
    pub(crate) fn new(size: usize) -> Self {
        OneWrite { writes: vec![0; size] }
    }

    /// Checks what was observed.
    pub(crate) fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, NfdL>,
    ) -> Result<(), String> {
        let writes = &mut self.writes[moment.host];
        match what {
            Observation::Faulted(Fault::Recover { disk: DiskFate::Lost, .. }) => *writes = 0,
            // A write that a crash fell into may have landed: what is found counts.
            Observation::Started(boot) if boot.stored.is_some() => *writes = 1,
            Observation::Durable(_) => {
                *writes += 1;
                if *writes > 1 {
                    return Err("a disk was written to a second time".into());
                }
            }
            Observation::Sent(_) if *writes == 0 => {
                return Err("a heartbeat was sent before zero time was durable".into());
            }
            _ => {}
        }
        Ok(())
    }
}
