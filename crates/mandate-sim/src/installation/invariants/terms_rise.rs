//! What a member writes to its disk only rises, and one term is promised to one leader only,
//! across all its incarnations, as long as the disk is there.

use mandate_proto::pole::installation::{Promised, Stored};

use crate::fault::{DiskFate, Fault};
use crate::network::HostIndex;
use crate::subject::{Moment, Observation, Subject};

/// The name under which it is reported.
pub(crate) const NAME: &str = "terms rise";

/// The last promise on each disk.
pub(crate) struct TermsRise {
    disks: Vec<Option<Promised>>,
    /// Whose disk was lost or put back at some time.
    lost: Vec<bool>,
}

impl TermsRise {
    /// Watches `size` members.
    pub(crate) fn new(size: usize) -> Self {
        TermsRise { disks: vec![None; size], lost: vec![false; size] }
    }

    /// How many disks were never lost.
    pub(crate) fn kept(&self) -> usize {
        self.lost.iter().filter(|lost| !**lost).count()
    }

    /// Whether a disk was lost, or put back, at some time.
    pub(crate) fn has_lost(&self, host: HostIndex) -> bool {
        self.lost[host]
    }

    /// Checks writes; a disk that is lost, or put back, may be written anything to.
    pub(crate) fn check<S: Subject<Stable = Stored>>(
        &mut self,
        moment: Moment,
        what: &Observation<'_, S>,
    ) -> Result<(), String> {
        match what {
            Observation::Durable(stored) => self.written(moment.host, stored.promised),
            Observation::Faulted(fault) => {
                if let Some(host) = lost_disk(fault) {
                    self.disks[host] = None;
                    self.lost[host] = true;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn written(&mut self, host: HostIndex, promised: Promised) -> Result<(), String> {
        match self.disks[host].replace(promised) {
            Some(before) if promised.term < before.term => {
                Err(format!("term {} was promised after {}", promised.term, before.term))
            }
            Some(before) if promised.term == before.term && promised.to != before.to => {
                Err(format!(
                    "term {} was promised to {:?} and to {:?}",
                    promised.term, before.to, promised.to
                ))
            }
            _ => Ok(()),
        }
    }
}

/// The host whose disk a fault loses, or puts back.
pub(crate) fn lost_disk(fault: &Fault) -> Option<HostIndex> {
    match fault {
        Fault::Recover { host, disk: DiskFate::Lost | DiskFate::Restored(_) } => Some(*host),
        _ => None,
    }
}
