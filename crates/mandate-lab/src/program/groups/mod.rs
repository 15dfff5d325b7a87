//! `mandate lab`, with real groups: member processes on this host that are put under faults, compared and measured.
//!
//! The processes, the judge and the claims are [`mandate_conformance`]'s. Here is what it takes to put an
//! engine under them, and three commands: [`failover`] measures how long a group is without a leader,
//! [`conformance`] shows that an engine keeps its promises, [`idle`] what standing by costs.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use mandate_conformance::subject::EngineUnderTest;
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_sql::Address;

pub(crate) mod actor;
pub(crate) mod chaos;
mod client;
pub(crate) mod conformance;
pub(crate) mod failover;
mod guarded;
pub(crate) mod idle;
mod large;
#[cfg(feature = "kafka")]
mod ledger;
#[cfg(feature = "kafka")]
mod memory;
mod peer;
#[cfg(feature = "kafka")]
mod plain;
pub(crate) mod quality;
pub(crate) mod sql;

pub(crate) use actor::ActorArgs;
pub(crate) use chaos::ChaosArgs;
pub(crate) use conformance::ConformanceArgs;
pub(crate) use failover::FailoverArgs;
pub(crate) use idle::IdleArgs;
#[cfg(feature = "kafka")]
use ledger::OnLedger;
use peer::Peers;
pub(crate) use quality::QualityArgs;
use sql::{Base, OnDatabase, ServerName};

use mandate_cli::args::positive_duration;
use mandate_cli::output::readable;
use mandate_cli::sql::{GuaranteeName, UrlText};

/// How much of a lease is allowed for clocks that drift: the default of a configuration.
const ALLOWANCE_PER_MILLE: u16 = 10;

/// What elects, and what leaders rely on.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EngineArgs {
    /// What elects.
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// What leaders rely on.
    #[arg(long, value_enum, default_value_t)]
    guarantee: GuaranteeName,
    /// How long a lease lasts.
    #[arg(long, default_value = "1s", value_parser = positive_duration, value_name = "TIME")]
    lease: Duration,
    /// The database, for --engine sql.
    #[arg(
        long,
        value_name = "URL",
        env = "MANDATE_URL",
        hide_env_values = true,
        conflicts_with = "server"
    )]
    url: Option<UrlText>,
    /// Start a private one of this kind instead.
    #[arg(long, value_enum)]
    server: Option<ServerName>,
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    ledger: ledger::OnLedgerArgs,
}

/// What elects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// Messages between the members, and nothing else.
    #[default]
    Peer,
    /// A database: conditional writes to a few rows.
    Sql,
    /// Kafka: the member that has the partition and can prove it.
    #[cfg(feature = "kafka")]
    Ledger,
}

impl EngineArgs {
    fn guarantee(&self) -> PeerGuarantee {
        match self.guarantee {
            GuaranteeName::Fenced => PeerGuarantee::Fenced,
            GuaranteeName::Leased => PeerGuarantee::Leased {
                lease: self.lease(),
                allowance_per_mille: ALLOWANCE_PER_MILLE,
            },
        }
    }

    /// What leaders rely on, for reports.
    fn relied_on(&self) -> String {
        match self.engine {
            #[cfg(feature = "kafka")]
            Engine::Ledger => self.ledger.text(),
            _ => guarantee_text(self.guarantee()),
        }
    }

    /// What is put to the test; with cables that can be cut, if they are needed.
    fn subject(&self, with_cables: bool) -> anyhow::Result<Box<dyn EngineUnderTest>> {
        Ok(match self.engine {
            Engine::Peer => Box::new(Peers { guarantee: self.guarantee(), with_cables }),
            Engine::Sql => Box::new(self.on_database(with_cables)?),
            #[cfg(feature = "kafka")]
            Engine::Ledger => match self.ledger.in_memory() {
                Some(in_memory) => Box::new(in_memory),
                None => Box::new(self.ledger.subject(with_cables)?),
            },
        })
    }

    /// Members that elect on a database.
    fn on_database(&self, with_cables: bool) -> anyhow::Result<OnDatabase> {
        let base = match (self.named()?, self.server) {
            (Some(address), _) => Base::Named(address),
            (None, server) => Base::launch(server.unwrap_or_default(), None)?,
        };
        Ok(self.on_base(base, with_cables))
    }

    /// The database that is named, if one is.
    fn named(&self) -> anyhow::Result<Option<Address>> {
        self.url.as_ref().map(UrlText::address).transpose()
    }

    /// Time between heartbeats on a database: a lease is a round and a quarter.
    fn round(&self) -> Duration {
        self.lease * 4 / 5
    }

    /// Members that elect on this one.
    fn on_base(&self, base: Base, with_cables: bool) -> OnDatabase {
        let round = self.round();
        let (base, guarantee) = (Arc::new(base), self.guarantee());
        OnDatabase { base, guarantee, round, with_cables, guarded: false }
    }

    /// How long a lease lasts, where there are leases; on a ledger, after which silence another may lead.
    fn lease(&self) -> Duration {
        match self.engine {
            // A session, and the threshold that the next owner waits for.
            #[cfg(feature = "kafka")]
            Engine::Ledger => self.ledger.session().mul_f64(1.5),
            _ => self.lease,
        }
    }

    /// How long a group takes to be as it is most of the time, after a member has come back.
    fn settles_within(&self) -> Duration {
        match self.engine {
            // Members hear of a newcomer with their next heartbeats.
            #[cfg(feature = "kafka")]
            Engine::Ledger => self.ledger.session(),
            _ => Duration::ZERO,
        }
    }

    /// What to write to have the same again.
    fn flags(&self) -> String {
        #[cfg(feature = "kafka")]
        if self.engine == Engine::Ledger {
            return self.ledger.flags();
        }
        let mut engine = format!("--engine {}", self.engine_name());
        if let Some(server) = self.server.and_then(|server| server.to_possible_value()) {
            engine += &format!(" --server {}", server.get_name());
        }
        match self.guarantee {
            GuaranteeName::Fenced => format!("{engine} --guarantee fenced"),
            GuaranteeName::Leased => {
                format!("{engine} --guarantee leased --lease {}", one_word(self.lease))
            }
        }
    }

    fn engine_name(&self) -> &'static str {
        match self.engine {
            Engine::Peer => "peer",
            Engine::Sql => "sql",
            #[cfg(feature = "kafka")]
            Engine::Ledger => "ledger",
        }
    }
}

/// For the shell.
fn one_word(duration: Duration) -> String {
    humantime::format_duration(duration).to_string().replace(' ', "")
}

/// A guarantee, for reports.
fn guarantee_text(guarantee: PeerGuarantee) -> String {
    match guarantee {
        PeerGuarantee::Fenced => "fenced".into(),
        PeerGuarantee::Leased { lease, .. } => format!("leased, {}", readable(lease)),
    }
}
