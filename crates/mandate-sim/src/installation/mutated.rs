//! What wrong implementations of `mandate()` would answer: to see that the harness notices.

use std::collections::BTreeMap;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{Event, Installation, Message, PeerGuarantee, Reason};
use mandate_proto::time::Instant;

use crate::fault::Fault;
use crate::network::HostIndex;
use crate::subject::{Moment, Observation};

/// What each member would answer.
pub(super) struct Mutated {
    guarantee: PeerGuarantee,
    members: Vec<Member>,
}

#[derive(Clone, Default)]
struct Member {
    /// A flag that events set and clear.
    flag: bool,
    /// Installed, and not lost for any reason but time.
    installed: bool,
    /// When each other's promise last arrived, and for which term.
    promises: BTreeMap<MemberId, (Term, Instant)>,
    term: Term,
}

impl Mutated {
    pub(super) fn new(size: usize, guarantee: PeerGuarantee) -> Self {
        Mutated { guarantee, members: vec![Member::default(); size] }
    }

    pub(super) fn flag(&self, host: HostIndex) -> bool {
        self.members[host].flag
    }

    /// Whether a deadline that counts from the answers of a quorum is still ahead.
    pub(super) fn by_reply(&self, host: HostIndex, now: Instant) -> bool {
        let member = &self.members[host];
        let ours = member.promises.values().filter(|(term, _)| *term == member.term);
        let mut arrived: Vec<_> = ours.map(|(_, at)| *at).collect();
        arrived.sort_unstable_by(|a, b| b.cmp(a));
        let others = self.members.len() / 2;
        let deadline = arrived.get(others - 1).map(|at| *at + self.guarantee.lease());
        member.installed && deadline.is_some_and(|deadline| now < deadline)
    }

    pub(super) fn observe(&mut self, moment: Moment, what: &Observation<'_, Installation>) {
        let member = &mut self.members[moment.host];
        match what {
            Observation::Faulted(Fault::Crash(_)) => *member = Member::default(),
            Observation::Told(Event::Lost { reason, .. }) => {
                member.flag = false;
                member.installed &= *reason == Reason::Expired;
            }
            Observation::Told(Event::Promised { .. }) => member.installed = false,
            Observation::Told(Event::Installed { term }) => {
                member.flag = true;
                member.installed = true;
                member.term = *term;
            }
            Observation::Delivered { from, message: Message::Promise { term, .. } } => {
                member.promises.insert(*from, (*term, moment.local));
            }
            _ => {}
        }
    }
}
