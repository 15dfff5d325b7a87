//! One host: a process that runs, waits or is down; its clocks; its disk.

use std::collections::VecDeque;

use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effects;

use crate::clock::HostClocks;
use crate::network::HostIndex;
use crate::subject::Subject;
use crate::time::SimTime;

/// Messages that wait for a paused process; more are lost, as in a socket's buffer.
pub(crate) const INBOX: usize = 1024;

/// States of a disk that are remembered.
const COPIES: usize = 8;

/// A host.
pub(crate) struct Host<S: Subject> {
    pub(crate) config: S::Config,
    pub(crate) clock: HostClocks,
    pub(crate) machine: Option<S>,
    pub(crate) stored: Option<S::Stable>,
    /// What was stored before, the latest last: what a copy of the disk may hold.
    pub(crate) copies: VecDeque<S::Stable>,
    /// Whether anything was ever stored.
    pub(crate) has_written: bool,
    /// Its configuration was edited.
    pub(crate) is_edited: bool,
    /// Whether the process that runs, or ran last, goes by what was edited.
    pub(crate) goes_by_edited: bool,
    /// Whether what is stored was stored by such a process.
    pub(crate) stored_edited: bool,
    /// Writes do not end.
    pub(crate) is_stuck: bool,
    /// Rises with every start and every crash: what was scheduled for an earlier incarnation is void.
    pub(crate) incarnation: u32,
    pub(crate) activity: Activity,
    pub(crate) inbox: VecDeque<(MemberId, S::Message)>,
    pub(crate) effects: Effects<S::Effect>,
    /// A write that is under way. Effects behind it wait.
    pub(crate) writing: Option<S::Stable>,
    /// What was acknowledged and is not on disk yet, by a disk that answers too early.
    pub(crate) unwritten: Option<S::Stable>,
    /// The wake-up that is scheduled.
    pub(crate) wake: Option<Wake>,
}

/// A wake-up: for what is due at one time it comes at another, a little later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wake {
    pub(crate) due: SimTime,
    pub(crate) at: SimTime,
}

/// What a process that is up does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Runs,
    /// Does not run; messages wait.
    Paused,
    /// The host sleeps; messages are lost.
    Suspended,
}

impl<S: Subject> Host<S> {
    pub(crate) fn new(config: S::Config, clock: HostClocks) -> Self {
        Host {
            config,
            clock,
            machine: None,
            stored: None,
            copies: VecDeque::new(),
            has_written: false,
            is_edited: false,
            goes_by_edited: false,
            stored_edited: false,
            is_stuck: false,
            incarnation: 0,
            activity: Activity::Runs,
            inbox: VecDeque::new(),
            effects: Effects::new(),
            writing: None,
            unwritten: None,
            wake: None,
        }
    }

    /// A write has reached the disk.
    pub(crate) fn store(&mut self, stable: S::Stable) {
        self.copies.extend(self.stored.replace(stable));
        if self.copies.len() > COPIES {
            self.copies.pop_front();
        }
        self.has_written = true;
        self.stored_edited = self.goes_by_edited;
    }

    /// The disk is put back to what it held so many writes ago, as far as that is remembered.
    pub(crate) fn put_back(&mut self, writes: usize) {
        for _ in 0..writes {
            let Some(older) = self.copies.pop_back() else { return };
            self.stored = Some(older);
        }
    }

    /// Forgets everything that does not survive the process.
    pub(crate) fn end_incarnation(&mut self) {
        self.machine = None;
        self.incarnation += 1;
        self.activity = Activity::Runs;
        self.inbox.clear();
        self.effects = Effects::new();
        self.writing = None;
        self.unwritten = None;
        self.wake = None;
    }
}

/// The member that runs on a host.
pub fn member(host: HostIndex) -> MemberId {
    MemberId::new(host as u32 + 1)
}

/// The host that a member runs on.
pub fn host_of(member: MemberId) -> HostIndex {
    member.get() as usize - 1
}
