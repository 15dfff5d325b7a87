//! The leases that a member has seen, kept beside the machine: it must wait for each, whatever becomes of the row.
//!
//! A lease is over when its time is, by the member's own clock; when its leader has vacated the row; or when the row shows a
//! later term, which was taken by someone who had waited. It is not over because the row is gone, or an older one is back.

use mandate_proto::identity::Term;
use mandate_proto::registers::{Config, ControlState, Holder, SqlGuarantee, Version};
use mandate_proto::time::Instant;

#[derive(Clone, Copy)]
struct Lease {
    version: Version,
    holder: Holder,
    until: Instant,
}

/// What a member has been shown of others' leases.
#[derive(Default)]
pub(super) struct SeenLeases {
    leases: Vec<Lease>,
    /// The state of the row that was shown last: a lease counts from when its state was shown first.
    last: Option<(Version, Option<Holder>)>,
}

impl SeenLeases {
    /// An answer has shown this row.
    pub(super) fn show(&mut self, row: &ControlState, config: &Config, now: Instant) {
        let (version, leader) = (row.version, row.leader);
        if self.last.replace((version, leader)) == Some((version, leader)) {
            return;
        }
        self.leases.retain(|lease| {
            let is_vacated =
                leader.is_none() && version.term == lease.version.term && version > lease.version;
            lease.version.term >= version.term && !is_vacated
        });
        let Some(holder) = leader.filter(|leader| leader.member != config.me()) else { return };
        if row.published.guarantee != SqlGuarantee::Leased {
            return;
        }
        let until = now + config.wait(row.published.lease);
        // A renewal takes the place of what it renewed. What a database that was put back has forgotten runs on beside it.
        let is_renewed = |lease: &Lease| {
            (lease.version.term, lease.holder) == (version.term, holder) && lease.version < version
        };
        self.leases.retain(|lease| !is_renewed(lease));
        if !self.leases.iter().any(|lease| (lease.version, lease.holder) == (version, holder)) {
            self.leases.push(Lease { version, holder, until });
        }
    }

    /// A lease that still runs, in words.
    pub(super) fn running(&self, now: Instant) -> Option<(Term, String)> {
        let lease = self.leases.iter().find(|lease| now < lease.until)?;
        let Lease { version, holder, until } = lease;
        let left = *until - now;
        Some((
            version.term,
            format!("{version} of {}, which runs for {left:?} more", holder.member),
        ))
    }
}
