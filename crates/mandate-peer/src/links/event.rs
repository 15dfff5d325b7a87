//! What the consumer of links is told, and how it may send.

use std::net::SocketAddr;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::ConfigId;
pub use mandate_runtime::transport::Delivery;

/// What happened to links. For one member `Up` and `Broken` alternate, beginning with `Up`; frames and
/// `WatchBroke` and `Deserted` come between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Frames can be exchanged with this member.
    Up {
        /// The member.
        member: MemberId,
    },
    /// A frame arrived.
    Received {
        /// Its sender, by its certificate.
        from: MemberId,
        /// The version of the protocol that the link speaks.
        version: u32,
        /// The frame, as it was sent.
        frame: Vec<u8>,
    },
    /// The watch broke, and the link is up. The link finds out by itself whether the member is there, and ends if not.
    WatchBroke {
        /// The member.
        member: MemberId,
    },
    /// The watch broke, and nobody listens any more where the member did: its process is gone, most likely. A hint to probe
    /// over the link at once, not a proof of death.
    Deserted {
        /// The member.
        member: MemberId,
    },
    /// The connection broke, or the other side did not answer after its watch broke.
    Broken {
        /// The member.
        member: MemberId,
    },
    /// A connection was refused because the other side has another list of members or another guarantee. Told at
    /// every attempt.
    Differs {
        /// The member.
        member: MemberId,
        /// What its configuration comes to.
        config: ConfigId,
    },
    /// Two processes show the id of a member, which may be this one. Told once a minute.
    Twin {
        /// The member.
        member: MemberId,
    },
    /// A connection was refused, by us or by the other side. Told once for an address and a reason,
    /// until the reason changes or the link comes up.
    Refused {
        /// Whom it concerns, where that is known.
        member: Option<MemberId>,
        /// The other side's address.
        address: SocketAddr,
        /// What is wrong and what to do, for an operator.
        reason: String,
    },
}
