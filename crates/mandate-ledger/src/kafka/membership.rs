//! As whom a member was assigned its partitions, and whether that is known to be somebody.
//!
//! The client tells on request who it is by now. That may be nobody: between an assignment and the call that asks, the coordinator may have
//! refused it. The client library does not show what it tells. So what was noted counts once a plain commit has been accepted that was sent
//! after the note: coordinators refuse those of nobody, and a client that has become somebody else since has been assigned anew,
//! and noted anew.

use std::sync::Arc;
use std::time::Duration;

use mandate_proto::time::Instant;

/// What was noted last.
pub(super) struct Membership<M> {
    noted: Option<Arc<M>>,
    /// Rises with every note.
    number: u64,
    is_confirmed: bool,
}

impl<M> Default for Membership<M> {
    fn default() -> Self {
        Membership { noted: None, number: 0, is_confirmed: false }
    }
}

impl<M> Membership<M> {
    pub(super) fn note(&mut self, membership: Option<M>) {
        self.noted = membership.map(Arc::new);
        self.number += 1;
        self.is_confirmed = false;
    }

    /// The number of the note that a commit would confirm if it was sent now.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// A plain commit was accepted that was sent when this was the number.
    pub(super) fn confirm(&mut self, number: u64) {
        self.is_confirmed |= self.number == number;
    }

    /// As whom something may be proved.
    pub(super) fn proven(&self) -> Option<Arc<M>> {
        self.noted.clone().filter(|_| self.is_confirmed)
    }
}

/// Whether a member with a static name was in the group all the time. Its client comes back as another when the coordinator has removed it,
/// and says nothing; others may have had its partitions. The machine sees that by a session without a renewal. But renewals in
/// transactions extend no session, and may go on after the last sign of life: so plain commits are looked at by themselves.
#[derive(Debug, Default)]
pub(super) struct Signs {
    last: Option<Instant>,
}

impl Signs {
    /// A plain commit was accepted by now that was sent then. Whether the coordinator cannot have removed the member since the one
    /// before.
    pub(super) fn accepted(&mut self, sent: Instant, now: Instant, session: Duration) -> bool {
        let before = self.last.replace(sent);
        // Clocks may drift: a tenth is more than is allowed for.
        before.is_none_or(|before| now.since(before) < session * 9 / 10)
    }

    /// Partitions were assigned anew, or lost.
    pub(super) fn begin(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_session_without_a_plain_commit_a_member_may_have_been_removed() {
        let at = |millis| Instant::ORIGIN + Duration::from_millis(millis);
        let (mut signs, session) = (Signs::default(), Duration::from_millis(1000));
        assert!(signs.accepted(at(100), at(110), session), "there is none before");
        assert!(signs.accepted(at(800), at(990), session));
        // Renewals in transactions may have been accepted meanwhile, and it may have come back as another.
        assert!(!signs.accepted(at(1690), at(1700), session));
        assert!(signs.accepted(at(1800), at(1810), session));
        signs.begin();
        assert!(signs.accepted(at(5000), at(5010), session), "another assignment");
    }

    #[test]
    fn whoever_was_noted_proves_nothing_before_a_plain_commit_was_accepted_since() {
        let mut membership = Membership::default();
        let before = membership.number();
        membership.note(Some("nobody, perhaps"));
        assert_eq!(membership.proven(), None);
        membership.confirm(before);
        assert_eq!(membership.proven(), None, "it was sent before that");
        membership.confirm(membership.number());
        assert_eq!(membership.proven().as_deref(), Some(&"nobody, perhaps"));
        membership.note(Some("another"));
        assert_eq!(membership.proven(), None);
        membership.confirm(membership.number());
        membership.note(None);
        membership.confirm(membership.number());
        assert_eq!(membership.proven(), None, "the assignment was lost");
    }
}
