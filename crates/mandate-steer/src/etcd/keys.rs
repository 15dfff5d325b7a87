//! Holds and drains, as keys in etcd.
//!
//! They are in etcd itself, under `mandate/steer/`. So all sidecars see them, whichever is elected, also one that
//! is started later; any etcd tool shows them; and they have a lease, so that none outlives the work that it was made
//! for.

use std::time::Duration;

use super::client::{Endpoint, EtcdError, EtcdId};
use crate::system::Wishes;

const ALL: &str = "mandate/steer/";
const HOLD: &str = "mandate/steer/hold";
const DRAIN: &str = "mandate/steer/drain/";

/// What is wanted now, as an etcd member knows it.
pub fn read(etcd: &Endpoint, within: Duration) -> Result<Wishes, EtcdError> {
    Ok(parse(&etcd.keys(ALL, within)?))
}

fn parse(keys: &[(String, String)]) -> Wishes {
    let mut wishes = Wishes::default();
    for (key, value) in keys {
        if key == HOLD {
            wishes.hold = Some(value.clone());
        } else if let Some(member) = key.strip_prefix(DRAIN)
            && let Ok(member) = u64::from_str_radix(member, 16)
        {
            wishes.drained.insert(EtcdId(member).into());
        }
    }
    wishes
}

/// Leaves leadership where it is, for this long.
pub fn hold(
    etcd: &Endpoint,
    why: &str,
    lasts: Duration,
    within: Duration,
) -> Result<(), EtcdError> {
    etcd.put_for(HOLD, why, lasts, within)
}

/// Keeps leadership away from a member, for this long.
pub fn drain(
    etcd: &Endpoint,
    member: EtcdId,
    why: &str,
    lasts: Duration,
    within: Duration,
) -> Result<(), EtcdError> {
    etcd.put_for(&format!("{DRAIN}{member}"), why, lasts, within)
}

/// Ends every hold and drain.
pub fn resume(etcd: &Endpoint, within: Duration) -> Result<(), EtcdError> {
    etcd.remove(ALL, within)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn wishes_are_read_from_keys_and_others_mean_nothing() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let wishes = parse(&[
            pair("mandate/steer/hold", "new disks"),
            pair("mandate/steer/drain/8e9e05c52164694d", ""),
            pair("mandate/steer/drain/nobody", ""),
            pair("mandate/steer/else", ""),
        ]);
        assert_eq!(wishes.hold.as_deref(), Some("new disks"));
        assert_eq!(wishes.drained, BTreeSet::from([EtcdId(0x8e9e_05c5_2164_694d).into()]));
    }
}
