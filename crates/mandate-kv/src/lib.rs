//! A replicated key-value service on openraft, led by whom the scores elect.
//!
//! The lab's subject, and the example of how a service adopts a [`RaftDriver`](mandate_openraft::RaftDriver). Writes are committed by a
//! quorum's disks before they are answered, carried out once however often they are sent, and reads are
//! linearizable, at whichever member a client asks.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`types`] | commands and their outcomes |
//! | `shards` | a map that is copied at once |
//! | `state` | keys, and what each client has had done last |
//! | `snapshot` | the state as a file |
//! | `machine` | state and snapshots, as openraft sees them |
//! | `log` | log and vote on disk, forced together |
//! | `storage` | whether a member may start from what it has on disk |
//! | [`wire`] | messages as bytes |
//! | `link`, `network` | connections to members; Raft's and the driver's messages over them |
//! | `agreement` | finds where a follower's log agrees with the leader's |
//! | `pipeline` | goes ahead of Raft to a follower |
//! | `transfer` | sends a snapshot to a follower |
//! | `room` | bytes of values on their way to clients |
//! | `server` | answers connections: who may ask what, and how much |
//! | `batch` | writes that wait together become one entry |
//! | `member` | what is done with a client's request |
//! | `load` | request rates and latencies, for the oracles |
//! | [`node`] | all of it, as one process |
//! | [`client`] | asks it |
//! | [`program`] | both, as commands |
//! | [`linearizable`] | whether what clients saw can have happened |
//! | [`witness`] | clients that find out what cannot have happened |
//!
//! # What a member holds at most
//!
//! The keys and values, in memory, once; twice while a snapshot that was received is read. Besides:
//!
//! | | bound |
//! | --- | --- |
//! | entries in memory that are on disk | 16 MiB |
//! | writes that wait for a quorum | 64 MiB, and 4,096 that wait to become entries; then writes are refused |
//! | work that waits for the disk | 16 appends, of a megabyte each or one entry |
//! | what redb keeps of the log's file | 64 MiB |
//! | requests of clients that are worked on | 64 MiB for all, 4 MiB a frame; then nothing more is read from clients |
//! | values on their way to clients | 64 MiB for all, and one frame from each member; a client that does not take a frame for 30 s is dropped |
//! | connections of clients | 1,024, idle ones make room; 1,024 requests under way on each |
//! | connections of members | two for each, and one that counts among the clients' (requests that it passes on); 32 MiB of messages under way on each of the two, 8 MiB a frame |
//! | connections that have not said who they are | 256, for 5 s each |
//! | messages under way to a follower | 128, and 16 MiB or one message |
//! | pieces of a snapshot under way to a follower | 16, of 1 MiB each |
//! | a key, a value | 1 KiB, 1 MiB |
//! | clients whose last write is remembered | 100,000, of those that wrote last |
//! | a snapshot being made | the parts of the map (of 4,096) that a key changes in meanwhile, once more: with many writes, all keys; values are shared |
//!
//! On disk: the last snapshot, one that is being made or received, and the log since then: 10,000 entries or
//! 256 MiB of keys and values, and before it 5,000 entries or as many bytes.

mod agreement;
mod batch;
pub mod client;
#[cfg(test)]
mod conformance;
pub mod linearizable;
mod link;
mod load;
mod log;
mod machine;
mod member;
mod network;
pub mod node;
mod pipeline;
pub mod program;
mod room;
mod server;
mod shards;
mod snapshot;
mod state;
mod storage;
mod transfer;
pub mod types;
pub mod wire;
pub mod witness;

pub use client::{KvClient, RequestError};
pub use mandate_peer::links::Identity;
pub use member::Mutant;
pub use node::{KvNode, KvNodeConfig, NodeError, RaftTiming};
pub use storage::StorageError;
pub use wire::KvStatus;
