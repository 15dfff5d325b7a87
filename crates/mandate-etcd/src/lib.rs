//! Score-elected leaders for etcd clusters that are there already.
//!
//! etcd's leader is whoever was elected first; where it sits decides how long every write takes. A sidecar
//! beside each member measures what the member would be worth as a leader, the sidecars elect the best among
//! themselves ([peer engine](../mandate_peer/index.html), any oracle), and the elected one has etcd's leader hand over to
//! the member beside it, by etcd's own call (`MoveLeader`).
//!
//! | module | what it is |
//! | --- | --- |
//! | [`client`] | what is asked of a member of etcd, over its JSON gateway: status, members, metrics, the move |
//! | [`figures`] | what a sidecar tells the election about its member: requests, position of the log, health |
//! | [`judgement`] | whether to move now, and whereto, or why not: pure, from what was seen |
//! | [`wishes`] | what an operator wants: hold, drain |
//! | [`steering`] | the loop |
//!
//! Nothing here can make etcd unsafe: a move is an ordinary election of Raft. What it can do is stop writes for an
//! election timeout, if leadership is moved to a member that is stopped, cut off or behind. So the target is looked at
//! before each move, from the leader's side, and figures that are not fresh move nothing.

pub mod client;
pub mod figures;
pub mod judgement;
pub mod steering;
pub mod wishes;

pub use client::{Endpoint, EtcdError, Member, Position};
pub use steering::{Steering, Told};
