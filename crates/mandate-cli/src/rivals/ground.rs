//! The private servers that rivals stand on.

use std::error::Error;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use mandate_lab::rivals::trial::Ground;
use mandate_lab::rivals::{advisory_lock, printed};
use mandate_servers::Server;
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_servers::zookeeper::{ZooKeeper, ZooKeeperConfig};
use mandate_sql::schema::Dialect;

use super::{Rival, RivalArgs};
use crate::sql::GuaranteeName;

/// For the connections of the harness itself, and of members that are killed and come back before the
/// server has noticed.
const SPARE_CONNECTIONS: u32 = 50;

/// PostgreSQL's processes are many: beyond this each costs more than it shows.
const MOST_CONNECTIONS: u64 = 900;

/// Of our own engine, members of one process share connections beyond this number, and so many.
const SHARED_BEYOND: u64 = 800;
const SHARED: usize = 8;

/// A rival's server, ready for members.
pub(super) struct Prepared {
    rival: Rival,
    program: PathBuf,
    /// What its members need to know besides.
    flags: Vec<String>,
    server: PrivateServer,
}

enum PrivateServer {
    Postgres(Postgres),
    ZooKeeper(ZooKeeper),
}

impl Prepared {
    pub(super) fn start(args: &RivalArgs) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("could not find this program")?;
        let server = match args.rival {
            Rival::AdvisoryLock | Rival::Printed => {
                let postgres = postgres(args.members)?;
                if args.rival == Rival::Printed {
                    postgres.sql(&printed::schema(args.round))?;
                }
                PrivateServer::Postgres(postgres)
            }
            Rival::Mandate => {
                let postgres = postgres(args.members.min(SHARED_BEYOND))?;
                postgres.sql(&mandate_sql::schema::script(Dialect::Postgres))?;
                PrivateServer::Postgres(postgres)
            }
            Rival::Zookeeper => {
                let config = ZooKeeperConfig { tick: args.tick, waits_for_disk: true };
                PrivateServer::ZooKeeper(ZooKeeper::launch(&config)?)
            }
        };
        let mut flags = Vec::new();
        if args.rival == Rival::Mandate {
            flags.push(format!("--round-ms={}", args.round.as_millis()));
            let guarantee = match args.guarantee {
                GuaranteeName::Fenced => "fenced",
                GuaranteeName::Leased => "leased",
            };
            flags.push(format!("--guarantee={guarantee}"));
            if args.members > SHARED_BEYOND {
                flags.push(format!("--connections={SHARED}"));
            }
        }
        Ok(Prepared { rival: args.rival, program, flags, server })
    }
}

fn postgres(members: u64) -> anyhow::Result<Postgres> {
    anyhow::ensure!(
        members <= MOST_CONNECTIONS,
        "each member has a connection of its own, and PostgreSQL has a process for each: \
         at most {MOST_CONNECTIONS} members"
    );
    let max_connections = members as u32 + SPARE_CONNECTIONS;
    let config = PostgresConfig { max_connections, waits_for_disk: true, ..Default::default() };
    Ok(Postgres::launch(&config)?)
}

impl Ground for Prepared {
    fn port(&self) -> u16 {
        match &self.server {
            PrivateServer::Postgres(server) => server.port(),
            PrivateServer::ZooKeeper(server) => server.port(),
        }
    }

    fn members(&self, members: Range<u64>, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["lab", "crowd", self.rival.name()]).args(&self.flags);
        command.arg("--first").arg(members.start.to_string());
        command.arg("--members").arg((members.end - members.start).to_string());
        let (url, own) = match &self.server {
            PrivateServer::Postgres(server) => (server.url(), server.port()),
            PrivateServer::ZooKeeper(server) => {
                let session_ms = server.shortest_session().as_millis().to_string();
                command.arg("--session-ms").arg(session_ms);
                (server.url(), server.port())
            }
        };
        command.arg("--url").arg(url.replace(&format!(":{own}"), &format!(":{port}")));
        command
    }

    fn cpu_time(&self) -> Duration {
        match &self.server {
            PrivateServer::Postgres(server) => server.cpu_time(),
            PrivateServer::ZooKeeper(server) => server.cpu_time(),
        }
    }

    fn transactions(&self) -> Option<u64> {
        let PrivateServer::Postgres(server) = &self.server else { return None };
        let counted = "select sum(xact_commit + xact_rollback) from pg_stat_database";
        server.sql(counted).ok()?.trim().parse().ok()
    }

    fn give_leader_up(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let PrivateServer::Postgres(server) = &self.server else {
            return Err("only sessions of PostgreSQL can be ended".into());
        };
        match server.sql(advisory_lock::GIVE_UP)?.trim() {
            "1" => Ok(()),
            sessions => Err(format!("{sessions} sessions held the lock").into()),
        }
    }
}
