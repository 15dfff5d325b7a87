//! Elections on a database: how a member is set up from flags, and what can be asked of the database itself.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use mandate_proto::registers::{Config, Guarantee};
use mandate_sql::{Address, Database, Setup, Sql};

use crate::args::positive_duration;

mod init;
pub(crate) mod show;
pub(crate) mod words;

pub(crate) use init::{SqlCommand, run as sql_command};

/// Members that were not given a number draw one from here up.
const DRAWN_FROM: u32 = 1 << 16;

/// Which database, and which group on it.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct WhereArgs {
    /// The database: sqlite:FILE, postgres://... or mysql://...
    #[arg(long, value_name = "URL", env = "MANDATE_URL", hide_env_values = true)]
    pub(crate) url: Option<UrlText>,
    /// The group, on a database or a ledger.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
}

/// A member that elects on a database.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MemberArgs {
    #[command(flatten)]
    pub(crate) at: WhereArgs,
    /// This member's id, on a database or a ledger; drawn at random unless told otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) member: Option<MemberId>,
    /// Time between heartbeats, on a database.
    #[arg(long, default_value = "1s", value_parser = positive_duration, value_name = "TIME")]
    pub(crate) round: Duration,
    /// What leaders rely on, on a database.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) guarantee: GuaranteeName,
}

/// What leaders rely on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum GuaranteeName {
    /// One leader per term: whoever checks terms is safe.
    Fenced,
    /// Besides, at any instant one at most.
    #[default]
    Leased,
}

/// An address, not looked at yet: whoever parses arguments shows what is wrong with them whole, and this may hold a
/// password.
#[derive(Clone)]
pub(crate) struct UrlText(String);

impl std::str::FromStr for UrlText {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(UrlText(text.to_owned()))
    }
}

impl std::fmt::Debug for UrlText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an address")
    }
}

impl UrlText {
    pub(crate) fn address(&self) -> anyhow::Result<Address> {
        Ok(self.0.parse()?)
    }
}

impl WhereArgs {
    /// The database, if one is named.
    pub(crate) fn address(&self) -> anyhow::Result<Option<Address>> {
        self.url.as_ref().map(UrlText::address).transpose()
    }

    pub(crate) fn group_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.group.as_deref().unwrap_or(default)
    }
}

impl MemberArgs {
    /// How the member elects.
    fn config(&self, me: MemberId) -> anyhow::Result<Config> {
        let guarantee = match self.guarantee {
            GuaranteeName::Fenced => Guarantee::Fenced,
            GuaranteeName::Leased => Guarantee::Leased,
        };
        Ok(Config::new(me, self.round)?.with_guarantee(guarantee))
    }

    /// The member's setup, on that database.
    pub(crate) fn resolve(&self, address: &Address, group: &str) -> anyhow::Result<SqlConfig> {
        let config = self.config(self.member.unwrap_or(MemberId::new(0)))?;
        Ok(SqlConfig {
            group: group.to_owned(),
            address: address.clone(),
            member: self.member,
            config,
        })
    }
}

/// How a member that elects on a database is set up.
#[derive(Clone, Debug)]
pub(crate) struct SqlConfig {
    pub(crate) group: String,
    pub(crate) address: Address,
    /// `None`: a number is drawn.
    pub(crate) member: Option<MemberId>,
    pub(crate) config: Config,
}

impl SqlConfig {
    /// Starts the member. Whether its database can be used at all is seen before, with one attempt: how often to try
    /// is the caller's business ([`WaitArgs`](crate::wait::WaitArgs)).
    pub(crate) async fn start(&self) -> anyhow::Result<Sql> {
        let SqlConfig { group, address, member, config } = self;
        mandate_sql::engine::check_group(group)?;
        let database = Database::open_once(address, config.round()).await?;
        let me = match member {
            Some(member) => {
                let other = Sql::is_running(&database, group, *member).await?;
                if let Some(label) = other {
                    anyhow::bail!(
                        "{member} runs already, as {label}: give this one another id, or none"
                    );
                }
                *member
            }
            None => draw(&database, group).await?,
        };
        let config = config.clone().with_me(me);
        Ok(Sql::start(&database, Setup { group: group.clone(), label: label(), config })?)
    }
}

/// A number that nobody has.
async fn draw(database: &Database, group: &str) -> anyhow::Result<MemberId> {
    let taken = database.members(group).await?;
    loop {
        let number = getrandom::u32().context("the system gave no random number")?;
        let drawn = MemberId::new(number.max(DRAWN_FROM));
        if taken.iter().all(|row| row.member != drawn) {
            return Ok(drawn);
        }
    }
}

/// Who this is, for people.
fn label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}, process {}", std::process::id())
}

/// A file for everyone on this host who uses this account: what `--engine sql` elects on if no database is named.
pub(crate) fn default_address() -> anyhow::Result<Address> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let directory = state.filter(|path| path.is_absolute()).or_else(home);
    let directory = directory
        .context("there is no home directory to put a database into: name one with --url")?
        .join("mandate");
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("could not make {}", directory.display()))?;
    Ok(Address::Sqlite(directory.join("mandate.db")))
}
