//! The ledger engine: many roles over many processes, on the broker that is there already.
//!
//! A [`Ledger`] has partitions and assigns them to the members of groups; [`mandate_proto::neli`] makes roles of
//! that. [`LedgerRoles`] is what an application holds.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`ledger`] | what a ledger must offer |
//! | [`memory`] | one in memory, as a service of this process |
//! | `kafka` | Kafka (feature `kafka`) |
//! | [`engine`] | the loop that drives a member |
//! | [`roles`] | the handle: who leads what, without a lock |
//! | [`status`] | what a member can say of itself |

mod elections;
pub mod engine;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod ledger;
pub mod memory;
pub mod roles;
pub mod status;

pub use engine::{Setup, StartError, start, start_with_value};
pub use ledger::{Ledger, LedgerClient, LedgerError};
pub use roles::{Change, LedgerRoles, Work};
pub use status::{Lead, PartitionStanding, RoleCounts, RolesStatus};

#[cfg(all(doctest, feature = "kafka"))]
#[doc = include_str!("../../../docs/ledger.md")]
struct Guide;
