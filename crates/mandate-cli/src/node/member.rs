//! The member of a daemon or a wrapper, whatever engine elects it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mandate_peer::links::{Identity, Settings};
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::identity::MemberId;
use mandate_proto::neli::RoleId;
use mandate_proto::oracle::Oracle;
use mandate_runtime::durable::{DurableError, DurableFile};
use mandate_runtime::{Election, Promise, Protocol, Start};
use mandate_sql::Sql;
use tokio::time::sleep;

use super::access::warn_if_readable;
use super::advice::warn_of_drift;
use super::config::{EngineConfig, NodeConfig, PeerConfig};
use super::document::DifferingDocument;
use crate::ledger::{LedgerConfig, LedgerMember};
use crate::output::readable;
use crate::sql;

/// How long what a table says of members is good enough: whoever asks more often asks the daemon, not the database.
const FRESH: Duration = Duration::from_secs(1);

/// Beyond a lease, for a guard that is busy killing.
const STATE_MARGIN: Duration = Duration::from_secs(2);

const LOOK_AT_STATE: Duration = Duration::from_millis(20);

/// A member that runs.
pub(crate) struct Member {
    engine: Engine,
    me: MemberId,
    promise: Promise,
    oracle: Oracle,
    moves_leaders: bool,
}

enum Engine {
    Peer {
        peer: Box<Peer>,
        others: Vec<MemberId>,
    },
    Sql {
        member: Box<Sql>,
        table: Mutex<Option<(Instant, Arc<[Other]>)>>,
    },
    /// With the election of the group's first role: of the only one, if it has one.
    Ledger {
        member: Box<LedgerMember>,
        first: Election,
    },
}

/// Another member.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub(crate) id: MemberId,
    /// Who it is, for people, where that is known.
    pub(crate) label: Option<String>,
}

/// Refuses what only members with a state file can start from.
pub(crate) fn without_state(start: Start, place: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        start == Start::Stored,
        "--new, --lost and --members-changed are for members with a state of their own: {place} they have none"
    );
    Ok(())
}

impl Member {
    /// Starts the member that a configuration describes.
    pub(crate) async fn start(config: &NodeConfig, start: Start) -> anyhow::Result<Self> {
        match &config.engine {
            EngineConfig::Peer(config) => {
                wait_for_state(config).await;
                let peer = Box::new(start_peer(config, start).await?);
                let protocol = &config.protocol;
                let me = protocol.me();
                let others = protocol.members().iter().copied().filter(|id| *id != me).collect();
                Ok(Member {
                    engine: Engine::Peer { peer, others },
                    me,
                    promise: protocol.guarantee(),
                    oracle: match protocol {
                        Protocol::Pole(member) => member.oracle().clone(),
                        Protocol::NfdL { .. } => Oracle::constant(),
                    },
                    moves_leaders: protocol.moves_leaders(),
                })
            }
            EngineConfig::Sql(config) => {
                without_state(start, "on a database")?;
                Member::on_database(config).await
            }
            EngineConfig::Ledger(config) => {
                without_state(start, "on a ledger")?;
                Member::on_ledger(config).await
            }
        }
    }

    /// Starts a member of a group on a ledger.
    pub(crate) async fn on_ledger(config: &LedgerConfig) -> anyhow::Result<Self> {
        let member = Box::new(config.start().await?);
        let first = member.roles().election(RoleId::new(0));
        Ok(Member {
            me: member.me(),
            promise: member.promise(),
            engine: Engine::Ledger { member, first },
            oracle: Oracle::constant(),
            moves_leaders: false,
        })
    }

    /// Starts a member that elects on a database.
    pub(crate) async fn on_database(config: &sql::SqlConfig) -> anyhow::Result<Self> {
        let member = config.start().await?;
        Ok(Member {
            me: member.me(),
            engine: Engine::Sql { member: Box::new(member), table: Mutex::default() },
            promise: mandate_sql::engine::promise(&config.config),
            oracle: config.config.oracle().clone(),
            moves_leaders: false,
        })
    }

    pub(crate) fn me(&self) -> MemberId {
        self.me
    }

    /// What leaders rely on.
    pub(crate) fn promise(&self) -> Promise {
        self.promise
    }

    pub(crate) fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    pub(crate) fn election(&self) -> &Election {
        match &self.engine {
            Engine::Peer { peer, .. } => peer.election(),
            Engine::Sql { member, .. } => member.election(),
            Engine::Ledger { first, .. } => first,
        }
    }

    /// The election of the role with this name; where a group has one, every name is that one's.
    pub(crate) fn election_of(&self, role: &str) -> anyhow::Result<Election> {
        match &self.engine {
            Engine::Ledger { member, .. } => member.election(role),
            Engine::Peer { .. } | Engine::Sql { .. } => Ok(self.election().clone()),
        }
    }

    /// With many roles, if it is a member of a group on a ledger.
    pub(crate) fn on_a_ledger(&self) -> Option<&LedgerMember> {
        match &self.engine {
            Engine::Ledger { member, .. } => Some(member),
            Engine::Peer { .. } | Engine::Sql { .. } => None,
        }
    }

    /// Why it has ended by itself, where that is known.
    pub(crate) fn ended(&self) -> Option<String> {
        self.on_a_ledger()?.roles().ended()
    }

    /// Waits until it has ended by itself, and says why. A member of the other engines does not.
    pub(crate) async fn until_ended(&self) -> String {
        match self.on_a_ledger() {
            Some(ledger) => ledger.roles().until_ended().await,
            None => std::future::pending().await,
        }
    }

    /// Why other processes of this host cannot act on its mandate, if they cannot.
    pub(crate) fn cannot_be_held(&self) -> Option<&'static str> {
        let many = self.on_a_ledger().is_some_and(|member| member.roles().layout().roles() > 1);
        match (self.moves_leaders, many) {
            (true, _) => Some(
                "[moves] hands leadership over before a command has ended: leave it out of this member's configuration, \
                 or set shadow = true",
            ),
            (_, true) => Some(
                "this member's group has many roles: have the command be a member of its own, with \
                 `mandate run ROLE --config FILE`",
            ),
            _ => None,
        }
    }

    /// With certificates and links of its own, if it is of the peer engine.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        match &self.engine {
            Engine::Peer { peer, .. } => Some(peer),
            Engine::Sql { .. } | Engine::Ledger { .. } => None,
        }
    }

    /// Members that are refused, because they have another list of members or another guarantee.
    pub(crate) fn differing(&self) -> Vec<DifferingDocument> {
        let Some(links) = self.peer().map(Peer::links) else { return Vec::new() };
        let document = |(member, theirs): (MemberId, Settings)| DifferingDocument {
            member: member.to_string(),
            theirs: theirs.to_string(),
            ours: links.settings().to_string(),
        };
        links.differing().into_iter().map(document).collect()
    }

    /// Where it meets the others, in words.
    pub(crate) fn meets(&self) -> String {
        match &self.engine {
            Engine::Peer { peer, .. } => format!("members at {}", peer.local_addr()),
            Engine::Sql { member, .. } => format!("electing on {}", member.database().address()),
            Engine::Ledger { member, .. } => member.meets(),
        }
    }

    /// All others, as far as they are known now.
    pub(crate) async fn others(&self) -> Arc<[Other]> {
        match &self.engine {
            Engine::Peer { others, .. } => {
                others.iter().map(|id| Other { id: *id, label: None }).collect()
            }
            // They do not know of each other.
            Engine::Ledger { .. } => Arc::default(),
            Engine::Sql { member, table } => {
                let known = table.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some((when, others)) = &known
                    && when.elapsed() < FRESH
                {
                    return others.clone();
                }
                match member.database().members(member.group()).await {
                    Ok(rows) => {
                        let others = rows.into_iter().filter(|row| row.member != self.me);
                        let others: Arc<[Other]> = others
                            .map(|row| Other { id: row.member, label: Some(row.label) })
                            .collect();
                        *table.lock().unwrap_or_else(PoisonError::into_inner) =
                            Some((Instant::now(), others.clone()));
                        others
                    }
                    // What was known is better than nothing.
                    Err(_) => known.map(|(_, others)| others).unwrap_or_default(),
                }
            }
        }
    }

    /// Gives leadership back and ends.
    pub(crate) async fn shutdown(&self) {
        match &self.engine {
            Engine::Peer { peer, .. } => peer.shutdown().await,
            Engine::Sql { member, .. } => member.shutdown().await,
            Engine::Ledger { member, .. } => member.shutdown().await,
        }
    }
}

/// Waits until nobody else has the member's state, for as long as a command of its former incarnation may act: the guard of
/// a `mandate run` that was killed shares the lock until its command is gone. If somebody still has it after that, starting
/// the member says so.
async fn wait_for_state(config: &PeerConfig) {
    let lease = config.protocol.guarantee().lease().unwrap_or_default();
    let bound = lease + STATE_MARGIN;
    let began = Instant::now();
    let mut is_logged = false;
    while let Err(error @ DurableError::InUse { .. }) = DurableFile::is_free(&config.state) {
        if began.elapsed() >= bound {
            return;
        }
        if !is_logged {
            is_logged = true;
            let bound = readable(bound);
            tracing::warn!(
                "{error} Or a command of its former `mandate run` has not ended yet: waiting for that, up to {bound}"
            );
        }
        sleep(LOOK_AT_STATE).await;
    }
}

/// Starts a member of the peer engine.
pub(crate) async fn start_peer(config: &PeerConfig, start: Start) -> anyhow::Result<Peer> {
    let files = config.identity_files();
    warn_if_readable(&files.key);
    warn_of_drift(&config.protocol);
    let identity = Identity::from_files(&files.ca, &files.chain, &files.key)?;
    let setup = PeerSetup {
        group: config.group.clone(),
        listen: config.listen,
        peers: config.peers.clone(),
        identity,
        protocol: config.protocol.clone(),
        state: config.state.clone(),
        start,
    };
    Ok(Peer::start(setup).await?)
}
