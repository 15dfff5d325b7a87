//! What quality of service a member's own detector has delivered, as far as it can know.
//!
//! [`Recorder`](super::recorder) compares a detector's output with the truth; a member in the field does not
//! know the truth. It learns of it afterwards: who was suspected and is heard again *in the same incarnation* was
//! suspected by mistake, and who comes back in another incarnation had indeed crashed. One that does not come back is
//! taken to have crashed.
//!
//! - *Detection time* (T_D) is counted from the last sign of life to the suspicion: the crash came after that
//!   sign was sent, so the true time is shorter by up to an interval.
//! - *Mistakes* are counted, with how long each lasted (T_M). The mean time between them (T_MR) is the time
//!   watched over their number.
//!
//! Memory: one suspicion that is still open, and counters.

use core::time::Duration;

use crate::identity::MemberId;
use crate::time::Instant;

/// Collects what is known. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// Since when a leader is watched.
    watching: Option<Instant>,
    watched: Duration,
    open: Option<Suspicion>,
    mistakes: Tally,
    detections: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspicion {
    of: MemberId,
    at: Instant,
    silent_for: Duration,
}

/// How often, how long in all, how long at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// Of all together.
    pub total: Duration,
    /// Of the longest.
    pub longest: Duration,
}

impl Tally {
    /// The mean; `None` if there is none.
    pub fn mean(&self) -> Option<Duration> {
        let mean = |count: u64| Duration::from_secs_f64(self.total.as_secs_f64() / count as f64);
        (self.count > 0).then(|| mean(self.count))
    }

    fn add(&mut self, duration: Duration) {
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.longest = self.longest.max(duration);
    }
}

/// The figures so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// For how long a leader was watched.
    pub watched: Duration,
    /// Suspicions of a leader that was up, and how long each lasted (T_M).
    pub mistakes: Tally,
    /// Crashes that were noticed, and how long each took (T_D), counted from the last sign of life.
    pub detections: Tally,
}

impl Service {
    /// Mean time between mistakes (T_MR), at least; `None` without a mistake.
    pub fn mistake_every(&self) -> Option<Duration> {
        let mean = |count: u64| Duration::from_secs_f64(self.watched.as_secs_f64() / count as f64);
        (self.mistakes.count > 0).then(|| mean(self.mistakes.count))
    }
}

impl Delivered {
    /// Whether a leader is watched from now on.
    pub fn watch(&mut self, watching: bool, now: Instant) {
        match (watching, self.watching) {
            (true, None) => self.watching = Some(now),
            (false, Some(since)) => {
                self.watched += now - since;
                self.watching = None;
            }
            _ => {}
        }
    }

    /// A leader that was last heard `silent_for` ago is suspected.
    pub fn suspect(&mut self, leader: MemberId, silent_for: Duration, now: Instant) {
        self.settle();
        self.open = Some(Suspicion { of: leader, at: now, silent_for });
    }

    /// A member was heard, in the incarnation in which it was last heard or in another.
    pub fn heard(&mut self, member: MemberId, same_incarnation: bool, now: Instant) {
        let Some(suspicion) = self.open.filter(|suspicion| suspicion.of == member) else { return };
        if same_incarnation {
            self.mistakes.add(now - suspicion.at);
            self.open = None;
        } else {
            self.settle();
        }
    }

    fn settle(&mut self) {
        if let Some(suspicion) = self.open.take() {
            self.detections.add(suspicion.silent_for);
        }
    }

    /// The figures up to `now`; a suspicion that is still open counts as a detection.
    pub fn service(&self, now: Instant) -> Service {
        let mut so_far = self.clone();
        so_far.watch(false, now);
        so_far.settle();
        let Delivered { watched, mistakes, detections, .. } = so_far;
        Service { watched, mistakes, detections }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    #[test]
    fn a_leader_that_is_heard_again_in_the_same_life_was_suspected_by_mistake() {
        let leader = MemberId::new(1);
        let mut delivered = Delivered::default();
        delivered.watch(true, at(0));
        for begins in [1000, 5000] {
            delivered.suspect(leader, Duration::from_millis(900), at(begins));
            assert_eq!(delivered.service(at(begins + 1)).detections.count, 1, "as far as is known");
            delivered.heard(MemberId::new(2), true, at(begins + 50));
            delivered.heard(leader, true, at(begins + 100));
            delivered.heard(leader, true, at(begins + 200));
        }
        let service = delivered.service(at(10_000));
        assert_eq!(service.detections.count, 0);
        assert_eq!(service.mistakes.count, 2);
        assert_eq!(service.mistakes.mean(), Some(Duration::from_millis(100)));
        assert_eq!(service.mistake_every(), Some(Duration::from_secs(5)));
    }

    #[test]
    fn one_that_comes_back_in_another_life_or_not_at_all_had_crashed() {
        let p = MemberId::new;
        let mut delivered = Delivered::default();
        delivered.suspect(p(1), Duration::from_millis(700), at(1000));
        delivered.heard(p(1), false, at(3000));
        delivered.suspect(p(2), Duration::from_millis(900), at(4000));
        delivered.suspect(p(3), Duration::from_millis(800), at(5000));
        let service = delivered.service(at(9000));
        assert_eq!((service.mistakes.count, service.detections.count), (0, 3));
        assert_eq!(service.detections.longest, Duration::from_millis(900));
        assert_eq!(service.detections.mean(), Some(Duration::from_millis(800)));
        assert_eq!(service.mistake_every(), None);
    }

    #[test]
    fn only_time_in_which_a_leader_is_watched_counts() {
        let mut delivered = Delivered::default();
        delivered.watch(true, at(1000));
        delivered.watch(true, at(1500));
        delivered.watch(false, at(2000));
        delivered.watch(false, at(2500));
        delivered.watch(true, at(5000));
        assert_eq!(delivered.service(at(6000)).watched, Duration::from_secs(2));
    }
}
