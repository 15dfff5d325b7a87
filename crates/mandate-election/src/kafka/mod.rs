//! Members of a group on Kafka, where a group may have many roles: the coordinator of a consumer group assigns them.
//!
//! Every member of a group stands for all its roles, because the coordinator does not ask who wants which. Work that differs
//! belongs to different groups.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use mandate_ledger::LedgerRoles;
use mandate_proto::election::RoleId;
use mandate_proto::identity::MemberId;
pub use mandate_proto::neli::Mode;
use mandate_proto::neli::{Config, LedgerPlan};
use mandate_proto::value::Value;
use mandate_runtime::Election;

pub use crate::config::ledger::{Assignor, GroupProtocol, SESSION, TUNED};
use crate::config::{self, ledger};
use crate::error::{ConfigError, Error};
use crate::member::{Engine, Member};
use crate::roles::role_named;
use crate::{Guarantee, UnknownRole};

#[cfg(not(feature = "kafka"))]
mod absent;
#[cfg(feature = "kafka")]
mod open;

pub use mandate_ledger as engine;

/// Partitions of a topic that is made for a group with many roles: with fewer members than that, each has some.
const PARTITIONS: u32 = 16;

/// A member of that group on the Kafka at these hosts and ports, with commas between. It draws its own id.
///
/// ```no_run
/// # async fn example() -> Result<(), mandate::Error> {
/// let member = mandate::kafka::join("kafka1:9092,kafka2:9092", "billing").roles(10_000).start().await?;
/// let roles = member.roles().expect("Kafka has roles");
/// let role = roles.named("customer 4711").expect("a name is some role's");
/// if let Some(term) = roles.term(role) {
///     println!("leading role {} in term {term}", role.get());
/// }
/// # Ok(())
/// # }
/// ```
pub fn join(brokers: &str, group: &str) -> Builder {
    Builder::new(brokers, group)
}

/// Reads the configuration of a member on Kafka.
pub fn from_file(path: impl AsRef<Path>) -> Result<Builder, Error> {
    match config::from_file(&path)? {
        config::Builder::Kafka(builder) => Ok(*builder),
        #[allow(unreachable_patterns)]
        _ => Err(ConfigError::of_another_engine(path.as_ref()).into()),
    }
}

/// Settings of librdkafka from a file: lines of `KEY=VALUE`, as Kafka's own tools write them; `#` begins a comment line.
pub fn read_settings(path: impl AsRef<Path>) -> Result<BTreeMap<String, String>, ConfigError> {
    ledger::read_settings(path.as_ref()).map_err(ConfigError::new)
}

/// A member that is set up and does not run yet. What is not set has a default that works on a broker that nobody tuned.
#[derive(Clone)]
#[non_exhaustive]
pub struct Builder {
    /// The consumer group.
    pub group: String,
    /// This member's id; `None`: a number is drawn.
    pub member: Option<MemberId>,
    /// Where brokers are: hosts and ports, with commas between.
    pub brokers: String,
    /// The topic; `None`: `mandate-` and the group. It is made if it is not there.
    pub topic: Option<String>,
    /// How many partitions the topic has; `None`: what it has. A new one is made with as many as there are roles, and 16 at most.
    pub partitions: Option<NonZeroU32>,
    /// How many roles the group has: the same at all members.
    pub roles: u32,
    /// After this long without a sign of life a member is replaced. Below 6 s the broker has to be tuned.
    pub session: Duration,
    /// What "leader" means.
    pub mode: Mode,
    /// How partitions are divided.
    pub assignor: Assignor,
    /// Which group protocol is spoken.
    pub protocol: GroupProtocol,
    /// A name that survives restarts of this process (group.instance.id); no other member may have it.
    pub instance: Option<String>,
    /// Further settings of librdkafka: security, SASL.
    pub settings: BTreeMap<String, String>,
    /// What follows from the session unless it is told.
    pub tuning: Tuning,
    /// What every claim of this member carries.
    pub value: Option<Value>,
}

/// What follows from the session unless it is told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    /// For how long after the last proof a member leads.
    pub threshold: Option<Duration>,
    /// How long work on a role that is revoked may take to end.
    pub drain: Option<Duration>,
    /// How long a member that resigns stays out of the group.
    pub rest: Option<Duration>,
    /// By how many thousandths the rate of a clock may be off.
    pub drift_per_mille: Option<u32>,
    /// Copies of a topic that is made; `None`: as many as there are brokers, and three at most.
    pub replicas: Option<NonZeroU16>,
}

/// Settings may be passwords.
impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Builder {
    /// A member of that group; see [`join`].
    pub fn new(brokers: &str, group: &str) -> Self {
        Builder {
            group: group.to_owned(),
            member: None,
            brokers: brokers.to_owned(),
            topic: None,
            partitions: None,
            roles: 1,
            session: SESSION,
            mode: Mode::Exclusive,
            assignor: Assignor::default(),
            protocol: GroupProtocol::default(),
            instance: None,
            settings: BTreeMap::new(),
            tuning: Tuning::default(),
            value: None,
        }
    }

    /// Publishes this with every term of this member: each of its claims carries it. Nothing is published in non-exclusive
    /// mode, which has no terms.
    #[must_use]
    pub fn with_value(mut self, value: Option<Value>) -> Self {
        self.value = value;
        self
    }

    /// What is published with every term of this member.
    pub fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// With so many roles: the same at all members.
    #[must_use]
    pub fn roles(mut self, roles: u32) -> Self {
        self.roles = roles;
        self
    }

    /// With sessions of this length: a crash is noticed after it. Below 6 s the broker's `group.min.session.timeout.ms` has
    /// to allow it.
    #[must_use]
    pub fn session(mut self, session: Duration) -> Self {
        self.session = session;
        self
    }

    /// With a setting of librdkafka, such as `security.protocol`.
    #[must_use]
    pub fn setting(mut self, key: &str, value: &str) -> Self {
        self.settings.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Starts the member, with one attempt to reach the broker. Whether another may succeed, [`Error::is_final`] says.
    pub async fn start(&self) -> Result<Member, Error> {
        let me = match self.member {
            Some(member) => member,
            None => draw()?,
        };
        let (roles, plan) = self.open(me).await?;
        let member = KafkaDetails { me, roles, plan, topic: self.topic() };
        let (first, guarantee) = (member.roles.election(RoleId::new(0)), member.guarantee());
        let engine = Engine::Ledger { member: Box::new(member), first };
        Ok(Member::new(engine, &self.group, me, guarantee).with_telemetry())
    }

    /// The topic's name.
    pub fn topic(&self) -> String {
        self.topic.clone().unwrap_or_else(|| format!("mandate-{}", self.group))
    }

    /// How many partitions a topic is made with.
    #[cfg_attr(not(feature = "kafka"), allow(dead_code))]
    fn partitions_to_make(&self) -> NonZeroU32 {
        let several = NonZeroU32::new(self.roles.min(PARTITIONS)).unwrap_or(NonZeroU32::MIN);
        self.partitions.unwrap_or(several)
    }

    /// What is asked of the protocol; what comes of it, the broker's grants decide.
    pub fn protocol_config(&self, me: MemberId) -> Config {
        let Tuning { threshold, drain, rest, drift_per_mille, .. } = self.tuning;
        let mut config = Config::new(me, self.mode).with_roles(self.roles);
        if let Some(threshold) = threshold {
            config = config.with_threshold(threshold);
        }
        if let Some(drain) = drain {
            config = config.with_drain(drain);
        }
        if let Some(rest) = rest {
            config = config.with_rest(rest);
        }
        match drift_per_mille {
            Some(allowance) => config.with_allowance(allowance),
            None => config,
        }
    }
}

impl IntoFuture for Builder {
    type Output = Result<Member, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().await })
    }
}

/// A number that hardly anyone else has: members on Kafka do not know of each other.
fn draw() -> Result<MemberId, Error> {
    let number = getrandom::u32().map_err(Error::Random)?;
    Ok(MemberId::new(number.max(1 << 16)))
}

/// What only a member on Kafka knows; see [`Member::kafka`].
#[derive(Debug)]
pub struct KafkaDetails {
    me: MemberId,
    roles: LedgerRoles,
    plan: LedgerPlan,
    topic: String,
}

impl KafkaDetails {
    /// Its id.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// Its roles, with work that is drained before they change hands.
    pub fn roles(&self) -> &LedgerRoles {
        &self.roles
    }

    /// What it goes by: what the broker grants, and what follows from that.
    pub fn plan(&self) -> &LedgerPlan {
        &self.plan
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    fn guarantee(&self) -> Guarantee {
        match self.plan.mode() {
            Mode::NonExclusive => Guarantee::Overlap,
            Mode::Exclusive => Guarantee::Leased { lease: self.plan.threshold() },
        }
    }

    /// The election of the role with this name.
    pub fn election(&self, name: &str) -> Result<Election, UnknownRole> {
        Ok(self.roles.election(role_named(name, self.roles.layout().roles())?))
    }
}
