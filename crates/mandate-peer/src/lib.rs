//! The peer engine: members elect among themselves, with nothing else installed.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`engine`] | a member of a group over these links |
//! | [`links`] | authenticated links between the members of a group, over QUIC |
//!
//! The protocols are in `mandate-proto`, their driver and the handle in `mandate-runtime`.

pub mod engine;
pub mod links;

pub use engine::{Peer, PeerError, PeerSetup};
