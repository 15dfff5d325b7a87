//! Leader election in a few lines: among the processes themselves, on a database, or on Kafka.
//!
//! A process becomes a [`Member`] of a group and leads while it holds a [`Mandate`]: a term to fence with, and a deadline that
//! [`check`](Mandate::check) compares with the clock at every call. The member has one shape whatever elects; what an engine does
//! not know is `None`.
//!
//! | feature | module | what elects | needs |
//! | --- | --- | --- | --- |
//! | `peer` (default) | [`peer`] | the members among themselves | certificates and a file for each member |
//! | `sqlite`, `postgres`, `mysql` | [`sql`] | a row of a database | the database that is there |
//! | `kafka` | [`kafka`] | a consumer group's coordinator; many roles | the Kafka that is there |
//!
//! ```no_run
//! # #[cfg(feature = "peer")]
//! # async fn example() -> Result<(), mandate::Error> {
//! let member = mandate::peer::from_file("group/p1.toml")?.start().await?;
//! member
//!     .lead(async |mandate| {
//!         while mandate.check() {
//!             work(mandate.term()).await;
//!         }
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! # async fn work(_: mandate::Term) {}
//! ```
//!
//! What a leader may rely on is the group's [`Guarantee`]. `check` is for deciding whether to begin something; what is sent to
//! another system may arrive after any deadline, so send the [`Term`] along and have that system refuse lower ones.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`config`] | the configuration file, the same that the daemon `mandate node` reads |
//! | [`peer`], [`sql`], [`kafka`] | how a member of each engine is set up |
//! | [`member`] | a member that runs |
//! | [`oracle`] | an oracle of the application's own |
//! | [`roles`] | many roles in one group |
//! | `telemetry` | figures through the `metrics` facade (feature `metrics`) |
//! | [`proto`], [`runtime`] | the protocols as pure machines, for those who drive them themselves; the election handle |

#[cfg(not(any(feature = "peer", feature = "sql", feature = "ledger")))]
compile_error!("choose what elects: the feature peer, sqlite, postgres, mysql or kafka");

pub mod config;
mod error;
#[cfg(feature = "ledger")]
pub mod kafka;
pub mod member;
mod members;
pub mod oracle;
#[cfg(feature = "peer")]
pub mod peer;
pub mod roles;
#[cfg(feature = "sql")]
pub mod sql;
#[cfg(feature = "metrics")]
pub mod telemetry;

pub use config::{Builder, from_file};
pub use error::{ConfigError, Error};
pub use member::{Member, MemberInfo};
pub use members::Removed;
pub use oracle::Scorer;
pub use roles::{Roles, UnknownRole};

pub use mandate_proto as proto;
pub use mandate_runtime as runtime;

// Everything of the lower crates that a member's interface names, in one place.
pub use mandate_proto::election::{Figures, Guarantee, NoTransfer, State};
pub use mandate_proto::identity::{MemberId, Term};
pub use mandate_proto::oracle::{Oracle, Preference, View};
pub use mandate_proto::pole::installation::{
    Contact, MemberChange, Membership, NoChange, Roster, RosterId,
};
pub use mandate_proto::score::Score;
pub use mandate_proto::value::{InvalidValue, MAX_VALUE_BYTES, NoPublish, Value};
pub use mandate_runtime::event::Record;
pub use mandate_runtime::{
    ChangeError, Election, ElectionState, Event, LeadError, LeaderRequestError, Loan, Mandate,
    Observer, Start, Status,
};

#[cfg(all(doctest, feature = "peer", feature = "sqlite", feature = "kafka"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "peer"))]
#[doc = include_str!("../../../docs/peer.md")]
struct PeerGuide;
