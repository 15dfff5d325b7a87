//! A ledger in memory: what Kafka's broker and client do for NELI, and no more, as pure machines.
//!
//! A [`Broker`] coordinates groups and keeps partitions; a [`MemoryClient`] is a member's side of it, and turns
//! what a [`neli::Member`](crate::neli::Member) asks for into [`Call`]s, and [`Reply`]s into what
//! it is told. Time comes in as an argument, and nothing here sends anything: the simulator puts a network
//! between them that delays, cuts and reorders, and `mandate_ledger::memory` has one for the members of a process.
//!
//! It keeps Kafka's rules where they matter for safety: sessions, a join barrier with a bound, generations,
//! commits that are refused to members of an old generation and to strangers, and to nobody else whatever partitions
//! they are about, incremental revocation, a
//! generation that begins anew with an empty group, static membership that takes effect at once. Groups
//! and offsets survive a restart of the broker; sessions begin anew with it, as on Kafka. Groups are coordinated by generations,
//! as in Kafka's classic protocol, or by member epochs, as in its consumer protocol ([`Coordination`]).

mod assignment;
mod broker;
mod client;
mod epochs;
mod group;
mod log;
mod marks;
mod protocol;

pub use assignment::AssignmentRule;
pub use broker::{Broker, BrokerConfig, Coordination};
pub use client::{ClientConfig, MemoryClient, Outgoing, Renewals};
pub use log::Log;
pub use protocol::{Call, ClientId, Fetched, GroupId, HeartbeatReply, InstanceId, Reply, Side};
