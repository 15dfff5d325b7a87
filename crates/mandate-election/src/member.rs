//! A member that runs, whatever engine elects it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use mandate_proto::identity::MemberId;
use mandate_proto::oracle::Oracle;
use mandate_proto::pole::installation::{Entry, Membership};
use mandate_proto::value::Value;
use mandate_runtime::{Election, LeadError, Mandate};

use crate::Guarantee;
use crate::error::Error;
#[cfg(feature = "ledger")]
use crate::kafka::KafkaDetails;
#[cfg(any(feature = "sql", feature = "ledger"))]
use crate::roles::Of;
use crate::roles::{Roles, UnknownRole};

/// A member that runs. Clones are the same member. It gives leadership back and ends when it is
/// [shut down](Member::shutdown), or with its last clone and the last clone of its [`Election`].
#[derive(Clone)]
pub struct Member(Arc<Inner>);

struct Inner {
    engine: Engine,
    group: String,
    id: MemberId,
    guarantee: Guarantee,
    oracle: Option<Oracle>,
    is_stopped: AtomicBool,
}

pub(crate) enum Engine {
    #[cfg(feature = "peer")]
    Peer {
        peer: Box<mandate_peer::Peer>,
        protocol: Box<mandate_runtime::Protocol>,
        /// Has certificates looked at.
        look: Arc<tokio::sync::Notify>,
    },
    #[cfg(feature = "sql")]
    Sql {
        member: Box<mandate_sql::Sql>,
        roles: Option<(mandate_sql::SqlRoles, u32)>,
        table: crate::sql::MemberTable,
    },
    /// With the election of the group's first role: of the only one, if it has one.
    #[cfg(feature = "ledger")]
    Ledger { member: Box<KafkaDetails>, first: Election },
}

/// A member of the group, as another knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// Its id.
    pub id: MemberId,
    /// Who it is, for people, where that is known: on a database, or by its name in the group's list.
    pub label: Option<String>,
    /// What it does, where the group has a list.
    pub part: Option<Membership>,
    /// Where it is, as `host:port`, where a list or this member's configuration says it.
    pub address: Option<String>,
}

impl MemberInfo {
    #[cfg_attr(not(any(feature = "peer", feature = "sql")), allow(dead_code))]
    pub(crate) fn unlisted(id: MemberId, label: Option<String>) -> Self {
        MemberInfo { id, label, part: None, address: None }
    }
}

impl From<&Entry> for MemberInfo {
    fn from(entry: &Entry) -> Self {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        MemberInfo {
            id: entry.id,
            label: said(&entry.contact.name),
            part: Some(entry.part),
            address: said(&entry.contact.address),
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { group, id, guarantee, .. } = &*self.0;
        let mut shown = f.debug_struct("Member");
        shown.field("group", group).field("id", id).field("guarantee", guarantee);
        shown.finish_non_exhaustive()
    }
}

impl Member {
    pub(crate) fn new(engine: Engine, group: &str, id: MemberId, guarantee: Guarantee) -> Self {
        let is_stopped = AtomicBool::new(false);
        let group = group.to_owned();
        Member(Arc::new(Inner { engine, group, id, guarantee, oracle: None, is_stopped }))
    }

    /// For an engine that asks an oracle. Nobody else has a clone yet.
    #[cfg(any(feature = "peer", feature = "sql"))]
    pub(crate) fn scored_by(mut self, oracle: Oracle) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.oracle = Some(oracle);
        }
        self
    }

    /// To be called once the member is complete.
    pub(crate) fn with_telemetry(self) -> Self {
        #[cfg(feature = "metrics")]
        crate::telemetry::follow(&self);
        self
    }

    pub(crate) fn downgrade(&self) -> WeakMember {
        WeakMember(Arc::downgrade(&self.0))
    }

    /// Its id.
    pub fn id(&self) -> MemberId {
        self.0.id
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.0.group
    }

    /// What leaders rely on.
    pub fn guarantee(&self) -> Guarantee {
        self.0.guarantee
    }

    /// How candidates are scored; `None` where nobody is: on Kafka.
    pub fn oracle(&self) -> Option<&Oracle> {
        self.0.oracle.as_ref()
    }

    /// Who leads, to watch and to take part in. In a group with many roles on Kafka, of the first role.
    pub fn election(&self) -> &Election {
        match &self.0.engine {
            #[cfg(feature = "peer")]
            Engine::Peer { peer, .. } => peer.election(),
            #[cfg(feature = "sql")]
            Engine::Sql { member, .. } => member.election(),
            #[cfg(feature = "ledger")]
            Engine::Ledger { first, .. } => first,
        }
    }

    /// The election of the role with this name; where a group has one leader, every name is that one's.
    pub fn election_of(&self, role: &str) -> Result<Election, UnknownRole> {
        let Some(roles) = self.roles() else { return Ok(self.election().clone()) };
        let number = roles.named(role)?;
        Ok(roles.election(number).unwrap_or_else(|| self.election().clone()))
    }

    /// The group's roles; `None` where it has one leader and nothing else.
    pub fn roles(&self) -> Option<Roles<'_>> {
        match &self.0.engine {
            #[cfg(feature = "peer")]
            Engine::Peer { .. } => None,
            #[cfg(feature = "sql")]
            Engine::Sql { roles, .. } => {
                roles.as_ref().map(|(roles, count)| Roles { of: Of::Sql(roles, *count) })
            }
            #[cfg(feature = "ledger")]
            Engine::Ledger { member, .. } => Some(Roles { of: Of::Ledger(member.roles()) }),
        }
    }

    /// The group's members as far as they are known now, this one included unless it waits to be added; `None` where members do not know
    /// of each other: on Kafka.
    pub async fn members(&self) -> Option<Arc<[MemberInfo]>> {
        match &self.0.engine {
            #[cfg(feature = "peer")]
            Engine::Peer { protocol, .. } => Some(match self.list() {
                Some(list) => list.entries().iter().map(MemberInfo::from).collect(),
                None => {
                    protocol.members().iter().map(|id| MemberInfo::unlisted(*id, None)).collect()
                }
            }),
            #[cfg(feature = "sql")]
            Engine::Sql { member, table, .. } => Some(table.of(member).await),
            #[cfg(feature = "ledger")]
            Engine::Ledger { .. } => None,
        }
    }

    /// Runs `work` whenever this member leads, again and again, until it is shut down. When the work is done, leadership is given
    /// back and the member stands again. If leadership is lost before, the work is dropped where it waits: what it does between
    /// two waits it should check for itself.
    pub async fn lead<F: Future>(&self, work: impl FnMut(Mandate) -> F) -> Result<(), Error> {
        self.lead_by(self.election(), work).await
    }

    /// The same for one role of a group with many, by its name: a number, or a key whose hash slot it is.
    pub async fn lead_role<F: Future>(
        &self,
        role: &str,
        work: impl FnMut(Mandate) -> F,
    ) -> Result<(), Error> {
        self.lead_by(&self.election_of(role)?, work).await
    }

    async fn lead_by<F: Future>(
        &self,
        election: &Election,
        mut work: impl FnMut(Mandate) -> F,
    ) -> Result<(), Error> {
        loop {
            let mut held = None;
            let led = election.lead(|mandate| {
                held = Some(mandate.clone());
                work(mandate)
            });
            match (led.await, held) {
                // Otherwise the same term would be found again, and led twice.
                (Ok(_), Some(mandate)) => election.give_back(&mandate).await,
                (Ok(_) | Err(LeadError::Lost { .. }), _) => {}
                (Err(_), _) => return self.why_stopped(),
            }
        }
    }

    /// Publishes a value with the term that this member holds, such as the address of its service: every member sees it with
    /// the leader ([`ElectionState::value`](mandate_runtime::ElectionState::value)), and it ends with the term. Text of up to
    /// [`MAX_VALUE_BYTES`](crate::MAX_VALUE_BYTES). Refused if this member does not lead. A builder's `with_value` publishes
    /// a value with every term from its first moment on.
    pub async fn publish(&self, value: &str) -> Result<(), Error> {
        Ok(self.election().publish(Value::new(value)?).await?)
    }

    /// Nothing to say of a member that was asked to stop.
    fn why_stopped(&self) -> Result<(), Error> {
        match self.0.is_stopped.load(Ordering::SeqCst) {
            true => Ok(()),
            false => {
                let reason = self.ended().unwrap_or_else(|| "its driver ended: see the log".into());
                Err(Error::Ended(reason))
            }
        }
    }

    /// Gives leadership back, leaves the group and ends; bounded by three seconds, by four for a member with roles on a database.
    pub async fn shutdown(&self) {
        self.0.is_stopped.store(true, Ordering::SeqCst);
        match &self.0.engine {
            #[cfg(feature = "peer")]
            Engine::Peer { peer, .. } => peer.shutdown().await,
            #[cfg(feature = "sql")]
            Engine::Sql { roles: Some((roles, _)), .. } => roles.shutdown().await,
            #[cfg(feature = "sql")]
            Engine::Sql { member, .. } => member.shutdown().await,
            #[cfg(feature = "ledger")]
            Engine::Ledger { member, .. } => member.roles().shutdown().await,
        }
    }

    /// Why it has ended by itself, where that is known.
    pub fn ended(&self) -> Option<String> {
        match &self.0.engine {
            #[cfg(feature = "ledger")]
            Engine::Ledger { member, .. } => member.roles().ended(),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// Reads certificates and key again now and logs what came of it. Without, files that change are noticed within two seconds.
    /// Nothing happens where members have none.
    pub fn reload(&self) {
        match &self.0.engine {
            #[cfg(feature = "peer")]
            Engine::Peer { look, .. } => look.notify_one(),
            #[allow(unreachable_patterns)]
            _ => {}
        }
    }

    /// Its links and certificates, if it is of the peer engine.
    #[cfg(feature = "peer")]
    pub fn peer(&self) -> Option<&mandate_peer::Peer> {
        match &self.0.engine {
            Engine::Peer { peer, .. } => Some(peer),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// The protocol that it speaks, if it is of the peer engine.
    #[cfg(feature = "peer")]
    pub fn protocol(&self) -> Option<&mandate_runtime::Protocol> {
        match &self.0.engine {
            Engine::Peer { protocol, .. } => Some(protocol),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// Its database, if it elects on one.
    #[cfg(feature = "sql")]
    pub fn sql(&self) -> Option<&mandate_sql::Sql> {
        match &self.0.engine {
            Engine::Sql { member, .. } => Some(member),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }

    /// Its topic, plan and work under way, if it is a member on Kafka.
    #[cfg(feature = "ledger")]
    pub fn kafka(&self) -> Option<&KafkaDetails> {
        match &self.0.engine {
            Engine::Ledger { member, .. } => Some(member),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
}

/// Does not keep the member running.
pub(crate) struct WeakMember(Weak<Inner>);

impl WeakMember {
    pub(crate) fn upgrade(&self) -> Option<Member> {
        self.0.upgrade().map(Member)
    }
}

/// This host's name.
#[cfg(any(feature = "sql", feature = "kafka"))]
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
