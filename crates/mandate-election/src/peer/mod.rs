//! Members that elect among themselves, with nothing else installed: QUIC links with mutual TLS.
//!
//! A group needs a file and a certificate for each member; `mandate init` makes both, and `mandate certs` makes certificates
//! alone. Certificates that are replaced while a member runs are used from the next handshake on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_peer::links::{Identity, IdentityFiles};
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Oracle;
use mandate_proto::pole::installation::Safeguard;
use mandate_proto::value::Value;
pub use mandate_runtime::Protocol;
use mandate_runtime::Start;
use mandate_runtime::durable::{DurableError, DurableFile};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::config;
use crate::error::{ConfigError, Error};
use crate::member::{Engine, Member};

mod advice;
mod certificates;

#[doc(hidden)]
pub use advice::warn_if_readable;

pub use mandate_peer as engine;

/// How long beyond a lease a state that is in use is waited for: time for a guard that is busy killing.
const STATE_MARGIN: Duration = Duration::from_secs(2);

const LOOK_AT_STATE: Duration = Duration::from_millis(20);

/// Reads the configuration of a member.
///
/// ```no_run
/// # async fn example() -> Result<(), mandate::Error> {
/// let member = mandate::peer::from_file("group/p1.toml")?.start().await?;
/// # Ok(())
/// # }
/// ```
pub fn from_file(path: impl AsRef<Path>) -> Result<Builder, Error> {
    match config::from_file(&path)? {
        config::Builder::Peer(builder) => Ok(*builder),
        #[allow(unreachable_patterns)]
        _ => Err(ConfigError::of_another_engine(path.as_ref()).into()),
    }
}

/// A member that is set up and does not run yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Builder {
    pub(crate) group: String,
    pub(crate) listen: SocketAddr,
    pub(crate) state: PathBuf,
    pub(crate) peers: BTreeMap<MemberId, String>,
    pub(crate) files: IdentityFiles,
    pub(crate) protocol: Protocol,
    pub(crate) start: Start,
}

impl Builder {
    /// What it starts from, instead of what the file says; default: the state on its disk, which must be there. The first start of a
    /// group is [`Start::New`] at all members, or [`Start::Auto`], with which all later starts can be made, too.
    #[must_use]
    pub fn with_start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Scores candidates by this oracle instead; nothing changes under [`Overlap`](crate::Guarantee::Overlap), where nobody is
    /// scored. All members need the same.
    #[must_use]
    pub fn with_oracle(mut self, oracle: Oracle) -> Self {
        if let Protocol::Pole(config) = self.protocol {
            self.protocol = Protocol::Pole(config.with_oracle(oracle));
        }
        self
    }

    /// Publishes this with every term of this member, from its first moment on, instead of what the file says. Nothing is
    /// published under [`Overlap`](crate::Guarantee::Overlap), which has no terms.
    #[must_use]
    pub fn with_value(mut self, value: Option<Value>) -> Self {
        if let Protocol::Pole(config) = self.protocol {
            self.protocol = Protocol::Pole(config.with_value(value));
        }
        self
    }

    /// Leaves a rule out, so that a harness can show that it notices. Never in a real member.
    #[doc(hidden)]
    #[must_use]
    pub fn without(mut self, safeguard: Option<Safeguard>) -> Self {
        if let Protocol::Pole(config) = self.protocol {
            self.protocol = Protocol::Pole(config.without(safeguard));
        }
        self
    }

    /// What is published with every term of this member.
    pub fn value(&self) -> Option<&Value> {
        match &self.protocol {
            Protocol::Pole(config) => config.value(),
            Protocol::NfdL { .. } => None,
        }
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The protocol, and this member's part in it.
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// Starts the member. A state that is still in use is waited for as long as a command of the member's former incarnation may
    /// act on it.
    pub async fn start(&self) -> Result<Member, Error> {
        self.wait_for_state().await;
        let IdentityFiles { ca, chain, key } = &self.files;
        advice::warn_if_readable(key);
        advice::warn_of_drift(&self.protocol);
        let setup = PeerSetup {
            group: self.group.clone(),
            listen: self.listen,
            peers: self.peers.clone(),
            advertise: None,
            identity: Identity::from_files(ca, chain, key)?,
            protocol: self.protocol.clone(),
            state: self.state.clone(),
            start: self.start,
        };
        let peer = Peer::start(setup).await?;
        let look = Arc::new(Notify::new());
        tokio::spawn(certificates::follow(peer.renewal(self.files.clone()), look.clone()));
        let (me, protocol) = (self.protocol.me(), self.protocol.clone());
        let (guarantee, oracle) = (protocol.guarantee(), oracle(&protocol));
        let engine = Engine::Peer { peer: Box::new(peer), protocol: Box::new(protocol), look };
        let member = Member::new(engine, &self.group, me, guarantee).scored_by(oracle);
        if let Some(lease) = guarantee.lease() {
            tokio::spawn(advice::watch_lease(member.downgrade(), lease));
        }
        Ok(member.with_telemetry())
    }

    /// Waits until nobody else has the member's state, for as long as a command of its former incarnation may act: the guard of
    /// a `mandate run` that was killed shares the lock until its command is gone. If somebody still has it after that, starting
    /// the member says so.
    async fn wait_for_state(&self) {
        let lease = self.protocol.guarantee().lease().unwrap_or_default();
        let bound = lease + STATE_MARGIN;
        let began = Instant::now();
        let mut is_logged = false;
        while let Err(error @ DurableError::InUse { .. }) = DurableFile::is_free(&self.state) {
            if began.elapsed() >= bound {
                return;
            }
            if !is_logged {
                is_logged = true;
                let bound = humantime::format_duration(bound);
                tracing::warn!(
                    "{error} Or a command of its former `mandate run` has not ended yet: waiting for that, up to {bound}"
                );
            }
            sleep(LOOK_AT_STATE).await;
        }
    }
}

fn oracle(protocol: &Protocol) -> Oracle {
    match protocol {
        Protocol::Pole(member) => member.oracle().clone(),
        Protocol::NfdL { .. } => Oracle::constant(),
    }
}
