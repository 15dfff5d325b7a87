//! Leaders by score for services built on openraft.
//!
//! Raft elects the member that times out first and has the log. Where members differ, in how far they are from each other
//! and from the clients, that is seldom the best. Here the peer engine elects by score, and a [`RaftDriver`] beside each
//! member's Raft makes the winner lead: at once where its log allows, and where it lags, as soon as it has caught
//! up, while the best of those that are up to date serves as the *interim*.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`driver`] | what a service adopts: drives its Raft by an election |
//! | [`direction`] | who shall lead Raft, and what is to be done next: the decision, in explicit time |
//! | [`watchdog`] | when Raft elects by itself again |
//!
//! Raft stays what it is: who leads was elected by a quorum that judged its log, and what was committed stays so. A
//! driver, or an election, that is wrong costs time and nothing else.

pub mod direction;
pub mod driver;
pub mod watchdog;

pub use driver::{
    Answer, DriverConfig, DriverStatus, Ended, Gate, Messenger, NotDriven, Order, Pass, RaftDriver,
    Refusal, Request,
};
