//! Which of two leaders stays.

use core::time::Duration;

use crate::identity::MemberId;
use crate::time::nanos;

/// How the uptimes of two leaders are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seniority {
    /// By the class of the present reign's length; classes double. Sound: see the
    /// [module](super).
    #[default]
    Classes,
    /// As printed: by the number of heartbeats sent, exactly. Two leaders may then each find
    /// themselves ahead for ever. Kept to be measured, not to be used.
    Printed,
}

impl Seniority {
    /// What our own uptime counts for, in a group that beats every `interval`.
    pub(super) fn of_self(self, uptime: Duration, interval: Duration) -> u64 {
        match self {
            Seniority::Classes => class(uptime, interval),
            Seniority::Printed => nanos(uptime),
        }
    }

    /// What another's uptime counts for, `ago` after it said it. It has aged since, which must
    /// be reckoned with: else a leader of whom two heartbeats were lost would look younger than
    /// a rival that was just heard.
    pub(super) fn of_other(self, uptime: Duration, ago: Duration, interval: Duration) -> u64 {
        match self {
            Seniority::Classes => class(uptime.saturating_add(ago), interval),
            Seniority::Printed => nanos(uptime),
        }
    }
}

/// Class 0 is the first interval of a reign: of members that claim at the same time the highest
/// id leads as soon as it is heard. Each further class is as long as all before it.
fn class(uptime: Duration, interval: Duration) -> u64 {
    let intervals = nanos(uptime) / nanos(interval).max(1);
    u64::from(u64::BITS - intervals.leading_zeros())
}

/// The order among leaders; the greatest stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) priority: u8,
    pub(super) uptime: u64,
    pub(super) id: MemberId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_lasts_as_long_as_all_before_it() {
        let interval = Duration::from_millis(330);
        let moment = Duration::from_nanos(1);
        assert_eq!(class(Duration::ZERO, interval), 0);
        assert_eq!(class(interval - moment, interval), 0);
        for k in 0..30 {
            let start = interval * (1 << k);
            assert_eq!(class(start, interval), k as u64 + 1);
            assert_eq!(class(start * 2 - moment, interval), k as u64 + 1);
        }
        assert_eq!(class(Duration::MAX, Duration::ZERO), 64);
    }

    #[test]
    fn priority_goes_before_uptime_and_uptime_before_id() {
        let rank = |priority, uptime, id| Rank { priority, uptime, id: MemberId::new(id) };
        assert!(rank(1, 0, 1) > rank(0, 9, 9));
        assert!(rank(0, 2, 1) > rank(0, 1, 9));
        assert!(rank(0, 1, 2) > rank(0, 1, 1));
    }
}
