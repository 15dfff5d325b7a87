//! What a member remembers of another.

use core::time::Duration;

use super::Config;
use crate::detector::estimator::{DEFAULT_BLOCK, Estimator};
use crate::detector::nfd_e::NfdE;
use crate::detector::{FailureDetector, Label};
use crate::identity::Incarnation;
use crate::time::Instant;

/// Another member that was heard leading.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) lifetime: Incarnation,
    pub(super) detector: NfdE,
    pub(super) link: Estimator,
    pub(super) uptime: Duration,
    pub(super) heard: Instant,
    pub(super) priority: u8,
    /// The incarnation before this one, and its highest label: what was overtaken then is void now.
    pub(super) former: Option<(Incarnation, Label)>,
    /// This incarnation has not been heard fresh yet, and it is not the first.
    pub(super) reborn: bool,
    /// Its interval leaves no margin inside our detection bound.
    pub(super) slow: bool,
}

impl Peer {
    pub(super) fn new(lifetime: Incarnation, config: &Config) -> Self {
        Peer {
            lifetime,
            detector: NfdE::new(config.detect(), config.window()),
            link: Estimator::new(DEFAULT_BLOCK),
            uptime: Duration::ZERO,
            heard: Instant::ORIGIN,
            priority: 0,
            former: None,
            reborn: false,
            slow: false,
        }
    }

    pub(super) fn is_trusted(&self, now: Instant) -> bool {
        self.detector.trusted_until().is_some_and(|until| now < until)
    }
}
