//! Every bound, with its reason. The module's documentation shows them in a table.

use std::time::Duration;

/// No datagram is longer. A protocol message without a value has 256 bytes at most, and a datagram must fit the smallest
/// packet that QUIC guarantees (1200 bytes).
pub const MAX_FRAME_BYTES: usize = 1024;

/// No frame of a stream is longer: a list of 64 members with the longest names and addresses, which is longer than any value
/// that a leader publishes.
pub const MAX_STREAM_FRAME_BYTES: usize = mandate_proto::wire::MAX_BYTES;

/// A group's name is one label of a DNS name.
pub(crate) const MAX_GROUP_BYTES: usize = 63;

/// What a member says of its configuration in the greeting: 64 ids of ten digits, and an oracle.
pub(crate) const MAX_SETTINGS_BYTES: usize = 2048;

/// How often a member that ought to dial us, and does not, is asked why: longer than it takes to dial.
pub(crate) const INQUIRE_EVERY: Duration = Duration::from_secs(4);

/// Connections of one kind, QUIC or TCP, that have not yet said who they are: a group has 64 members at
/// most, and all of them may come back at once.
pub(crate) const MAX_NEWCOMERS: usize = 128;

/// Those of one host. A handshake takes milliseconds, so members of one host that come back together
/// hardly meet it, and find a place at their next attempt.
pub(crate) const MAX_NEWCOMERS_PER_HOST: usize = 16;

/// With this many under way, a newcomer first proves that it can be reached at its address. Well below what one
/// host may have, so that whoever forges a member's address cannot take all its places.
pub(crate) const UNVALIDATED_ALLOWED: usize = 6;

/// How long a handshake may take: several round trips around the world, some of them lost.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a TCP connection may stay without a number, and how long a number is good.
pub(crate) const NONCE_LIFETIME: Duration = Duration::from_secs(5);

/// How long the dialler tries to open a watch before it does without. Long enough for one lost SYN,
/// which is sent again after 1 s.
pub(crate) const WATCH_TIMEOUT: Duration = Duration::from_secs(2);

/// A watch that could not be opened is tried again after this: firewalls are seldom changed.
pub(crate) const WATCH_AGAIN: Duration = Duration::from_secs(30);

/// How long the other side may take to say that it is there, besides some round trips: a busy host takes a
/// while to answer, and a process that was restarted waits for it.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// So that one lost packet is not taken for a death.
pub(crate) const PROBE_ROUND_TRIPS: u32 = 4;

/// Words about a link that wait to be heard. Members say one at a time.
pub(crate) const WORDS: usize = 8;

/// Processes that wait at a time to hear whether the one that shows their id is there.
pub(crate) const MAX_CHALLENGES: usize = 8;

/// An idle TCP connection shows itself to what lies on the way, and finds out if that has forgotten it: more often than
/// the minute after which the strictest forget.
pub(crate) const WATCH_KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const WATCH_KEEP_ALIVE_RETRY: Duration = Duration::from_secs(5);
pub(crate) const WATCH_KEEP_ALIVE_RETRIES: u32 = 4;

/// A twin is told of again after this.
pub(crate) const TWIN_AGAIN: Duration = Duration::from_secs(60);

/// What was wrong with a member is forgotten when it has not come again for so long.
pub(crate) const TROUBLE_FADES: Duration = Duration::from_secs(30);

/// Members that are not in our list, and of which is remembered what they are configured with: as many as a group may have.
pub(crate) const MAX_STRANGERS: usize = 64;

/// Processes that are not on our list of members, go by another list, and are let in to hear of ours or to tell us theirs: members
/// come and go one at a time.
pub(crate) const MAX_GUESTS: usize = 16;

/// How long the link with a member lasts that was removed, so that it hears of that: as long as the silence after which any
/// link ends. Who did not hear of it may come back as a guest.
pub(crate) const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// Frames waiting for a member's stream: more than the protocol sends within the 3 s after which a silent link ends. Few of
/// them are values or lists of members; if all were the longest list, they would take 3.5 MiB.
pub(crate) const QUEUE_FRAMES: usize = 256;

/// Datagrams held for sending, and for reading. When full the oldest goes: a newer heartbeat says more.
pub(crate) const DATAGRAM_BUFFER_BYTES: usize = 64 * 1024;

/// What the other side may send on its stream before we have read it.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// First packets held for one connection before it is accepted, and for all.
pub(crate) const INCOMING_BUFFER_BYTES: u64 = 16 * 1024;
pub(crate) const INCOMING_BUFFER_TOTAL_BYTES: u64 = 1024 * 1024;

/// Connections that the endpoint holds for us to accept. We accept or refuse at once.
pub(crate) const MAX_INCOMING: usize = 256;

/// A sign of life; six of them fit into the silence that ends a link.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_millis(500);

/// After this silence the other side is gone.
pub(crate) const IDLE_TIMEOUT_MILLISECONDS: u32 = 3000;

/// What a round trip is taken for before one was measured. QUIC's own 333 ms would have the first
/// packet to a member that is just starting repeated only after a second.
pub(crate) const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);

/// Events not yet taken by the consumer.
pub(crate) const EVENT_QUEUE: usize = 1024;

/// The pause before a second attempt, and the longest.
pub(crate) const BACKOFF_FIRST: Duration = Duration::from_millis(50);
pub(crate) const BACKOFF_LONGEST: Duration = Duration::from_secs(2);

/// A link that was up for this long was a good one: the next attempt comes soon.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Addresses of one name that are tried.
pub(crate) const MAX_ADDRESSES: usize = 4;

/// Addresses whose last refusal is remembered.
pub(crate) const MAX_REPORTED: usize = 256;

/// Reports of refusals within [`REPORT_WINDOW`]: strangers on many ports must not fill a log.
pub(crate) const MAX_REPORTS_PER_WINDOW: u32 = 32;
pub(crate) const REPORT_WINDOW: Duration = Duration::from_secs(10);

/// What goes on for this long is told again.
pub(crate) const REPORT_AGAIN: Duration = Duration::from_secs(3600);

/// What is kept of a text that the other side sent.
pub(crate) const MAX_FOREIGN_TEXT: usize = 300;

/// How long the others may take to say that they have heard the last words: several round trips around
/// the world. Who does not waits for the lease, as after a crash.
pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_millis(500);

/// How long closing may take.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
