//! Leader election and failure detection as state machines.
//!
//! Nothing here reads a clock, opens a socket, touches a disk or asks the operating system for
//! randomness: time, messages and random numbers come in as arguments, and what is to be done
//! goes out as a list of effects. The same inputs therefore give the same outputs, in a unit
//! test, in the simulator and on a real host. The crate is `no_std`, so the compiler keeps that
//! promise; `cargo xtask purity` checks the rest.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`machine`] | the contract between a protocol and its driver |
//! | [`time`], [`timer`] | the project's own instants, and a table of deadlines |
//! | [`identity`], [`score`] | members, incarnations, terms; what orders candidates |
//! | [`election`] | what no protocol owns: who leads, guarantees, transfers, what a handle asks of a machine |
//! | [`detector`] | NFD-E, the link estimator, the quality-of-service configurator and recorder |
//! | [`oracle`] | what makes a good leader: scores by history, requests, latency, preference, and their combination |
//! | [`pole`] | POLE: leaders elected by scores, with terms and leases |
//! | [`registers`] | election on a database: rows, conditional writes, leases |
//! | [`neli`] | NELI: many roles over the partitions of a ledger such as Kafka |
//! | [`nfd_l`] | NFD-L: a leader election as a failure detector for processes that crash and recover |
//! | [`wire`] | messages as bytes |
//!
//! ```
//! use core::time::Duration;
//! use mandate_proto::detector::configurator::{Bounds, LinkQuality, plan};
//!
//! // "Notice a crash within 1 s, err at most once an hour, and for at most 1 s."
//! let bounds = Bounds::new(
//!     Duration::from_secs(1),
//!     Duration::from_secs(3600),
//!     Duration::from_secs(1),
//! )
//! .unwrap();
//! let link = LinkQuality::new(0.0175917, 25.3356e-6, Duration::ZERO).unwrap();
//! let plan = plan(&bounds, &link, Duration::from_millis(1)).unwrap();
//! assert_eq!(plan.interval.as_micros() / 100, 3306); // 330.6 ms
//! ```

#![no_std]

extern crate alloc;

pub mod detector;
pub mod election;
pub mod identity;
pub mod machine;
pub mod neli;
pub mod nfd_l;
pub mod oracle;
pub mod pole;
pub mod registers;
pub mod score;
pub mod time;
pub mod timer;
pub mod value;
pub mod wire;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
