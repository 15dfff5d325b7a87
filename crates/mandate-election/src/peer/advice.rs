//! Settings that are allowed and hardly meant: said in the log, once.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use mandate_proto::pole::installation::PeerGuarantee;
use mandate_runtime::Protocol;
use tokio::time::{Instant, sleep};

use crate::member::WeakMember;

/// How often round trips are looked at, and how often something is said of them.
const LOOK: Duration = Duration::from_secs(10);
const SAY: Duration = Duration::from_secs(3600);

/// Warns of a lease without an allowance for clocks that drift.
pub(super) fn warn_of_drift(protocol: &Protocol) {
    if let Protocol::Pole(config) = protocol
        && matches!(config.guarantee(), PeerGuarantee::Leased { allowance_per_mille: 0, .. })
    {
        tracing::warn!(
            "[election] drift_per_mille is 0: if the clocks of two hosts do not run at exactly the same rate, two \
             members can lead at once. Leave it out for 10, or set what your clocks keep to"
        );
    }
}

/// Warns if others can read a key. Not refused: who mounts secrets often cannot choose their mode.
pub fn warn_if_readable(key: &Path) {
    let mode = std::fs::metadata(key).map(|found| found.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let shown = key.display();
        tracing::warn!(
            "the private key {shown} can be read or changed by others: `chmod 600 {shown}`"
        );
    }
}

/// Warns when a lease is too short for the distance between members, for as long as the member runs.
pub(super) async fn watch_lease(member: WeakMember, lease: Duration) {
    let mut said: Option<Instant> = None;
    loop {
        sleep(LOOK).await;
        let Some(member) = member.upgrade() else { return };
        let Some(status) = member.election().status().await else { continue };
        let Some(view) = status.view else { continue };
        let round_trips = view.round_trips.values().copied().collect();
        let group = view.members.len();
        if let Some(text) = too_short(lease, round_trips, group)
            && said.is_none_or(|when| when.elapsed() >= SAY)
        {
            said = Some(Instant::now());
            tracing::warn!("{text}");
        }
    }
}

/// What to say of a lease, given the round trips to others that answer, in a group of so many. A lease counts from
/// before the renewal is sent, so that one shorter than the round trip to a quorum has always ended when it is granted;
/// below twice that, one lost packet ends it.
fn too_short(lease: Duration, mut round_trips: Vec<Duration>, group: usize) -> Option<String> {
    round_trips.sort_unstable();
    // The leader is one of the quorum itself.
    let others = group / 2;
    let needed = *round_trips.get(others.checked_sub(1)?)?;
    (lease < needed * 2).then(|| {
        format!(
            "[election] lease is {}, and the round trip to a quorum takes {}: set a lease of at least {}, or leaders lose \
             theirs again and again",
            readable(lease),
            readable(needed),
            readable(needed * 4)
        )
    })
}

/// To the millisecond.
fn readable(duration: Duration) -> String {
    let rounded = duration.as_secs_f64() * 1000.0;
    humantime::format_duration(Duration::from_millis(rounded.round() as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lease_is_held_against_the_round_trip_to_a_quorum() {
        let said = |lease, round_trips: &[u32], group| {
            too_short(MS * lease, round_trips.iter().map(|ms| MS * *ms).collect(), group)
        };
        assert_eq!(said(1000, &[10, 300], 3), None);
        assert_eq!(said(100, &[300, 10], 3), None, "the nearer one is enough");
        let text = said(100, &[300, 80], 3).unwrap();
        assert!(text.contains("lease is 100ms") && text.contains("80ms"), "{text}");
        assert_eq!(said(100, &[80], 5), None, "no quorum answers: that is another trouble");
        assert_eq!(said(1, &[], 1), None, "alone");
    }
}
