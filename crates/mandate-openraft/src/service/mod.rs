//! A replicated key-value service on openraft, led by whom the scores elect.
//!
//! The lab's subject, and the example of how a service adopts a [`Driver`](crate::Driver). Writes are committed by a
//! quorum's disks before they are answered, carried out once however often they are sent, and reads are
//! linearizable, at whichever member a client asks.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`types`] | commands and their outcomes |
//! | `state` | keys, and what each client has had done last |
//! | `snapshot` | the state as a file |
//! | `machine` | state and snapshots, as openraft sees them |
//! | `log` | log and vote on disk, forced together |
//! | [`wire`] | messages as bytes |
//! | `link`, `network` | connections to members; Raft's and the driver's messages over them |
//! | `agreement` | finds where a follower's log agrees with the leader's |
//! | `pipeline` | goes ahead of Raft to a follower |
//! | `server` | answers connections |
//! | `batch` | writes that wait together become one entry |
//! | `member` | what is done with a client's request |
//! | `load` | request rates and latencies, for the oracles |
//! | [`node`] | all of it, as one process |
//! | [`client`] | asks it |
//! | [`program`] | both, as commands |
//! | [`witness`] | clients that find out what cannot have happened |
//!
//! # What a member holds at most
//!
//! The keys and values, in memory; besides:
//!
//! | | bound |
//! | --- | --- |
//! | entries in memory that are on disk | 16 MiB |
//! | writes that wait to become entries | 4,096 |
//! | work that waits for the disk | 256 appends, of a megabyte each or one entry |
//! | connections | 1,024; 1,024 requests under way on each |
//! | calls to one member | 1,024 under way, 64 more that wait to be sent |
//! | a frame | 8 MiB; a key 1 KiB, a value 1 MiB |
//! | clients whose last write is remembered | 100,000, of those that wrote last |
//! | a snapshot being sent or received | a piece of 1 MiB; being made, keys once more, values shared |

mod agreement;
mod batch;
pub mod client;
#[cfg(test)]
mod conformance;
mod link;
mod load;
mod log;
mod machine;
mod member;
mod network;
pub mod node;
mod pipeline;
pub mod program;
mod server;
mod snapshot;
mod state;
pub mod types;
pub mod wire;
pub mod witness;

pub use client::{Client, RequestError};
pub use member::Mutant;
pub use node::{Node, NodeConfig, NodeError, RaftTiming};
pub use wire::Status;
