//! Mandate's SQL engine: at most one leader, on the database that a service already has.
//!
//! Members meet in a few small tables of SQLite, PostgreSQL, MySQL or MariaDB. Each decision is one conditional
//! write, by the rules of [`mandate_proto::registers`], which say what is guaranteed and what is assumed for it.
//! What an application holds is the same [`Election`](mandate_runtime::Election) as with any other engine.
//!
//! ```no_run
//! use mandate_proto::identity::MemberId;
//! use mandate_proto::registers::Config;
//! use mandate_sql::{Database, Setup, Sql};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::lan(MemberId::new(1));
//! let database = Database::open(&"sqlite:./mandate.db".parse()?, config.round()).await?;
//! let setup = Setup { group: "backup".into(), label: "host a".into(), config };
//! let member = Sql::start(&database, setup)?;
//! member.election().lead(async |mandate| println!("leading in term {}", mandate.term())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each database is a cargo feature: `sqlite` (on by default), `postgres`, `mysql` (MariaDB, too). None needs another. SQLite is
//! bundled, and a program can link one SQLite only: where another crate brings its own, say `default-features = false`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`database`] | connections that are shared, and what can be read |
//! | [`engine`] | a member, and the loop that drives it |
//! | [`fence`] | a term, checked in your own transaction |
//! | [`roles`] | many roles over the members of one group |
//! | [`schema`] | the tables |
//! | [`url`] | which database |

#[cfg(not(any(feature = "sqlite", feature = "postgres", feature = "mysql")))]
compile_error!(
    "choose a database: build mandate-sql with the feature `sqlite`, `postgres` or `mysql`"
);

mod backend;
mod batch;
pub mod database;
mod dbms;
mod durability;
pub mod engine;
pub mod error;
pub mod fence;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod reconnecting;
mod reminder;
pub mod roles;
mod rows;
pub mod schema;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod server;
mod session;
mod session_lock;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statements;
pub mod url;
mod warnings;

#[cfg(all(test, feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod tests;

pub use database::Database;
pub use engine::{Setup, Sql};
pub use error::SqlError;
pub use roles::SqlRoles;
pub use url::Address;

#[cfg(all(doctest, feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[doc = include_str!("../../../docs/sql.md")]
struct Guide;
