//! Elections on a database: how a member is set up from flags, and what can be asked of the database itself.

use std::time::Duration;

use mandate::MemberId;
use mandate::sql::{Address, Builder, Config};
use mandate_proto::registers::SqlGuarantee;

use crate::args::positive_duration;

mod init;
mod request;
pub(crate) mod show;
pub(crate) mod words;

pub(crate) use init::{SqlCommand, run as sql_command};
pub(crate) use request::request;

/// Which database, and which group on it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct WhereArgs {
    /// The database: sqlite:FILE, postgres://... or mysql://...
    #[arg(long, value_name = "URL", env = "MANDATE_URL", hide_env_values = true)]
    pub url: Option<UrlText>,
    /// The group, on a database or a ledger.
    #[arg(long, value_name = "NAME")]
    pub group: Option<String>,
}

/// A member that elects on a database.
#[derive(Clone, Debug, clap::Args)]
pub struct MemberArgs {
    #[command(flatten)]
    pub at: WhereArgs,
    /// This member's id, on a database or a ledger; drawn at random unless told otherwise.
    #[arg(long, value_name = "ID")]
    pub member: Option<MemberId>,
    /// Time between heartbeats, on a database.
    #[arg(long, default_value = "1s", value_parser = positive_duration, value_name = "TIME")]
    pub round: Duration,
    /// What leaders rely on, on a database.
    #[arg(long, value_enum, default_value_t)]
    pub guarantee: GuaranteeName,
}

/// What leaders rely on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GuaranteeName {
    /// One leader per term: a reader that checks terms is safe.
    Fenced,
    /// Besides, at any instant one at most.
    #[default]
    Leased,
}

/// An address, not looked at yet: the argument parser shows what is wrong with them whole, and this may hold a
/// password.
#[derive(Clone)]
pub struct UrlText(String);

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
    pub fn address(&self) -> anyhow::Result<Address> {
        Ok(self.0.parse()?)
    }
}

impl WhereArgs {
    /// The database, if one is named.
    pub fn address(&self) -> anyhow::Result<Option<Address>> {
        self.url.as_ref().map(UrlText::address).transpose()
    }

    pub fn group_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.group.as_deref().unwrap_or(default)
    }
}

impl MemberArgs {
    /// The member's setup, on that database.
    pub fn resolve(&self, address: &Address, group: &str) -> anyhow::Result<Builder> {
        let guarantee = match self.guarantee {
            GuaranteeName::Fenced => SqlGuarantee::Fenced,
            GuaranteeName::Leased => SqlGuarantee::Leased,
        };
        let config = Config::new(MemberId::new(0), self.round)?.with_guarantee(guarantee);
        let mut builder = Builder::new(address.clone(), group, config);
        builder.member = self.member;
        Ok(builder)
    }
}
