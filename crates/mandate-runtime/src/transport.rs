//! What carries messages between members, as the driver sees it.

use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{ConfigId, Roster};
use mandate_proto::wire;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Unreliable, unordered, never repeated: loss is seen as loss, and can be measured.
    Datagram,
    /// Reliable and in order, for as long as the link lasts.
    Stream,
}

/// A message as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The version of the protocol that it is written in: see [`wire`].
    pub version: u32,
    /// The message.
    pub bytes: Vec<u8>,
}

/// Sends frames. Never blocks: what cannot be sent is dropped, and the protocol repeats it.
pub trait Transport: Send + Sync + 'static {
    /// Sends a frame to one member. Dropped, if the connection to it speaks another version by now.
    fn send(&self, to: MemberId, delivery: Delivery, frame: Frame);

    /// The version that the connection to a member speaks: frames for it are written in that. Where there is none, any.
    fn speaks(&self, _to: MemberId) -> u32 {
        wire::VERSION
    }

    /// The round trip to a member, where the transport knows it.
    fn round_trip(&self, _to: MemberId) -> Option<Duration> {
        None
    }

    /// The member goes by this list from now on; told before anything is sent that follows from it, and when the member starts. Where the
    /// members do not change, never.
    fn goes_by(&self, _roster: &Roster) {}
}

/// What arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// A frame.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it sent.
        frame: Frame,
    },
    /// A connection was made.
    Up {
        /// The member.
        member: MemberId,
    },
    /// A connection broke, or nobody listens any more where the member did: a hint that it may be gone.
    Broken {
        /// The member.
        member: MemberId,
    },
    /// A connection was refused, because the member has another list of members or another guarantee.
    Differs {
        /// The member.
        member: MemberId,
        /// What its configuration comes to.
        config: ConfigId,
    },
    /// Two processes run under the id of a member, which may be this one.
    Twin {
        /// The member.
        member: MemberId,
    },
}
