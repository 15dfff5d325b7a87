//! A term that the control row gives to this member.

use core::time::Duration;

use super::config::Config;
use super::statement::{Holder, Version};
use crate::identity::MemberId;
use crate::time::Instant;

#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// As whom.
    pub(super) me: Holder,
    /// The state of the row, as far as we know. An earlier renewal, whose answer we did not wait for, may
    /// yet make it a higher beat.
    pub(super) version: Version,
    /// Whether a mandate ever held in it. One that held and has ended does not come back.
    pub(super) held: bool,
    /// Until when nobody else can lead.
    pub(super) deadline: Option<Instant>,
    /// When to renew.
    pub(super) next: Instant,
    pub(super) began: Instant,
    /// Whom the leader of the group preferred when we took the role over.
    pub(super) preferred: Option<MemberId>,
}

impl Claim {
    /// A claim that the row shows. It gives nothing before it was renewed: we do not know how old it is.
    pub(super) fn found(
        me: Holder,
        version: Version,
        preferred: Option<MemberId>,
        now: Instant,
    ) -> Self {
        let (held, deadline) = (false, None);
        Claim { me, version, held, deadline, next: now, began: now, preferred }
    }

    /// A renewal with this lease is sent. Others may see it before we know, so that we count on no more
    /// than it grants from now on; if it grants more than the one before, we do not count on that yet.
    pub(super) fn sent(&mut self, lease: Duration, config: &Config, now: Instant) {
        let sure = now + config.sure(lease);
        self.deadline = self.deadline.map(|deadline| deadline.min(sure));
    }

    /// A write with this lease, sent then, was acknowledged. False if that came too late to be worth
    /// anything.
    pub(super) fn granted(
        &mut self,
        (sent, lease): (Instant, Duration),
        config: &Config,
        now: Instant,
    ) -> bool {
        let sure = sent + config.sure(lease);
        if now >= sure {
            return false;
        }
        self.deadline = Some(sure);
        true
    }
}
