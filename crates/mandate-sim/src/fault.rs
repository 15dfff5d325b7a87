//! What can go wrong, one thing at a time.

use core::fmt;
use core::time::Duration;

use crate::link::LinkModel;
use crate::network::HostIndex;

/// Something that happens to a host or to the network.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The process ends at once. What it had begun to write may or may not be on disk.
    Crash(HostIndex),
    /// The process starts again.
    Recover {
        /// The host whose process starts.
        host: HostIndex,
        /// Whether what it had stored is still there.
        disk: DiskFate,
    },
    /// The process stops running; messages pile up (SIGSTOP, a long garbage collection).
    Pause(HostIndex),
    /// It runs on, after a pause or a suspension.
    Resume(HostIndex),
    /// The whole host sleeps; messages to it are lost.
    Suspend {
        /// The host that sleeps.
        host: HostIndex,
        /// Whether its monotonic clock stands still meanwhile.
        clock_stops: bool,
    },
    /// Messages in one direction are lost from now on.
    Cut {
        /// Sender.
        from: HostIndex,
        /// Receiver.
        to: HostIndex,
    },
    /// They are not any more.
    Mend {
        /// Sender.
        from: HostIndex,
        /// Receiver.
        to: HostIndex,
    },
    /// Cuts both directions between the hosts in the set (bit k for host k) and all others.
    Partition(u64),
    /// Mends all cuts.
    Heal,
    /// Somebody sets a host's wall clock.
    StepWall {
        /// Which host.
        host: HostIndex,
        /// By how much, in nanoseconds.
        by_nanos: i64,
    },
    /// All links become like this.
    SetLinks(Box<LinkModel>),
    /// One direction of one link does.
    SetLink {
        /// Sender.
        from: HostIndex,
        /// Receiver.
        to: HostIndex,
        /// What it becomes like.
        model: Box<LinkModel>,
    },
    /// Writes on this host do not end from now on: its disk is stuck, or full and tried again and again.
    StickDisk(HostIndex),
    /// They do again, those that wait as well.
    FreeDisk(HostIndex),
    /// An operator edits the host's configuration: its process goes by that from its next start on.
    Edit(HostIndex),
}

/// What became of a host's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFate {
    /// It is as it was.
    Kept,
    /// It is empty.
    Lost,
    /// It was put back to what it held this many writes before.
    Restored(usize),
}

impl Fault {
    /// The same on hosts whose monotonic clocks count suspension, as leases assume.
    pub fn with_counted_suspension(self) -> Self {
        match self {
            Fault::Suspend { host, .. } => Fault::Suspend { host, clock_stops: false },
            fault => fault,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash(host) => write!(f, "crash {}", MemberName(*host)),
            Fault::Recover { host, disk: DiskFate::Kept } => {
                write!(f, "recover {}", MemberName(*host))
            }
            Fault::Recover { host, disk: DiskFate::Lost } => {
                write!(f, "recover {} without its disk", MemberName(*host))
            }
            Fault::Recover { host, disk: DiskFate::Restored(writes) } => {
                write!(
                    f,
                    "recover {} with its disk as it was {writes} writes ago",
                    MemberName(*host)
                )
            }
            Fault::Pause(host) => write!(f, "pause {}", MemberName(*host)),
            Fault::Resume(host) => write!(f, "resume {}", MemberName(*host)),
            Fault::Suspend { host, clock_stops: false } => {
                write!(f, "suspend {}", MemberName(*host))
            }
            Fault::Suspend { host, clock_stops: true } => {
                write!(f, "suspend {} with its clock", MemberName(*host))
            }
            Fault::Cut { from, to } => {
                write!(f, "cut {} -> {}", MemberName(*from), MemberName(*to))
            }
            Fault::Mend { from, to } => {
                write!(f, "mend {} -> {}", MemberName(*from), MemberName(*to))
            }
            Fault::Partition(side) => {
                let inside = (0..u64::BITS as usize).filter(|host| side & (1 << host) != 0);
                let names: Vec<_> = inside.map(|host| MemberName(host).to_string()).collect();
                write!(f, "partition {{{}}} from the rest", names.join(" "))
            }
            Fault::Heal => write!(f, "heal all cuts"),
            Fault::StepWall { host, by_nanos } => {
                let sign = if *by_nanos < 0 { '-' } else { '+' };
                let by = Duration::from_nanos(by_nanos.unsigned_abs());
                write!(f, "step the calendar of {} by {sign}{by:?}", MemberName(*host))
            }
            Fault::SetLinks(model) => write!(f, "links become {model:?}"),
            Fault::SetLink { from, to, model } => {
                write!(f, "{} -> {} becomes {model:?}", MemberName(*from), MemberName(*to))
            }
            Fault::StickDisk(host) => write!(f, "the disk of {} is stuck", MemberName(*host)),
            Fault::FreeDisk(host) => write!(f, "the disk of {} is free", MemberName(*host)),
            Fault::Edit(host) => write!(f, "the configuration of {} is edited", MemberName(*host)),
        }
    }
}

/// A host's name as a member: host 0 is `p1`.
pub struct MemberName(pub HostIndex);

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0 + 1)
    }
}
