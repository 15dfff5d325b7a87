//! Watching the leader: NFD-E on its heartbeats.

use core::time::Duration;

use crate::detector::estimator::{DEFAULT_BLOCK, Estimate, Estimator};
use crate::detector::nfd_e::{DEFAULT_WINDOW, NfdE};
use crate::detector::{Beat, FailureDetector};
use crate::identity::{MemberId, Term};
use crate::time::Instant;

/// The leader that is followed.
#[derive(Clone, Debug)]
pub(super) struct Following {
    pub(super) leader: MemberId,
    pub(super) term: Term,
    detector: NfdE,
    link: Estimator,
    /// When it was last heard, fresh.
    heard: Instant,
    /// A late wake-up was forgiven since the last fresh heartbeat.
    forgave: bool,
}

impl Following {
    /// Follows `leader` from its first heartbeat of `term` on.
    pub(super) fn new(
        leader: MemberId,
        term: Term,
        beat: Beat,
        detect: Duration,
        now: Instant,
    ) -> Self {
        let detector = NfdE::new(detect, DEFAULT_WINDOW);
        let link = Estimator::new(DEFAULT_BLOCK);
        let mut following = Following { leader, term, detector, link, heard: now, forgave: false };
        following.heartbeat(beat, now);
        following
    }

    /// Takes a heartbeat; whether it proves the leader alive.
    pub(super) fn heartbeat(&mut self, beat: Beat, now: Instant) -> bool {
        let arrival = self.detector.arrive(beat, now);
        self.link.arrive_as(arrival, beat, now);
        self.forgave &= !arrival.is_fresh();
        if arrival.is_fresh() {
            self.heard = now;
        }
        arrival.is_fresh()
    }

    pub(super) fn set_detect(&mut self, detect: Duration) {
        self.detector.set_detect(detect);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.detector.trusted_until()
    }

    /// Whether the leader is silent. Not on a wake-up that came so late that we cannot have
    /// listened: then it has until `grace` from now; once.
    pub(super) fn is_silent(&mut self, grace: Duration, now: Instant) -> bool {
        let Some(until) = self.detector.trusted_until().filter(|until| *until <= now) else {
            return false;
        };
        if now - until >= grace && !core::mem::replace(&mut self.forgave, true) {
            self.detector.extend(now + grace);
            return false;
        }
        true
    }

    /// Trusts the leader until then, whatever it does: what a member does whose watch was left out on purpose.
    pub(super) fn excuse(&mut self, until: Instant) {
        self.detector.extend(until);
    }

    /// For how long nothing fresh was heard.
    pub(super) fn silent_for(&self, now: Instant) -> Duration {
        now - self.heard
    }

    /// The detector.
    pub(super) fn detector(&self) -> &NfdE {
        &self.detector
    }

    pub(super) fn link(&self) -> Option<Estimate> {
        self.link.estimate()
    }
}
