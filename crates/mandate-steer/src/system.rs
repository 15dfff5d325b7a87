//! What a steered system must offer: who leads, how each server is, and a way to move leadership.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a system could not be asked, in words for an operator, with what to do about it.
pub type SystemError = Box<dyn std::error::Error + Send + Sync>;

/// A server, as the system's own tools write it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(Arc<str>);

impl ServerId {
    /// The server that is called so.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        ServerId(name.into())
    }

    /// What it is called.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A server, as the system lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteeredServer {
    /// Its id.
    pub id: ServerId,
    /// Where it can be asked.
    pub address: String,
}

/// Where a server is in the log, and which one it takes for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The server that answered.
    pub server: ServerId,
    /// The one that it takes for the leader, if any.
    pub leader: Option<ServerId>,
    /// The system's own term. It rises by one with each election.
    pub term: u64,
    /// The last entry of the log that it knows to be committed.
    pub index: u64,
    /// Whether it votes. Servers that only follow cannot lead.
    pub votes: bool,
    /// Why it could not lead well, if there is a reason: a full disk, say. Troubles of other servers do not belong here.
    pub trouble: Option<String>,
}

/// What operators want of all sidecars.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Leadership stays where it is; why.
    pub hold: Option<String>,
    /// Servers that should not lead.
    pub drained: BTreeSet<ServerId>,
}

/// A system that elects its leader by itself, as seen by the sidecar beside one of its servers.
///
/// Calls block, for `within` at most; the sidecar makes them where that is allowed. A server that is stopped keeps its connections
/// open and never answers, so the bound matters.
pub trait System: Send + Sync + 'static {
    /// What the system is called in messages: `etcd`.
    fn name(&self) -> &'static str;

    /// Where the server is that the sidecar stands beside, as [`servers`](System::servers) lists it.
    fn own_address(&self) -> &str;

    /// How the own server is.
    fn own(&self, within: Duration) -> Result<Position, SystemError>;

    /// How many requests of clients the own server has served since it was started, of those that wait for the leader.
    fn requests(&self, within: Duration) -> Result<u64, SystemError>;

    /// What operators want now. Kept in the system itself, so that every sidecar sees it.
    fn wishes(&self, within: Duration) -> Result<Wishes, SystemError>;

    /// All servers that can be asked.
    fn servers(&self, within: Duration) -> Result<Vec<SteeredServer>, SystemError>;

    /// How another server is.
    fn position(&self, of: &SteeredServer, within: Duration) -> Result<Position, SystemError>;

    /// Has `leader` hand over to `to`. When it fails, the outcome is not known.
    fn move_leader(
        &self,
        leader: &SteeredServer,
        to: &ServerId,
        within: Duration,
    ) -> Result<(), SystemError>;

    /// What the sidecar is not allowed to do and will need, with what to do about it. Asked once, at the start.
    fn missing_rights(&self, within: Duration) -> Result<Option<String>, SystemError> {
        let _ = within;
        Ok(None)
    }
}
