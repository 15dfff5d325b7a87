//! A member of the leased model: the installation, and what a wrong implementation of `mandate()`
//! would answer in its place.

use core::time::Duration;
use std::collections::BTreeMap;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::{Effect, Effects, Machine};
use mandate_proto::pole::installation::{
    self, Boot, Config, Event, Input, Installation, Message, PeerGuarantee, Reason,
};
use mandate_proto::time::Instant;

use crate::host::{Asked, ids};

/// One tick of the clock that all members read. Any length will do.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// How many ticks a promise binds.
pub(crate) const LEASE_TICKS: u32 = 2;

/// No allowance: the clocks of the model do not drift.
const GUARANTEE: PeerGuarantee =
    PeerGuarantee::Leased { lease: TICK.saturating_mul(LEASE_TICKS), allowance_per_mille: 0 };

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timed {
    installation: Installation,
    by_reply: Option<ByReply>,
}

/// A mandate whose deadline is counted from when promises arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ByReply {
    /// Installed in this term, and not lost for any reason but time.
    term: Option<Term>,
    /// For which term each other's promise last arrived, and when.
    arrived: BTreeMap<MemberId, (Term, Instant)>,
}

impl Timed {
    /// Starts a member.
    pub(crate) fn start(
        me: MemberId,
        boot: Boot,
        by_reply: bool,
        now: Instant,
        asked: &mut Asked<Message>,
    ) -> Self {
        let config = Config {
            me,
            members: ids().to_vec(),
            contacts: Default::default(),
            guarantee: GUARANTEE,
            retry: TICK,
            give_up: TICK * 4,
            without: None,
        };
        let installation = Installation::start(config, boot, now, asked);
        Timed { installation, by_reply: by_reply.then(ByReply::default) }
    }

    /// Whether its mandate holds.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        match &self.by_reply {
            Some(by_reply) => by_reply.holds(now),
            None => self.installation.mandate(now).is_some(),
        }
    }

    /// Until when its mandate holds, if it does: what acts on it may outlive the member until then.
    pub(crate) fn acts_until(&self, now: Instant) -> Option<Instant> {
        self.installation.mandate(now).and_then(|(_, until)| until)
    }

    /// Whether a timer is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.installation.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether it claims or holds a term.
    pub(crate) fn is_claiming(&self) -> bool {
        self.installation.is_claiming()
    }

    /// Whom it has promised this term, if anyone.
    pub(crate) fn promised(&self, term: Term) -> Option<MemberId> {
        let promised = self.installation.promised();
        promised.to.filter(|_| promised.term == term)
    }

    pub(crate) fn handle(&mut self, input: Input, now: Instant, asked: &mut Asked<Message>) {
        if let Some(by_reply) = &mut self.by_reply
            && let Input::Received { from, message: Message::Promise { term, .. } } = &input
        {
            by_reply.arrived.insert(*from, (*term, now));
        }
        let mut effects = Effects::new();
        self.installation.handle(input, now, &mut effects);
        self.forward(effects, now, asked);
    }

    /// What is due is done.
    pub(crate) fn time_out(&mut self, now: Instant, asked: &mut Asked<Message>) {
        let mut effects = Effects::new();
        self.installation.handle_timeout(now, &mut effects);
        self.forward(effects, now, asked);
    }

    fn forward(
        &mut self,
        mut effects: Effects<installation::Effect>,
        now: Instant,
        asked: &mut Asked<Message>,
    ) {
        for effect in effects.drain() {
            // How long writes take is no matter here: nothing that is safe rests on it.
            if matches!(effect, Effect::Persist(_)) {
                self.installation.persisted(now);
            }
            if let (Some(by_reply), Effect::Tell(event)) = (&mut self.by_reply, &effect) {
                by_reply.observe(event);
            }
            asked.push(effect);
        }
    }
}

impl ByReply {
    fn holds(&self, now: Instant) -> bool {
        // One other makes a quorum of three: the last to answer counts.
        let ours = self.arrived.values().filter(|(term, _)| Some(*term) == self.term);
        ours.map(|(_, at)| *at + GUARANTEE.lease()).any(|deadline| now < deadline)
    }

    fn observe(&mut self, event: &Event) {
        match event {
            Event::Installed { term } => self.term = Some(*term),
            Event::Lost { reason: Reason::Expired, .. } => {}
            Event::Lost { .. } | Event::Promised { .. } => self.term = None,
            Event::Released { .. }
            | Event::Recovered { .. }
            | Event::WentBack { .. }
            | Event::Differs { .. }
            | Event::RosterChanged { .. }
            | Event::Settled { .. }
            | Event::NotChanged { .. } => {}
        }
    }
}
