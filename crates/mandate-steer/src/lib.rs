//! Leaders by score for clusters that elect by themselves.
//!
//! The leader of such a cluster is the server that was elected first; where it is decides how long every write takes. A sidecar
//! beside each server measures what that server would be worth as a leader, the sidecars elect the best among
//! themselves ([peer engine](../mandate_peer/index.html), any oracle), and the elected one has the cluster's leader hand over to
//! the server beside it, by the cluster's own call.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`system`] | what a steered system must offer: who leads, how each server is, a way to move leadership |
//! | [`etcd`] | etcd as such a system (`MoveLeader`) |
//! | [`judgement`] | whether to move now, and where to, or why not: pure, from what was seen |
//! | [`steering`] | the loop |
//!
//! Nothing here can make such a system unsafe: a move is an ordinary election of its own. What it can do is stop writes for an
//! election timeout, if leadership is moved to a server that is stopped, cut off or behind. So the target is looked at
//! before each move, from the leader's side, and figures that are not fresh move nothing.

pub mod etcd;
pub mod judgement;
mod rate;
pub mod steering;
pub mod system;

pub use etcd::EtcdCluster;
pub use steering::{Steering, SteeringReport};
pub use system::System;
