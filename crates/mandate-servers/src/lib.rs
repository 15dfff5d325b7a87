//! Private servers for tests and experiments: started in a few seconds, put under faults, and gone afterwards.
//!
//! ```no_run
//! use mandate_servers::postgres::{Postgres, PostgresConfig};
//! use mandate_servers::Server;
//!
//! let mut server = Postgres::launch(&PostgresConfig::default())?;
//! println!("{}", server.url());
//! server.kill()?;  // SIGKILL of every process that it has
//! server.start()?; // on the same data and port
//! # Ok::<(), mandate_servers::ServerError>(())
//! ```
//!
//! | module | server | package (Debian) |
//! | --- | --- | --- |
//! | [`postgres`] | PostgreSQL | postgresql |
//! | [`pgbouncer`] | PgBouncer before a PostgreSQL | pgbouncer |
//! | [`mariadb`] | MariaDB | mariadb-server |
//! | [`galera`] | three MariaDB servers that replicate to each other | mariadb-server, galera-4, rsync |
//! | [`etcd`] | etcd, alone or a cluster | etcd-server |
//! | [`zookeeper`] | ZooKeeper | zookeeper, default-jre-headless |
//! | [`kafka`] | Apache Kafka, one node or several | maven, default-jre-headless; jars by Maven |
//!
//! Each has a directory of its own, a port on loopback that was free, and, if this process is root, an
//! unprivileged user. Nothing of a server installed for the whole system is read or touched.
//!
//! A server ends with its value, and with the process that owns it, however that ends: a keeper, a small
//! shell script, waits for the end of a pipe and then kills everything that runs in the server's
//! directory and removes it. The kernel's parent-death signal was rejected: it follows the *thread* that
//! started a process, so that a server shared by several tests would die with the first of them; it does
//! not reach the server's children; and it leaves the directory.
//!
//! Unless said otherwise, servers do not wait for the disk: what they have written survives the death of
//! all their processes, but not that of the machine.

mod home;
mod instance;
mod ports;
mod processes;
mod programs;
mod user;

pub mod etcd;
pub mod galera;
pub mod kafka;
pub mod mariadb;
pub mod pgbouncer;
pub mod postgres;
pub mod testing;
pub mod zookeeper;

use std::io;
use std::path::Path;
use std::time::Duration;

pub use ports::free_ports;

/// A server that faults can be injected into.
pub trait Server {
    /// How a client finds it.
    fn url(&self) -> String;

    /// Starts it again, on the same data and port, and waits until it answers. Does nothing if it runs.
    fn start(&mut self) -> Result<(), ServerError>;

    /// Ends it in good order, and waits until it has ended. Clients are disconnected.
    fn stop(&mut self) -> Result<(), ServerError>;

    /// Ends all its processes at once (SIGKILL), and waits until they are gone.
    fn kill(&mut self) -> Result<(), ServerError>;

    /// Stops all its processes where they are (SIGSTOP): connections stay, and nothing answers.
    fn freeze(&mut self) -> Result<(), ServerError>;

    /// Lets them go on (SIGCONT).
    fn resume(&mut self) -> Result<(), ServerError>;

    /// Its directory, which goes with it.
    fn directory(&self) -> &Path;

    /// What its processes have used of the processors since they were started, those included that have
    /// ended and were waited for.
    fn cpu_time(&self) -> Duration;
}

/// Why a server could not be had, or a fault not be injected.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A program is not installed.
    #[error("{program} was not found: install the package {package}")]
    Missing {
        /// What was looked for.
        program: String,
        /// Which package of Debian brings it.
        package: &'static str,
    },
    /// The system refused.
    #[error("could not {what}: {source}")]
    System {
        /// The operation that failed, as a verb with its object.
        what: String,
        /// What it said.
        source: io::Error,
    },
    /// A program ended, and should not have, or not like this.
    #[error("{program} ended with {status}:\n{said}")]
    Ended {
        /// The program's name.
        program: String,
        /// Its exit status, the signal that ended it, or what was wrong with its answer.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// Something did not happen.
    #[error("not within {bound:?}: {what}\n{said}")]
    NotInTime {
        /// What was waited for.
        what: String,
        /// For how long.
        bound: Duration,
        /// The end of what the server said.
        said: String,
    },
    /// It does not run, and should for this.
    #[error("{0} does not run: start it first")]
    NotRunning(&'static str),
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::System { what, source }
}
