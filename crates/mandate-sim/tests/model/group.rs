//! A group of members and the network between them: what both models share.
//!
//! # Crashes
//!
//! A crash and the start after it are one step. A member that is down takes no step, like one that
//! hears nothing; so a crash at one time and a start at another look like both at the latter, but
//! that the mandate may hold in between, which makes the properties stricter.
//!
//! # What is left out, and why nothing is lost by it
//!
//! The properties look at the members and at who was installed, never at the network, and the
//! network forgets nothing. So of two states with the same members, the one with more messages can
//! do all that the other can, and it is enough to visit that one.
//!
//! - *Answers are given at once.* A message that makes its receiver answer, but leaves it as it is,
//!   is delivered as soon as that is so ([`Group::saturate`]).
//! - *Nobody moves while a member waits for its disk.* It is silent meanwhile, so what others do
//!   may as well come before or after. If time would pass, the write may as well have been asked
//!   for later or the answer be longer under way; and a crash after that time leaves what a crash
//!   without the write would.
//! - *Writes are durable at once where no crash is left*: it is the same as to wait.
//!
//! A test compares both with models that leave nothing out ([`Reduction::None`]).

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::Boot;

use crate::host::{Asked, Disk, Host, Outcome, SIZE, Writes, ids};
use crate::keyed::Keyed;
use crate::memo::Known;
use crate::network::{Envelope, Network};

/// Whether states are left out that show nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// They are.
    Sound,
    /// They are not; for small bounds only.
    None,
}

/// The state that both models share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group<P, M> {
    hosts: [Keyed<Host<P, M>>; SIZE],
    network: Network<M>,
    /// Who was ever installed in which term, in order of terms.
    installed: Vec<(Term, MemberId)>,
    /// A disk went back to a lower term, or promised one term to two.
    disk_went_back: bool,
}

impl<P, M> Group<P, M>
where
    P: Clone + Eq + Hash + Debug,
    M: Clone + Eq + Hash + Debug,
{
    /// Members that have just joined.
    pub(crate) fn new(start: impl Fn(MemberId, Boot, &mut Asked<M>) -> P) -> Self {
        let hosts = ids().map(|id| Keyed::new(Host::new(id, &start)));
        let (network, installed) = (Network::new(), Vec::new());
        Group { hosts, network, installed, disk_went_back: false }
    }

    pub(crate) fn host(&self, id: MemberId) -> &Keyed<Host<P, M>> {
        &self.hosts[place(id)]
    }

    pub(crate) fn process(&self, id: MemberId) -> &P {
        &self.host(id).process
    }

    /// How often members have crashed.
    pub(crate) fn crashes(&self) -> u8 {
        self.hosts.iter().map(|host| host.crashes).sum()
    }

    /// How many of these crashes took a disk along.
    pub(crate) fn losses(&self) -> u8 {
        self.hosts.iter().map(|host| host.losses).sum()
    }

    /// Who waits for its disk.
    pub(crate) fn writing(&self) -> impl Iterator<Item = MemberId> {
        self.hosts.iter().filter(|host| host.is_writing()).map(|host| host.id)
    }

    /// Whether anyone does.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing().next().is_some()
    }

    /// Who may move.
    pub(crate) fn movers(&self, reduction: Reduction) -> Vec<MemberId> {
        let waits = reduction == Reduction::Sound && self.is_writing();
        let moves = |host: &&Keyed<Host<P, M>>| !waits && !host.is_writing();
        self.hosts.iter().filter(moves).map(|host| host.id).collect()
    }

    /// Who may crash.
    pub(crate) fn fragile(&self, reduction: Reduction) -> impl Iterator<Item = MemberId> {
        let waits = reduction == Reduction::Sound && self.is_writing();
        let crashes =
            move |host: &&Keyed<Host<P, M>>| host.can_forget() && (!waits || host.is_writing());
        self.hosts.iter().filter(crashes).map(|host| host.id)
    }

    /// All that may arrive.
    pub(crate) fn sent(&self) -> &[Keyed<Envelope<M>>] {
        self.network.sent()
    }

    /// Has a member do something.
    pub(crate) fn step(
        &mut self,
        id: MemberId,
        writes: Writes,
        act: impl FnOnce(&mut P, &mut Asked<M>),
    ) {
        let outcome = self.host(id).step(writes, act);
        self.apply(id, &outcome);
    }

    /// The write that a member waits for is durable.
    pub(crate) fn land(&mut self, id: MemberId) {
        let outcome = self.host(id).land();
        self.apply(id, &outcome);
    }

    /// A member crashes and starts again.
    pub(crate) fn restart(
        &mut self,
        id: MemberId,
        disk: Disk,
        writes: Writes,
        start: impl FnOnce(MemberId, Boot, &mut Asked<M>) -> P,
    ) {
        let outcome = self.host(id).restart(disk, writes, start);
        self.apply(id, &outcome);
    }

    /// A member has moved.
    pub(crate) fn apply(&mut self, id: MemberId, outcome: &Outcome<P, M>) {
        self.hosts[place(id)] = outcome.host.clone();
        self.network.send(&outcome.sent);
        self.installed.extend(outcome.installed.iter().map(|term| (*term, id)));
        self.installed.sort_unstable();
        self.disk_went_back |= outcome.disk_went_back;
    }

    /// Whether more comes of a delivery than is there already.
    pub(crate) fn is_changed_by(&self, to: MemberId, outcome: Known<P, M>) -> bool {
        outcome.is_some_and(|outcome| {
            outcome.is_change_of(self.host(to))
                || outcome.sent.iter().any(|envelope| !self.network.contains(envelope))
        })
    }

    /// Delivers all that changes nothing but the network, until there is no more of it. `before`
    /// is a state in which that was done, at the same time.
    pub(crate) fn saturate(
        &mut self,
        before: Option<&Self>,
        deliver: impl Fn(&Keyed<Host<P, M>>, &Keyed<Envelope<M>>) -> Known<P, M>,
    ) {
        if self.is_writing() {
            return;
        }
        let before = before.filter(|before| !before.is_writing());
        let is_new = |envelope: &&Keyed<Envelope<M>>| {
            before.is_none_or(|before| {
                let to = envelope.to;
                self.host(to).key() != before.host(to).key()
                    || self.network.key() != before.network.key()
                        && !before.network.contains(envelope)
            })
        };
        let mut unread: Vec<_> = self.sent().iter().filter(is_new).cloned().collect();
        while let Some(envelope) = unread.pop() {
            let host = self.host(envelope.to);
            if let Some(outcome) = deliver(host, &envelope)
                && !outcome.is_change_of(host)
            {
                let new = outcome.sent.iter().filter(|sent| !self.network.contains(sent));
                unread.extend(new.cloned());
                self.network.send(&outcome.sent);
            }
        }
    }

    /// Takes messages out of the network that can never matter again.
    pub(crate) fn forget(&mut self, matters: impl Fn(&P, &Envelope<M>) -> bool) {
        let Group { hosts, network, .. } = self;
        network.retain(|envelope| matters(&hosts[place(envelope.to)].process, envelope));
    }

    /// What the properties see: all but the network, and something besides.
    pub(crate) fn visible(&self, besides: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (besides, &self.hosts, &self.installed, self.disk_went_back).hash(&mut hasher);
        hasher.finish()
    }

    /// No term was held by two members, nor twice by one.
    pub(crate) fn one_leader_per_term(&self) -> bool {
        self.installed.windows(2).all(|pair| pair[0].0 != pair[1].0)
    }

    /// No disk went back to a lower term, and none promised one term to two.
    pub(crate) fn terms_rise(&self) -> bool {
        !self.disk_went_back
    }

    /// Someone was installed.
    pub(crate) fn has_led(&self) -> bool {
        !self.installed.is_empty()
    }

    /// And someone else after it, in a higher term.
    pub(crate) fn has_been_succeeded(&self) -> bool {
        self.installed.windows(2).any(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1)
    }
}

fn place(id: MemberId) -> usize {
    id.get() as usize - 1
}
