//! What every engine must show, whatever it elects by.
//!
//! Two kinds of evidence. *Members as processes*: each is a program that acts while its mandate holds and
//! says so; a harness kills, stops, cuts off and restarts them, and a judge looks at everything they did,
//! by one clock. *Handles in one process*: what has to do with futures that are dropped, which no other
//! process can do to one.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`actor`] | the side of the member: drives an [`Election`](mandate_runtime::Election) handle |
//! | [`protocol`] | the lines between a member and the harness, for actors in any language |
//! | [`subject`] | what is tested: how a group of an engine is made and its members started |
//! | [`group`] | the processes, what is done to them, and what they said |
//! | [`process`] | one process: its lines, its signals, its end |
//! | [`history`] | what was done, seen and written |
//! | [`judge`] | what in a history must not be |
//! | [`register`] | a register that takes a write only with a term that is not older |
//! | [`suite`] | the claims on processes, and their runner |
//! | [`cancellation`] | the claims on handles |

pub mod actor;
pub mod cancellation;
pub mod group;
pub mod history;
pub mod judge;
pub mod process;
pub mod protocol;
pub mod register;
pub mod subject;
pub mod suite;
