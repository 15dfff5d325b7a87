//! What a wrapper and its guard say to each other, and the clock that both read.
//!
//! A pair of sockets that keep messages apart: one JSON document each. The first order carries the
//! command's standard input beside it, since the guard's own is the socket, and the lock of the member's
//! state, if it has one. Neither side ever waits for the other to read: a wrapper that has been stopped must
//! not hold its guard up, nor the other way round. The end of the socket is a message too: the other process
//! is gone.
//!
//! A file descriptor could also be inherited by its number, but taking one over by number is `unsafe` in
//! Rust, and rightly so.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// No message is longer; the longest names processes that cannot be killed.
const MAX_BYTES: usize = 4096;

/// Files that one message hands over at most: standard input and a lock.
const MAX_FILES: usize = 2;

/// What of a lease is kept for the killing itself: a tree of processes is gone in a few milliseconds, but on
/// a busy host its killer may have to wait for the processor.
const RESERVE: Duration = Duration::from_millis(100);

/// Time since the host was started, suspension included. All processes of a host read the same.
pub(crate) fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// How long a mandate holds if it is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Until {
    /// For as long as nobody says otherwise: there are no leases.
    Unbounded,
    /// A lease.
    At {
        /// Its end, by [`boottime`].
        at: Duration,
        /// Its whole length.
        of: Duration,
    },
}

impl Until {
    /// When the command is asked to end if the lease has not been renewed: a third of it is left.
    pub(crate) fn ask_at(self) -> Option<Duration> {
        match self {
            Until::Unbounded => None,
            Until::At { at, of } => Some(at.saturating_sub(of / 3)),
        }
    }

    /// When it is killed.
    pub(crate) fn kill_at(self) -> Option<Duration> {
        self.less(1)
    }

    /// When the wrapper steps in for a guard that has not done so.
    pub(crate) fn step_in_at(self) -> Option<Duration> {
        self.less(2)
    }

    fn less(self, share: u32) -> Option<Duration> {
        match self {
            Until::Unbounded => None,
            Until::At { at, of } => {
                let reserve = RESERVE.min(of / 6);
                Some(at.saturating_sub(reserve / share))
            }
        }
    }
}

/// What a wrapper orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The mandate holds until then; the first of these starts the command.
    Until(Until),
    /// Send this signal to the command's process group.
    Signal(i32),
    /// End everything: send this signal, and kill what is left at that time.
    End { signal: i32, by: Duration },
}

/// What a guard reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The lease was not renewed in time: it is ending the command.
    Ending,
    /// Nothing of the command is left.
    Gone {
        /// The command's exit code, or 128 and the signal that ended it; absent if it was not started.
        code: Option<u8>,
        /// Whether it ended by itself, and not because it was told to or killed.
        by_itself: bool,
    },
    /// These cannot be killed.
    Stuck(String),
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Socket {
    pub(crate) fn pair() -> rustix::io::Result<(Socket, Socket)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Socket(one), Socket(other)))
    }

    /// Sends a message, and hands these files over with it.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        files: &[BorrowedFd<'_>],
    ) -> rustix::io::Result<()> {
        let bytes = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(Errno::INVAL);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut beside, flags)?;
        Ok(())
    }

    /// The next message, if one is there.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> rustix::io::Result<Heard<T>> {
        let mut bytes = [0; MAX_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
        let length = match received {
            Ok(received) => received.bytes,
            Err(Errno::AGAIN) => return Ok(Heard::Nothing),
            // The other side went without having read all. That is told before what it had said, and once.
            Err(Errno::CONNRESET) => return self.receive(),
            Err(error) => return Err(error),
        };
        if length == 0 {
            return Ok(Heard::End);
        }
        let mut files = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                files.extend(received);
            }
        }
        let message =
            serde_json::from_slice(&bytes[..length.min(MAX_BYTES)]).map_err(|_| Errno::BADMSG)?;
        Ok(Heard::Message(message, files))
    }
}

impl From<OwnedFd> for Socket {
    fn from(socket: OwnedFd) -> Self {
        Socket(socket)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What a socket holds.
pub(crate) enum Heard<T> {
    /// A message, and the files that came with it.
    Message(T, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other side is gone.
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_left_for_asking_killing_and_stepping_in_in_that_order() {
        let at = Duration::from_secs(100);
        for of in [60, 200, 1000, 60_000].map(Duration::from_millis) {
            let until = Until::At { at, of };
            let (ask, kill) = (until.ask_at().unwrap(), until.kill_at().unwrap());
            let step_in = until.step_in_at().unwrap();
            assert!(ask < kill && kill < step_in && step_in < at, "{of:?}");
        }
        assert_eq!(Until::Unbounded.kill_at(), None);
    }

    #[test]
    fn messages_are_kept_apart_and_the_end_is_one_of_them() {
        let (one, other) = Socket::pair().unwrap();
        let orders = [Order::Until(Until::Unbounded), Order::Signal(15)];
        let (stdin, null) = (std::io::stdin(), std::fs::File::open("/dev/null").unwrap());
        one.send(&orders[0], &[stdin.as_fd(), null.as_fd()]).unwrap();
        one.send(&orders[1], &[]).unwrap();
        let next = || other.receive::<Order>().unwrap();
        assert!(
            matches!(next(), Heard::Message(order, files) if order == orders[0] && files.len() == 2)
        );
        assert!(
            matches!(next(), Heard::Message(order, files) if order == orders[1] && files.is_empty())
        );
        assert!(matches!(next(), Heard::Nothing));
        drop(one);
        assert!(matches!(next(), Heard::End));
    }

    #[test]
    fn last_words_are_heard_also_of_one_who_went_without_listening() {
        let (one, other) = Socket::pair().unwrap();
        other.send(&Order::Signal(1), &[]).unwrap();
        one.send(&Order::Signal(15), &[]).unwrap();
        drop(one);
        let next = || other.receive::<Order>().unwrap();
        assert!(matches!(next(), Heard::Message(Order::Signal(15), _)));
        assert!(matches!(next(), Heard::End));
    }
}
