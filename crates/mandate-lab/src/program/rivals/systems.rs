//! What rivals stand on: private servers, or somebody's database.

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use mandate_lab::rivals::trial::RivalSystem;
use mandate_lab::rivals::{advisory_lock, printed};
use mandate_servers::Server;
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_servers::zookeeper::{ZooKeeper, ZooKeeperConfig};
use mandate_sql::Address;
use tokio::runtime::Runtime;

use super::{Rival, Side};
use crate::groups::sql::make_tables;

/// For the connections of the harness itself, of members that are killed and come back before the
/// server has noticed, and of successors that hold locks of their own.
const SPARE_CONNECTIONS: u64 = 50;

/// What a side stands on, ready for members.
pub(super) struct Prepared {
    rival: Rival,
    program: PathBuf,
    /// What its members need to know besides.
    flags: Vec<String>,
    base: Base,
}

enum Base {
    Postgres(Postgres),
    ZooKeeper(ZooKeeper),
    /// Somebody's, that stays.
    Named(Address),
}

impl Prepared {
    pub(super) fn start(side: &Side) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("could not find this program")?;
        let base = match side.rival {
            Rival::AdvisoryLock => Base::Postgres(postgres(side)?),
            Rival::Printed => {
                let server = postgres(side)?;
                server.sql(&printed::schema(side.round))?;
                Base::Postgres(server)
            }
            Rival::Mandate | Rival::MandateFenced => {
                let (address, base) = match &side.at {
                    Some(address) => (address.clone(), Base::Named(address.clone())),
                    None => {
                        let server = postgres(side)?;
                        (server.url().parse()?, Base::Postgres(server))
                    }
                };
                Runtime::new()?.block_on(make_tables(&address))?;
                base
            }
            Rival::Zookeeper => {
                let config = ZooKeeperConfig { tick: side.tick, waits_for_disk: true };
                Base::ZooKeeper(ZooKeeper::launch(&config)?)
            }
        };
        let mut flags = Vec::new();
        if side.rival.is_ours() {
            flags.push(format!("--round-ms={}", side.round.as_millis()));
            let number = getrandom::u32().context("the system gave no random number")?;
            flags.push(format!("--group=lab-{number:x}"));
        }
        flags.extend(side.shared().map(|connections| format!("--connections={connections}")));
        Ok(Prepared { rival: side.rival, program, flags, base })
    }
}

fn postgres(side: &Side) -> anyhow::Result<Postgres> {
    let max_connections = u32::try_from(side.connections() + SPARE_CONNECTIONS)?;
    let config = PostgresConfig { max_connections, waits_for_disk: true, ..Default::default() };
    Ok(Postgres::launch(&config)?)
}

impl RivalSystem for Prepared {
    fn port(&self) -> Option<u16> {
        match &self.base {
            Base::Postgres(server) => Some(server.port()),
            Base::ZooKeeper(server) => Some(server.port()),
            Base::Named(_) => None,
        }
    }

    fn members(&self, members: Range<u64>, relay: Option<u16>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["crowd", self.rival.name()]).args(&self.flags);
        command.arg("--first").arg(members.start.to_string());
        command.arg("--members").arg((members.end - members.start).to_string());
        let url = match &self.base {
            Base::Postgres(server) => server.url(),
            Base::ZooKeeper(server) => {
                let session_ms = server.shortest_session().as_millis().to_string();
                command.arg("--session-ms").arg(session_ms);
                server.url()
            }
            Base::Named(address) => address.url(),
        };
        let url = match (self.port(), relay) {
            (Some(own), Some(relay)) => url.replace(&format!(":{own}"), &format!(":{relay}")),
            _ => url,
        };
        // Not among the arguments, where every user of the host could read a password.
        command.env("MANDATE_URL", url);
        command
    }

    fn cpu_time(&self) -> Option<Duration> {
        match &self.base {
            Base::Postgres(server) => Some(server.cpu_time()),
            Base::ZooKeeper(server) => Some(server.cpu_time()),
            Base::Named(_) => None,
        }
    }

    fn transactions(&self) -> Option<u64> {
        let Base::Postgres(server) = &self.base else { return None };
        let counted = "select sum(xact_commit + xact_rollback) from pg_stat_database";
        server.sql(counted).ok()?.trim().parse().ok()
    }

    fn give_leader_up(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Base::Postgres(server) = &self.base else {
            return Err("only sessions of a private PostgreSQL can be ended".into());
        };
        match server.sql(advisory_lock::GIVE_UP)?.trim() {
            "1" => Ok(()),
            sessions => Err(format!("{sessions} sessions held the lock").into()),
        }
    }
}
