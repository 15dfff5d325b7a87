//! Members that elect on a database: SQLite, PostgreSQL, MySQL or MariaDB.
//!
//! Members meet in a few small tables. SQLite's are made by the members; elsewhere `mandate sql init` makes them, or prints them
//! for migrations. [`fence`] checks a term inside a transaction of your own.

use std::future::{Future, IntoFuture};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mandate_proto::identity::MemberId;
pub use mandate_proto::registers::Config;
use mandate_proto::registers::SqlGuarantee as Wanted;
use mandate_proto::value::Value;
use mandate_sql::database::MemberEntry;
pub use mandate_sql::{Address, Database, SqlError, fence};
use mandate_sql::{Setup, Sql, SqlRoles};

use crate::config;
use crate::error::{ConfigError, Error};
use crate::member::{Engine, Member, MemberInfo, host};

pub use mandate_sql as engine;

/// Members that were not given an id draw one from here up.
const DRAWN_FROM: u32 = 1 << 16;

/// How long what the database says of members is good enough: who asks more often is answered from memory.
const FRESH: Duration = Duration::from_secs(1);

/// A member of that group on a database: `sqlite:FILE`, `postgres://...` or `mysql://...`. It draws an id that nobody has and
/// sees that the tables are there.
///
/// ```no_run
/// # async fn example() -> Result<(), mandate::Error> {
/// let member = mandate::sql::join("postgres://app@db/orders", "billing").await?;
/// member.lead(async |mandate| println!("leading in term {}", mandate.term())).await?;
/// # Ok(())
/// # }
/// ```
pub fn join(address: &str, group: &str) -> Builder {
    Builder::on(At::Text(address.to_owned()), group)
}

/// Reads the configuration of a member on a database.
pub fn from_file(path: impl AsRef<Path>) -> Result<Builder, Error> {
    match config::from_file(&path)? {
        config::Builder::Sql(builder) => Ok(*builder),
        #[allow(unreachable_patterns)]
        _ => Err(ConfigError::of_another_engine(path.as_ref()).into()),
    }
}

/// A per-user SQLite file: for processes of one host that have no other place to meet.
#[cfg(feature = "sqlite")]
pub fn default_address() -> Result<Address, Error> {
    use std::path::PathBuf;

    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let directory = state.filter(|path| path.is_absolute()).or_else(home);
    let made = directory.map(|directory| directory.join("mandate")).ok_or_else(|| {
        anyhow::anyhow!("there is no home directory to put a database into: name a database")
    });
    let made = made.and_then(|directory| {
        std::fs::create_dir_all(&directory).map_err(|error| {
            anyhow::Error::new(error).context(format!("could not make {}", directory.display()))
        })?;
        Ok(Address::Sqlite(directory.join("mandate.db")))
    });
    made.map_err(|error| ConfigError::new(error).into())
}

/// A member that is set up and does not run yet: start it, or await it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Builder {
    /// The group's name.
    pub group: String,
    at: At,
    /// This member's id; `None`: a number that nobody has is drawn.
    pub member: Option<MemberId>,
    /// Who this is, for people; default: host and process.
    pub label: String,
    /// How the group elects; default: rounds of 1 s, with leases. The id within is replaced.
    pub config: Config,
    roles: Option<u32>,
}

/// Which database. The text may hold a password and is never shown.
#[derive(Clone)]
enum At {
    Text(String),
    Address(Address),
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Builder {
    /// A member of that group, on a database whose address was read already.
    pub fn new(address: Address, group: &str, config: Config) -> Self {
        Builder { config, ..Builder::on(At::Address(address), group) }
    }

    fn on(at: At, group: &str) -> Self {
        Builder {
            group: group.to_owned(),
            at,
            member: None,
            label: format!("{}, process {}", host(), std::process::id()),
            config: Config::lan(MemberId::new(0)),
            roles: None,
        }
    }

    /// With this id. If a living process has it, the member does not start; a row that a crash left behind costs a wait of one and
    /// a half rounds.
    #[must_use]
    pub fn member(mut self, id: MemberId) -> Self {
        self.member = Some(id);
        self
    }

    /// With this way to elect: length of a round, guarantee, oracle.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Without leases: one leader per term, so a system that checks terms is safe.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.config = self.config.with_guarantee(Wanted::Fenced);
        self
    }

    /// With so many roles besides, which the group's leader spreads over the members: the same number at all of them.
    #[must_use]
    pub fn roles(mut self, roles: u32) -> Self {
        self.roles = Some(roles);
        self
    }

    /// Publishes this with every term of this member, from its first moment on; with roles, with every role's.
    #[must_use]
    pub fn with_value(mut self, value: Option<Value>) -> Self {
        self.config = self.config.with_value(value);
        self
    }

    /// What is published with every term of this member.
    pub fn value(&self) -> Option<&Value> {
        self.config.value()
    }

    /// Starts the member, with one attempt to reach the database. Whether another may succeed, [`Error::is_final`] says.
    pub async fn start(&self) -> Result<Member, Error> {
        let Builder { group, member, label, .. } = self;
        let address = match &self.at {
            At::Text(text) => &text.parse()?,
            At::Address(address) => address,
        };
        mandate_sql::engine::check_group(group)?;
        let database = Database::open_once(address, self.config.round()).await?;
        let me = match *member {
            Some(member) => match Sql::is_running(&database, group, member).await? {
                Some(label) => return Err(Error::InUse { member, label }),
                None => member,
            },
            None => draw(&database, group).await?,
        };
        let config = self.config.clone().with_me(me);
        let guarantee = mandate_sql::engine::guarantee(&config);
        let oracle = config.oracle().clone();
        let setup = Setup { group: group.clone(), label: label.clone(), config };
        let (member, roles) = match self.roles {
            None => (Sql::start(&database, setup)?, None),
            Some(count) => {
                let roles = SqlRoles::start(&database, setup, count)?;
                (roles.member().clone(), Some((roles, count)))
            }
        };
        let engine = Engine::Sql { member: Box::new(member), roles, table: Default::default() };
        Ok(Member::new(engine, group, me, guarantee).scored_by(oracle).with_telemetry())
    }
}

impl IntoFuture for Builder {
    type Output = Result<Member, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.start().await })
    }
}

/// A number that nobody has.
async fn draw(database: &Database, group: &str) -> Result<MemberId, Error> {
    let taken = database.members(group).await?;
    loop {
        let drawn = MemberId::new(getrandom::u32().map_err(Error::Random)?.max(DRAWN_FROM));
        if taken.iter().all(|row| row.member != drawn) {
            return Ok(drawn);
        }
    }
}

/// The group's members as the database has them, at most a second old.
#[derive(Default)]
pub(crate) struct MemberTable(Mutex<Option<(Instant, Arc<[MemberInfo]>)>>);

impl MemberTable {
    fn known(&self) -> MutexGuard<'_, Option<(Instant, Arc<[MemberInfo]>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn of(&self, member: &Sql) -> Arc<[MemberInfo]> {
        let known = self.known().clone();
        if let Some((when, members)) = &known
            && when.elapsed() < FRESH
        {
            return members.clone();
        }
        match member.database().members(member.group()).await {
            Ok(rows) => {
                let info = |row: MemberEntry| MemberInfo::unlisted(row.member, Some(row.label));
                let members: Arc<[MemberInfo]> = rows.into_iter().map(info).collect();
                *self.known() = Some((Instant::now(), members.clone()));
                members
            }
            // What was known is better than nothing.
            Err(_) => known.map(|(_, members)| members).unwrap_or_default(),
        }
    }
}
