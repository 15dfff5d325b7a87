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
    /// themselves ahead without end. Kept to be measured, not to be used.
    Printed,
}

impl Seniority {
    /// What an uptime counts for, `ago` after it was said. Another's has aged since, which must be
    /// reckoned with: else a leader of whom two heartbeats were lost would look younger than a
    /// rival that was just heard.
    pub(super) fn weight(self, uptime: Duration, ago: Duration) -> u64 {
        match self {
            Seniority::Classes => class(uptime.saturating_add(ago)),
            Seniority::Printed => nanos(uptime),
        }
    }
}

/// The logarithm of the first class's length in nanoseconds: half a second. Longer than most
/// delays, so that of members that claim at the same time the one with the highest id leads as
/// soon as it is heard; not much longer, because a leader this young has no seniority. The same
/// for everyone: a length that depended on the configuration would let two members that are set
/// up differently each find themselves ahead.
const FIRST_CLASS_LOG2: u32 = 29;

/// Each class after the first is as long as all before it.
fn class(uptime: Duration) -> u64 {
    u64::from(u64::BITS - (nanos(uptime) >> FIRST_CLASS_LOG2).leading_zeros())
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
        let first = Duration::from_nanos(1 << FIRST_CLASS_LOG2);
        let moment = Duration::from_nanos(1);
        assert_eq!(class(Duration::ZERO), 0);
        assert_eq!(class(first - moment), 0);
        for k in 0..30 {
            let start = first * (1 << k);
            assert_eq!(class(start), k as u64 + 1);
            assert_eq!(class(start * 2 - moment), k as u64 + 1);
        }
        assert_eq!(class(Duration::MAX), 35);
    }

    #[test]
    fn priority_goes_before_uptime_and_uptime_before_id() {
        let rank = |priority, uptime, id| Rank { priority, uptime, id: MemberId::new(id) };
        assert!(rank(1, 0, 1) > rank(0, 9, 9));
        assert!(rank(0, 2, 1) > rank(0, 1, 9));
        assert!(rank(0, 1, 2) > rank(0, 1, 1));
    }
}
