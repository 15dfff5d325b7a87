//! Authenticated links between the members of a group.
//!
//! A link carries frames, which are opaque bytes, between two members. It is one QUIC connection with
//! mutual TLS, and beside it one idle TCP connection, the *watch*.
//!
//! **Who is who.** A member's certificate is signed by the group's certificate authority and names the
//! member: `p5.GROUP.mandate`, as a DNS name. Both sides check the other's, always. The names are read
//! with `rustls-webpki`, the library that has just verified the chain: a second parser could see a
//! different name in the same bytes, and would be one more thing to trust.
//!
//! **Who dials.** Of each pair the member with the lower id, so there are no duplicates to choose
//! between. The other one asks now and then while there is no link: whoever is not in the list of the one that ought to dial
//! would otherwise never hear of it. A newer connection of a member replaces its older one: the other side knows better than we
//! whether the older one still lives.
//!
//! **How frames travel.** [`Delivery::Datagram`] is a QUIC datagram: lost ones stay lost, so that a
//! failure detector measures the network and not a retransmission. [`Delivery::Stream`] is one long-lived
//! stream for each direction.
//!
//! **The watch.** When a process dies, its kernel closes its TCP connections at once but says nothing
//! about UDP. So the dialler opens a TCP connection to the same port number, whose only job is to break.
//! The accepting side gives out a random number over QUIC, and the dialler repeats it as the first bytes
//! over TCP. A link whose watch cannot be opened (a firewall that lets only UDP through) works without
//! one; a crash is then noticed by timeouts. Whoever can tamper with the network can break a watch, as
//! they can break any connection; they cannot forge one. A watch that breaks is a hint: the link stays up, the
//! other side is asked over it whether it is there, and a new watch is opened beside it. Only if nobody listens any more where
//! the member did is the consumer to hurry (`control`).
//!
//! **One process for each id.** A second process that shows the id of a member that answers is refused, and so is a
//! member whose state was replaced without a word (`twins`).
//!
//! **The end.** A member that stops ends its stream after its last frame: that is its goodbye. The other
//! side closes the connection once it has handed on everything before it, and so says that it has.
//!
//! **Which version.** Each side says which versions of the messages it speaks ([`Versions`]), and frames are in the highest that
//! both do ([`Links::spoken`]); where there is none, both sides are told who is to be upgraded. What a version cannot say keeps
//! its speakers out ([`Settings::since`]): members of a list that it knows nothing of.
//!
//! **Who is let in** must have the same guarantee, and a list of members that can be of the same group ([`Settings`]): votes are counted
//! among one list. Two lists with one number, such as two that groups were set up with, cannot both be right: both sides of a refused
//! link name both lists, also if one of them does not have the other in its list, and the consumer is told
//! ([`LinkEvent::Differs`]). Of two lists with different numbers one is newer, and the protocol tells the one that has the older one; for
//! that a process is let in which is not on our list, as a guest (`peers`).
//!
//! **Members come and go** while links run ([`Links::set_members`]): links that are up stay up, a new member is dialled, and
//! greetings show the present list. Of two members the one with the lower id dials; a member that was added has the highest, so that
//! it is dialled by all others, and need not know where they are. One whose address nobody has said is not dialled, and may dial.
//!
//! **New certificates** count from the next handshake on ([`Renewal`]); links that are up stay up.
//!
//! # Limits
//!
//! Everything a stranger or a member can make us hold is bounded:
//!
//! | what | bound |
//! | --- | --- |
//! | QUIC connections not yet authenticated | 128 in all, 16 a host, for 5 s each; beyond 6 in all, only from addresses that have proved theirs; beyond 128, or 16 of a host, refused |
//! | first packets held for one such connection, for all | 16 KiB, 1 MiB |
//! | words about the link that wait to be heard | 8 |
//! | TCP connections that have not yet said their number | 128 in all, 16 a host, for 5 s each; beyond that the newest is closed |
//! | how long a number for a watch is good | once, within 5 s |
//! | links | one a member, and one a guest |
//! | guests | 16; one that has no link makes room for the next |
//! | how long the link with a member lasts that has left | 3 s |
//! | streams the other side may open | one in both directions (the greeting), one towards us (the frames) |
//! | settings in the greeting | 2 KiB |
//! | members of other lists whose settings are remembered | 64, for 30 s |
//! | a frame | 1 KiB as a datagram, 13.8 KiB on the stream; a longer one ends the connection |
//! | frames queued to a member | 256 on the stream, 64 KiB of datagrams |
//! | bytes received but not yet read | 64 KiB of the stream, 64 KiB of datagrams |
//! | events not yet taken | 1024; then datagrams are dropped, and the rest waits |
//! | refusals remembered, so as to report each once | 256 addresses; 32 new ones in 10 s |
//! | silence | 3 s, with a sign of life every 500 ms; 200 ms and four round trips when the watch broke or another process shows the id |
//! | time between attempts to connect | 50 ms, doubling to 2 s, with jitter |
//! | last words that wait to be read by the others | 500 ms |
//! | [`Links::close`] | 1 s |

mod accept;
mod backoff;
mod connection_limit;
mod control;
mod dial;
mod event;
mod failure;
mod frames;
mod handle;
mod hello;
mod identity;
mod limits;
mod link;
mod name;
mod nonce;
mod peers;
mod renewal;
mod reports;
mod settings;
mod shared;
mod sockets;
mod streams;
mod tls;
mod twins;
mod versions;
mod watch;

pub use event::{Delivery, LinkEvent};
pub use handle::{LinkError, Links, LinksConfig, Spoken};
pub use identity::{Identity, InvalidIdentity};
pub use limits::{MAX_FRAME_BYTES, MAX_STREAM_FRAME_BYTES};
pub use peers::is_reachable;
pub use renewal::{IdentityFiles, Renewal, RenewalCheck, RenewalError};
pub use settings::Settings;
pub use shared::{Dropped, Traffic};
pub use streams::{Caller, StreamTls, StreamTlsError};
pub use versions::Versions;
