//! What a member writes to its disk only rises, and one term is promised to one leader only,
//! across all its lives, as long as the disk is there.

use mandate_proto::pole::installation::Promised;

use crate::network::HostIndex;

/// The name under which it is reported.
pub const NAME: &str = "terms rise";

/// The last promise on each disk.
pub struct TermsRise {
    disks: Vec<Option<Promised>>,
}

impl TermsRise {
    /// Watches `size` members.
    pub fn new(size: usize) -> Self {
        TermsRise { disks: vec![None; size] }
    }

    /// A disk was lost.
    pub fn forget(&mut self, host: HostIndex) {
        self.disks[host] = None;
    }

    /// A promise became durable.
    pub fn check(&mut self, host: HostIndex, promised: Promised) -> Result<(), String> {
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
