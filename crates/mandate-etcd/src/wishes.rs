//! What an operator wants of all sidecars: to leave leadership where it is, or to keep it away from a member.
//!
//! Wishes are keys in etcd itself, under `mandate/steer/`. So all sidecars see them, whichever is elected, also one that
//! is started later; any tool of etcd shows them; and they have a lease, so that none outlives the work that it was made
//! for.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::client::{Endpoint, EtcdError, EtcdId};

const ALL: &str = "mandate/steer/";
const HOLD: &str = "mandate/steer/hold";
const DRAIN: &str = "mandate/steer/drain/";

/// What operators want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Leadership stays where it is; why.
    pub hold: Option<String>,
    /// Members that are not to lead.
    pub drained: BTreeSet<EtcdId>,
}

impl Wishes {
    /// What is wanted now, as a member of etcd knows it.
    pub fn read(etcd: &Endpoint, within: Duration) -> Result<Self, EtcdError> {
        Ok(Wishes::of(&etcd.keys(ALL, within)?))
    }

    fn of(keys: &[(String, String)]) -> Self {
        let mut wishes = Wishes::default();
        for (key, value) in keys {
            if key == HOLD {
                wishes.hold = Some(value.clone());
            } else if let Some(member) = key.strip_prefix(DRAIN)
                && let Ok(member) = u64::from_str_radix(member, 16)
            {
                wishes.drained.insert(EtcdId(member));
            }
        }
        wishes
    }

    /// Leaves leadership where it is, for so long.
    pub fn hold(
        etcd: &Endpoint,
        why: &str,
        lasts: Duration,
        within: Duration,
    ) -> Result<(), EtcdError> {
        etcd.put_for(HOLD, why, lasts, within)
    }

    /// Keeps leadership away from a member, for so long.
    pub fn drain(
        etcd: &Endpoint,
        member: EtcdId,
        why: &str,
        lasts: Duration,
        within: Duration,
    ) -> Result<(), EtcdError> {
        etcd.put_for(&format!("{DRAIN}{member}"), why, lasts, within)
    }

    /// Wants nothing any more.
    pub fn resume(etcd: &Endpoint, within: Duration) -> Result<(), EtcdError> {
        etcd.remove(ALL, within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_from_keys_and_others_mean_nothing() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let wishes = Wishes::of(&[
            pair("mandate/steer/hold", "new disks"),
            pair("mandate/steer/drain/8e9e05c52164694d", ""),
            pair("mandate/steer/drain/nobody", ""),
            pair("mandate/steer/else", ""),
        ]);
        assert_eq!(wishes.hold.as_deref(), Some("new disks"));
        assert_eq!(wishes.drained, BTreeSet::from([EtcdId(0x8e9e_05c5_2164_694d)]));
    }
}
