//! What people elect leaders with today, put under the same faults and measured like ours.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`advisory_lock`] | the session that holds PostgreSQL's advisory lock leads |
//! | [`printed`] | the NewSQL paper's algorithm as it is printed, as transactions on PostgreSQL |
//! | [`ours`] | Mandate's SQL engine, beside them |
//! | [`zookeeper`] | ZooKeeper's recipe: ephemeral nodes in a row, each watching the one before |
//! | [`member`], [`members`] | the side of the members: what an election tells, and many members in one process |
//! | [`environment`] | the side of the harness: the processes, and what they said |
//! | [`trial`], [`figures`] | what is done to them, and what is measured |
//!
//! One frame for all, and for engines of Mandate beside them. *Single* processes have one member each, and
//! are started first, so that one of them leads: it can really be killed. A *crowd* is one process with all
//! the other members, each with its own connection or session. The leader *acts* a thousand times a
//! second: it reads the clock, asks whether it leads, and says so. One host, one clock: so acts of several
//! processes can be compared.
//!
//! To put another election into the frame, implement [`Contender`](members::Contender) for its member and
//! [`RivalSystem`](trial::RivalSystem) for what it stands on.

pub mod advisory_lock;
pub mod environment;
pub mod figures;
pub mod member;
mod member_links;
pub mod members;
pub mod ours;
mod postgresql;
pub mod printed;
pub mod trial;
pub mod zookeeper;
