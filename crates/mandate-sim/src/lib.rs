//! A deterministic simulator: one seed gives the whole run, and the same trace every time.
//!
//! Machines of [`mandate_proto`] are driven in virtual time, over links that delay, lose, repeat,
//! reorder and cut ([`link`]), on hosts that crash, recover with or without their
//! disk, pause and sleep ([`fault`]), with clocks that drift, step and stand still ([`clock`]).
//! A run has two phases: first faults, in which what must never happen must not happen; then
//! everything heals, and what must happen must happen within a stated bound.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`world`] | the simulation: hosts, network, one queue of events |
//! | [`subject`] | what can be simulated, and what can be observed of it |
//! | [`fault`] | what can go wrong |
//! | [`mutant`] | bugs to put back on purpose, to see them caught |
//! | [`runner`] | many seeds on all cores, and what came of them |
//! | [`nfd_l`] | NFD-L under simulation, with its invariants, one file each |
//! | [`installation`] | terms and leases under simulation, with their invariants |
//! | [`pole`] | election by score, whole: detection, selection, installation, moves |
//! | [`registers`] | election on a database: slow, ambiguous, restored |
//! | [`neli`] | roles on a ledger: pauses, cuts from one side of it, joins, restarts |
//!
//! ```
//! use mandate_sim::nfd_l::{Options, run};
//!
//! let outcome = run(42, &Options::default(), None);
//! assert_eq!(outcome.verdict, Ok(()));
//! ```

mod changes;
pub mod clock;
pub mod fault;
mod first_start;
mod host;
pub mod installation;
pub mod link;
mod mixture;
pub mod mutant;
pub mod neli;
mod network;
pub mod nfd_l;
pub mod pole;
mod queue;
pub mod random;
pub mod registers;
pub mod runner;
mod scenario;
mod storm;
pub mod subject;
pub mod time;
mod trace;
mod values;
pub mod verdict;
mod watch;
pub mod world;

pub use host::{host_of, member};
pub use network::HostIndex;
