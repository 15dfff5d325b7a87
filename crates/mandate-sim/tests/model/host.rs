//! A member with its disk, and what comes of its steps.
//!
//! # Writes
//!
//! What a machine asks for is carried out in order up to the first `Persist`. There the member
//! waits, and handles nothing (as the loop in `mandate_proto::machine` does), until a step of the
//! model says that the write is durable. A crash before that leaves the disk as it was.

use std::hash::Hash;

use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::{Effect, Effects};
use mandate_proto::pole::installation::{Boot, Event, Promised, Stored};

use crate::keyed::Keyed;
use crate::network::Envelope;

/// How many members: the fewest of which two quorums share but one.
pub(crate) const SIZE: usize = 3;

/// All members.
pub(crate) fn ids() -> [MemberId; SIZE] {
    core::array::from_fn(|place| MemberId::new(place as u32 + 1))
}

/// What a member asks for.
pub(crate) type Asked<M> = Effects<Effect<M, Stored, Event>>;

/// When what follows a `Persist` is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// After a step of its own.
    Take,
    /// At once.
    AreInstant,
    /// Mutant: at once, and the write is durable after a step of its own.
    ComeLast,
}

/// What becomes of a disk in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// It stays.
    Kept,
    /// It is gone.
    Lost,
}

/// What is left to do once a write is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Task<M> {
    Write(Stored),
    Send { to: MemberId, message: M },
    Install(Term),
}

/// A member with its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Host<P, M> {
    pub(crate) id: MemberId,
    pub(crate) process: P,
    pub(crate) crashes: u8,
    /// How many of its crashes took the disk along.
    pub(crate) losses: u8,
    disk: Option<Stored>,
    /// A write, and what is to be done after it.
    waiting: Vec<Task<M>>,
}

/// What came of a step of a member.
#[derive(Clone, Debug)]
pub(crate) struct Outcome<P, M> {
    pub(crate) host: Keyed<Host<P, M>>,
    pub(crate) sent: Vec<Keyed<Envelope<M>>>,
    pub(crate) installed: Vec<Term>,
    /// The disk went back to a lower term, or promised one term to two.
    pub(crate) disk_went_back: bool,
}

impl<P, M> Outcome<P, M> {
    /// Whether more came of it than messages.
    pub(crate) fn is_change_of(&self, host: &Keyed<Host<P, M>>) -> bool {
        self.host.key() != host.key() || !self.installed.is_empty()
    }
}

impl<P, M> Host<P, M>
where
    P: Clone + Hash,
    M: Clone + Hash,
{
    /// A member that has just joined: it has written down that all others have answered it.
    pub(crate) fn new(id: MemberId, start: impl Fn(MemberId, Boot, &mut Asked<M>) -> P) -> Self {
        let disk = Some(Stored::from(Promised::ADMITTED));
        let lifetime = lifetime(id, 0);
        let stored = disk.clone();
        let boot =
            Boot { stored, is_new: false, is_changed: false, joins: false, auto: None, lifetime };
        let process = start(id, boot, &mut Effects::new());
        Host { id, process, crashes: 0, losses: 0, disk, waiting: Vec::new() }
    }

    /// It has crashed, and starts again with what is on its disk, if that is not lost.
    pub(crate) fn restart(
        &self,
        disk: Disk,
        writes: Writes,
        start: impl FnOnce(MemberId, Boot, &mut Asked<M>) -> P,
    ) -> Outcome<P, M> {
        let crashes = self.crashes + 1;
        let (stored, losses) = match disk {
            Disk::Kept => (self.disk.clone(), self.losses),
            Disk::Lost => (None, self.losses + 1),
        };
        let lifetime = lifetime(self.id, crashes);
        let disk = stored.clone();
        let boot =
            Boot { stored, is_new: false, is_changed: false, joins: false, auto: None, lifetime };
        let mut asked = Effects::new();
        let process = start(self.id, boot, &mut asked);
        let host = Host { id: self.id, process, crashes, losses, disk, waiting: Vec::new() };
        host.work(tasks(self.id, asked), writes == Writes::AreInstant)
    }

    /// Whether it waits for its disk.
    pub(crate) fn is_writing(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a crash can make it forget anything that it must not.
    pub(crate) fn can_forget(&self) -> bool {
        self.disk != Some(Promised::ADMITTED.into()) || self.is_writing()
    }

    /// Has the member do something.
    pub(crate) fn step(
        &self,
        writes: Writes,
        act: impl FnOnce(&mut P, &mut Asked<M>),
    ) -> Outcome<P, M> {
        let mut host = self.clone();
        let mut asked = Effects::new();
        act(&mut host.process, &mut asked);
        let mut tasks = tasks(self.id, asked);
        if writes == Writes::ComeLast {
            tasks.sort_by_key(|task| matches!(task, Task::Write(_)));
        }
        host.work(tasks, writes == Writes::AreInstant)
    }

    /// The write that the member waits for is durable.
    pub(crate) fn land(&self) -> Outcome<P, M> {
        let mut host = self.clone();
        let mut tasks = core::mem::take(&mut host.waiting);
        let mut went_back = false;
        if let Some(Task::Write(stored)) = tasks.first().cloned() {
            tasks.remove(0);
            went_back = host.write(stored);
        }
        let mut outcome = host.work(tasks, false);
        outcome.disk_went_back |= went_back;
        outcome
    }

    /// Works until there is a write to wait for.
    fn work(mut self, tasks: Vec<Task<M>>, instant: bool) -> Outcome<P, M> {
        let (mut sent, mut installed, mut disk_went_back) = (Vec::new(), Vec::new(), false);
        let mut tasks = tasks.into_iter();
        while let Some(task) = tasks.next() {
            match task {
                Task::Write(stored) if instant => disk_went_back |= self.write(stored),
                Task::Write(stored) => {
                    self.waiting = core::iter::once(Task::Write(stored)).chain(tasks).collect();
                    break;
                }
                Task::Send { to, message } => {
                    sent.push(Keyed::new(Envelope { from: self.id, to, message }));
                }
                Task::Install(term) => installed.push(term),
            }
        }
        Outcome { host: Keyed::new(self), sent, installed, disk_went_back }
    }

    /// Whether the disk went back by that.
    fn write(&mut self, stored: Stored) -> bool {
        let promised = stored.promised;
        self.disk.replace(stored).is_some_and(|Stored { promised: before, .. }| {
            promised.term < before.term || promised.term == before.term && promised.to != before.to
        })
    }
}

/// A member's incarnation after so many crashes.
pub(crate) fn lifetime(id: MemberId, crashes: u8) -> Incarnation {
    Incarnation::new(u64::from(id.get()) << 8 | u64::from(crashes))
}

/// What the group sees of what was asked for.
fn tasks<M: Clone>(id: MemberId, mut asked: Asked<M>) -> Vec<Task<M>> {
    let mut tasks = Vec::new();
    for effect in asked.drain() {
        match effect {
            Effect::Persist(stored) => tasks.push(Task::Write(stored)),
            Effect::Send { to, message } => tasks.push(Task::Send { to, message }),
            Effect::Broadcast(message) => {
                let others = ids().into_iter().filter(|to| *to != id);
                tasks.extend(others.map(|to| Task::Send { to, message: message.clone() }));
            }
            Effect::Tell(Event::Installed { term }) => tasks.push(Task::Install(term)),
            Effect::Tell(_) => {}
        }
    }
    tasks
}
