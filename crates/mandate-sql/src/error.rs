//! What can go wrong, in words for an operator.

use mandate_proto::registers::InvalidConfig;

use crate::schema::VERSION;
use crate::url::Address;

/// Why something was not done. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SqlError {
    /// The address makes no sense.
    #[error("`{url}` is not the address of a database: {reason}")]
    Address {
        /// What was given, without a password.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The group's name cannot be used.
    #[error(
        "`{0}` cannot be the name of a group: use up to 64 letters, digits, dots, dashes and underscores"
    )]
    Group(String),
    /// There is no way to the database at present: it is down, it is starting, or it takes no more connections.
    #[error("{address} cannot be used: {reason}")]
    Unreachable {
        /// The database's address, without a password.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The database, or its driver, refuses for a reason that does not pass by itself: a wrong password, an unknown
    /// database, a missing privilege, a certificate that is not trusted, a file that may only be read.
    #[error("{address} cannot be used: {reason}")]
    Refused {
        /// The database's address, without a password.
        address: String,
        /// What it said, and what to do.
        reason: String,
    },
    /// The tables are not there.
    #[error(
        "{address} has no tables for elections yet. Make them with `mandate sql init --url URL`, or have \
         someone who may do so run what `mandate sql init --url URL --print` shows"
    )]
    NoSchema {
        /// Which database.
        address: String,
    },
    /// The tables are of another time.
    #[error(
        "the tables for elections in {address} are of version {found}, and this program's are of version \
         {VERSION}: {}",
        if *.found < VERSION { "run `mandate sql init --url URL`" } else { "use a newer program" }
    )]
    Schema {
        /// Which database.
        address: String,
        /// Its version.
        found: i64,
    },
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// A statement failed.
    #[error("{address}: {reason}")]
    Statement {
        /// Which database.
        address: String,
        /// What it said.
        reason: String,
    },
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
}

impl SqlError {
    /// Whether trying again is pointless until somebody has changed something: the address, the database, or what
    /// members are granted. Everything else passes by itself, or may.
    pub fn is_final(&self) -> bool {
        !matches!(self, SqlError::Unreachable { .. } | SqlError::Statement { .. })
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoConnection {
    /// What the database or the driver said.
    pub(crate) reason: String,
    /// Whether it stays so until somebody changes something.
    pub(crate) is_final: bool,
}

impl NoConnection {
    /// The next attempt may succeed.
    pub(crate) fn passing(reason: impl Into<String>) -> Self {
        NoConnection { reason: reason.into(), is_final: false }
    }

    /// No attempt will succeed before somebody has changed something.
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        NoConnection { reason: reason.into(), is_final: true }
    }

    /// For an operator, with the database's address.
    pub(crate) fn at(self, address: &Address) -> SqlError {
        let NoConnection { reason, is_final } = self;
        let address = address.to_string();
        match is_final {
            true => SqlError::Refused { address, reason },
            false => SqlError::Unreachable { address, reason },
        }
    }
}

/// What became of a batch that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What the database or the driver said.
    pub(crate) reason: String,
    /// Whether it may have been carried out.
    pub(crate) unknown: bool,
    /// Whether the session can be used no more.
    pub(crate) broken: bool,
    /// Whether the database will say the same until somebody changes something, as with a missing privilege.
    pub(crate) is_final: bool,
}

impl Trouble {
    /// The database refused it, and nothing was done.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Trouble { reason: reason.into(), unknown: false, broken: false, is_final: false }
    }

    /// Nobody can tell, and the session is gone.
    pub(crate) fn lost(reason: impl Into<String>) -> Self {
        Trouble { reason: reason.into(), unknown: true, broken: true, is_final: false }
    }
}
