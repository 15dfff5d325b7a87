//! Why a member does not start, or has ended.

use std::fmt;
use std::path::Path;

use mandate_proto::identity::MemberId;
use mandate_proto::value::{InvalidValue, NoPublish};
use mandate_runtime::LeaderRequestError;

use crate::roles::UnknownRole;

/// Why a member does not start, or has ended by itself. A member that does not start leaves nothing running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Certificates or key cannot be read, or do not fit together.
    #[cfg(feature = "peer")]
    #[error(transparent)]
    Identity(#[from] mandate_peer::links::InvalidIdentity),
    /// The member cannot listen, or its state cannot be used.
    #[cfg(feature = "peer")]
    #[error(transparent)]
    Peer(#[from] mandate_peer::PeerError),
    /// The database cannot be used.
    #[cfg(feature = "sql")]
    #[error(transparent)]
    Sql(#[from] mandate_sql::SqlError),
    /// Another running process has this id.
    #[error("{member} runs already, as {label}: give this one another id, or none")]
    InUse {
        /// The id.
        member: MemberId,
        /// The other process.
        label: String,
    },
    /// Kafka cannot be used, or does not grant what is wanted.
    #[cfg(feature = "ledger")]
    #[error(transparent)]
    Kafka(#[from] mandate_ledger::StartError),
    /// This build lacks the engine.
    #[error("this program was built without {engine}: build it with the feature `{feature}`")]
    NotBuilt {
        /// What is missing.
        engine: &'static str,
        /// The cargo feature.
        feature: &'static str,
    },
    /// The group has no such role.
    #[error(transparent)]
    Role(#[from] UnknownRole),
    /// Nobody asks the application for a score.
    #[error(
        "this group asks no application for scores{}: name `application` in its oracle, once for each component of the score",
        .0.as_ref().map(|oracle| format!(" (its oracle is `{oracle}`)")).unwrap_or_default()
    )]
    NotAsked(Option<String>),
    /// That cannot be published.
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// It was not published, and nothing has changed.
    #[error("the value was not published: {0}")]
    NotPublished(#[from] NoPublish),
    /// What the leader was asked for was not done, or may have been: its kind says which.
    #[error(transparent)]
    Request(#[from] LeaderRequestError),
    /// A leader that was to be removed leads no more, and is a member still.
    #[error("{member} led and has handed leadership over to {to}, but is a member still: {error}")]
    HandedOver {
        /// The former leader.
        member: MemberId,
        /// Its successor.
        to: MemberId,
        /// Why it is a member still.
        error: Box<Error>,
    },
    /// Nobody could reach a new member there.
    #[error(
        "`{address}` is not where the other members could reach {member}: write host:port, as in 10.0.0.4:7101, with a host that \
         they can resolve or an address of one network card (not 0.0.0.0)"
    )]
    Unreachable {
        /// The new member.
        member: MemberId,
        /// What was said of where it is.
        address: String,
    },
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
    /// The member was not shut down and has ended.
    #[error("the member has ended: {0}")]
    Ended(String),
}

impl Error {
    /// Whether it stays, however long one waits and tries again: a wrong password stays, a server that is not up yet does not.
    pub fn is_final(&self) -> bool {
        match self {
            #[cfg(feature = "sql")]
            Error::Sql(error) => error.is_final(),
            #[cfg(feature = "ledger")]
            Error::Kafka(mandate_ledger::StartError::Ledger(error)) => error.is_final(),
            _ => true,
        }
    }
}

/// What is wrong with a configuration, and what to write instead.
pub struct ConfigError(anyhow::Error);

impl ConfigError {
    pub(crate) fn new(error: anyhow::Error) -> Self {
        ConfigError(error)
    }

    #[cfg_attr(not(any(feature = "peer", feature = "sql", feature = "ledger")), allow(dead_code))]
    pub(crate) fn of_another_engine(path: &Path) -> Self {
        ConfigError(anyhow::anyhow!("{} is of another engine", path.display()))
    }

    /// The same, with the file that it is about.
    pub(crate) fn of(self, path: &Path) -> Self {
        ConfigError(self.0.context(format!("{} cannot be used", path.display())))
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
