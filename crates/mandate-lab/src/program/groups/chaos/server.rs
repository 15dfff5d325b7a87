//! Members on a private database under faults: stopped, crashed, frozen, filled, locked, its connections broken, its control
//! row removed and put back.
//!
//! The server's files, or the file itself, are on a small disk in a mount namespace of this process alone ([`disk`](super::disk)).
//! Leaders also write to a table that the fence guards; what it took is looked at after every phase.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::mem::take;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use mandate_conformance::judge::{HistoryViolation, falls};
use mandate_conformance::subject::{EngineUnderTest, Members, SetupError};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::PeerGuarantee;
use mandate_servers::{Server, ServerError};
use mandate_sql::Address;
use mandate_sql::schema::Dialect;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::clock::Stepped;
use super::disk::{Disk, leave_mounts};
use super::storm::{self, Kind, Strike};
use super::target::ChaosTarget;
use crate::groups::client::Client;
use crate::groups::sql::{Base, OnDatabase, ServerName, lock};
use crate::groups::{EngineArgs, guarded};

/// Room for a server, and as much again for what it writes meanwhile.
const SERVER_DISK: &str = "size=256m,mode=755";

/// Room for a file and its log, which SQLite starts anew after four megabytes.
const FILE_DISK: &str = "size=16m,mode=755";

/// Between two rounds of breaking all connections: members are connected for about as long as a few statements take.
const BREAK_EVERY: Duration = Duration::from_millis(30);

/// How long a server may take to come back.
const RETURN: Duration = Duration::from_secs(60);

/// Segments of PostgreSQL's log that are begun once there is no room for a new one: more than it keeps in reserve.
const SEGMENTS: usize = 8;

/// How often a control row is renewed before an older copy of it is put back,
const RENEWALS: usize = 3;

/// and for how many leases at least: all members that look on have seen a newer one by then. Others may take it for what it was.
const RENEWED_FOR: u32 = 3;

/// For how many leases renewals are waited for: rounds may have grown, or the longest lease is waited for.
const RENEWALS_WITHIN: u32 = 24;

/// Has commits acknowledged before they are on disk, and written there late.
const FORGETFUL: [&str; 4] = [
    "alter database postgres set synchronous_commit = off",
    "alter system set wal_writer_delay = '10s'",
    "alter system set wal_writer_flush_after = '1GB'",
    "select pg_reload_conf()",
];

/// What members log when they see that a control row was lost.
const TOLD: [&str; 2] = ["the control row went back", "the control row was lost and made again"];

/// A database, the faults for it, and what was written to it.
pub(super) struct ServerTarget {
    // In the order in which they must end: servers before their disks, and those before their directory.
    state: Mutex<State>,
    runtime: Runtime,
    subject: OnDatabase,
    disks: Vec<Disk>,
    directory: TempDir,
    within: Duration,
    lease: Duration,
    steps_clock: bool,
}

#[derive(Default)]
struct State {
    /// Whether a control row was removed or put back in this phase, and whether a crash could have cost one.
    is_lost: bool,
    is_forgetful: bool,
    /// Whether one was ever put back.
    is_restored: bool,
    group: String,
    addresses: Vec<Address>,
    stranger: Option<Client>,
    breaking: Option<JoinHandle<()>>,
    clock: Option<Stepped>,
    /// Of the guarded table: the number of the last write, the newest term, and what is wrong.
    last: i64,
    newest: Term,
    violations: Vec<String>,
}

impl ServerTarget {
    /// Starts a server of the kind that is asked for. Call it first of all: it leaves the machine's mounts, and threads
    /// that are there before do not come along.
    pub(super) fn make(
        engine: &EngineArgs,
        within: Duration,
        steps_clock: bool,
    ) -> anyhow::Result<Self> {
        anyhow::ensure!(
            engine.url.is_none(),
            "chaos injects faults into the database itself: give --server instead of --url"
        );
        leave_mounts()?;
        let directory = tempfile::Builder::new().prefix("mandate-disks-").tempdir()?;
        // Servers run as users of their own.
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        let server = engine.server.unwrap_or_default();
        let (nodes, size) = match server {
            ServerName::Sqlite => (1, FILE_DISK),
            ServerName::Postgres | ServerName::Mariadb => (1, SERVER_DISK),
            ServerName::Galera => (3, SERVER_DISK),
        };
        let place = |node: usize| directory.path().join(format!("n{node}"));
        let disks = (1..=nodes).map(|node| Disk::insert(&place(node), size));
        let disks = disks.collect::<anyhow::Result<_>>()?;
        let within_disks = match server {
            ServerName::Galera => directory.path().to_owned(),
            _ => place(1),
        };
        let base = Base::launch(server, Some(&within_disks))?;
        let subject = OnDatabase { guarded: true, ..engine.on_base(base, true) };
        let runtime = Runtime::new().context("could not start")?;
        let (state, lease) = (Mutex::default(), engine.lease());
        Ok(ServerTarget { state, runtime, subject, disks, directory, within, lease, steps_clock })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_place(&self) -> PathBuf {
        self.directory.path().join("n1")
    }

    /// The node that a member uses.
    fn node(&self, member: MemberId) -> usize {
        member.get() as usize % self.disks.len()
    }

    /// Does something to a node.
    fn on_node(
        &self,
        node: usize,
        work: impl FnOnce(&mut dyn Server) -> Result<(), ServerError>,
    ) -> anyhow::Result<()> {
        Ok(match &*self.subject.base {
            Base::Postgres(server) => work(&mut *lock(server)),
            Base::MariaDb(server) => work(&mut *lock(server)),
            Base::Galera(cluster) => work(&mut lock(cluster).nodes_mut()[node]),
            Base::File | Base::Named(_) => bail!("a file does not run"),
        }?)
    }

    fn node_name(&self, node: usize) -> String {
        match self.disks.len() {
            1 => "the database".into(),
            _ => format!("node {}", node + 1),
        }
    }

    /// Fills the disk, so that the log finds no room.
    fn fill(&self, node: usize) -> anyhow::Result<()> {
        self.disks[node].fill()?;
        if let Base::Postgres(_) = &*self.subject.base {
            let address = self.state().addresses[0].clone();
            self.runtime.block_on(async {
                let Ok(mut client) = Client::open(&address).await else { return };
                for _ in 0..SEGMENTS {
                    // It may end of it: that is a full disk.
                    let next = "select pg_logical_emit_message(false, 'chaos', ''); select pg_switch_wal()";
                    if client.execute(next).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(())
    }

    /// A stranger locks the control row, or a file, and stays.
    fn hold_lock(&self, node: usize) -> anyhow::Result<String> {
        let (address, group) = {
            let state = self.state();
            (state.addresses[node].clone(), state.group.clone())
        };
        let locked = self.runtime.block_on(async {
            let mut client = Client::open(&address).await?;
            let select =
                format!("select term from mandate_control where group_name = '{group}' for update");
            let statements = match &client {
                Client::Sqlite(_) => vec!["begin immediate".to_owned()],
                _ => vec!["begin".to_owned(), select],
            };
            for statement in &statements {
                client.execute(statement).await?;
            }
            anyhow::Ok(client)
        });
        Ok(match locked {
            Ok(client) => {
                self.state().stranger = Some(client);
                "a stranger locks the control row".into()
            }
            Err(error) => format!("a stranger fails to lock the control row: {error:#}"),
        })
    }

    /// Removes the control row, or puts a copy of it back that is a few renewals older.
    fn lose_row(&self, fault: &Strike, node: usize) -> anyhow::Result<String> {
        let (address, group) = {
            let state = self.state();
            (state.addresses[node].clone(), state.group.clone())
        };
        let row = format!("where group_name = '{group}'");
        let removed = format!("delete from mandate_control {row}");
        let lost = self.runtime.block_on(async {
            let mut client = Client::open(&address).await?;
            if *fault == Strike::Vanish {
                return client.execute(&removed).await;
            }
            client.execute(&format!("delete from {COPY} {row}")).await?;
            client
                .execute(&format!("insert into {COPY} select * from mandate_control {row}"))
                .await?;
            self.renewals(&mut client, &group).await?;
            let back = format!("insert into mandate_control select * from {COPY} {row}");
            for statement in ["begin", &removed, &back, "commit"] {
                client.execute(statement).await?;
            }
            Ok(())
        });
        Ok(match (lost, fault) {
            (Ok(()), fault) => {
                let mut state = self.state();
                state.is_lost = true;
                state.is_restored |= *fault == Strike::Restore;
                match fault {
                    Strike::Vanish => "remove the control row".into(),
                    _ => "put the control row back to an older copy of itself".into(),
                }
            }
            (Err(error), _) => format!("a stranger fails to change the control row: {error:#}"),
        })
    }

    /// Waits until the control row was renewed a few times, the first time long enough ago for everyone to have seen it.
    async fn renewals(&self, client: &mut Client, group: &str) -> anyhow::Result<()> {
        let version = format!(
            "select term, beat from mandate_control where group_name = '{group}' and role = -1"
        );
        let renewed = async {
            let (mut seen, mut first) = (BTreeSet::new(), None);
            loop {
                seen.extend(client.numbers::<2>(&version).await?);
                if seen.len() > 1 {
                    let first: &mut Instant = first.get_or_insert_with(Instant::now);
                    if seen.len() > RENEWALS && first.elapsed() > self.lease * RENEWED_FOR {
                        return anyhow::Ok(());
                    }
                }
                tokio::time::sleep(BREAK_EVERY).await;
            }
        };
        let renewed = timeout(self.lease * RENEWALS_WITHIN, renewed).await;
        renewed.context("nobody renews the control row")?
    }

    /// A crash of a PostgreSQL that has acknowledged what is not on disk.
    fn forget(&self, node: usize) -> anyhow::Result<String> {
        let (address, group) = {
            let state = self.state();
            (state.addresses[node].clone(), state.group.clone())
        };
        let prepared = self.runtime.block_on(async {
            let mut client = Client::open(&address).await?;
            for statement in FORGETFUL {
                client.execute(statement).await?;
            }
            // Everyone has the setting from the next connection on.
            break_once(&mut client).await?;
            self.renewals(&mut client, &group).await
        });
        self.on_node(node, |server| server.kill())?;
        self.state().is_forgetful = true;
        Ok(match prepared {
            Ok(()) => "kill the database, with synchronous_commit = off".into(),
            Err(error) => format!("kill the database, with synchronous_commit = off: {error:#}"),
        })
    }

    fn break_connections(&self) {
        let mut state = self.state();
        let breaking = self.runtime.spawn(break_all(state.addresses.clone()));
        if let Some(earlier) = state.breaking.replace(breaking) {
            earlier.abort();
        }
    }

    /// Everything runs, and answers.
    fn start_servers(&self) -> anyhow::Result<()> {
        match &*self.subject.base {
            Base::File | Base::Named(_) => return Ok(()),
            Base::Galera(cluster) => lock(cluster).recover()?,
            Base::Postgres(_) | Base::MariaDb(_) => {
                // What has ended is not frozen.
                let _ = self.on_node(0, |server| server.resume());
            }
        }
        let began = Instant::now();
        let addresses = self.state().addresses.clone();
        for (node, address) in addresses.iter().enumerate() {
            // One that had no room may end only now.
            while let Err(error) = self.start_and_ask(node, address) {
                if began.elapsed() > RETURN {
                    return Err(error.context("the database does not come back"));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    fn start_and_ask(&self, node: usize, address: &Address) -> anyhow::Result<()> {
        self.on_node(node, |server| server.start())?;
        self.runtime.block_on(async { Client::open(address).await?.execute("select 1").await })
    }
}

/// Where a copy of a control row is kept.
const COPY: &str = "mandate_lab_copy";

fn copy_table(address: &Address) -> String {
    let like = match address.dialect() {
        Dialect::Sqlite => "as select * from mandate_control where 0",
        Dialect::Postgres => "(like mandate_control including all)",
        Dialect::MySql => "like mandate_control",
    };
    format!("create table if not exists {COPY} {like}")
}

/// Ends everyone's connections, again and again.
async fn break_all(addresses: Vec<Address>) {
    let mut clients: Vec<Option<Client>> = addresses.iter().map(|_| None).collect();
    loop {
        for (client, address) in clients.iter_mut().zip(&addresses) {
            if client.is_none() {
                *client = Client::open(address).await.ok();
            }
            if let Some(open) = client
                && break_once(open).await.is_err()
            {
                *client = None;
            }
        }
        tokio::time::sleep(BREAK_EVERY).await;
    }
}

async fn break_once(client: &mut Client) -> anyhow::Result<()> {
    match client {
        Client::Sqlite(_) => bail!("a file has no connections"),
        Client::Postgres(_) => {
            let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                          where pid <> pg_backend_pid() and backend_type = 'client backend'";
            client.execute(others).await
        }
        Client::MySql(_) => {
            let others = "select id from information_schema.processlist \
                          where user = 'mandate' and id <> connection_id()";
            for [id] in client.numbers(others).await? {
                // It may have ended by itself.
                let _ = client.execute(&format!("kill {id}")).await;
            }
            Ok(())
        }
    }
}

impl EngineUnderTest for ServerTarget {
    fn name(&self) -> String {
        self.subject.name()
    }

    fn guarantee(&self) -> PeerGuarantee {
        self.subject.guarantee()
    }

    fn group(&self, size: u32, _: &Path) -> Result<Box<dyn Members>, SetupError> {
        let place = self.file_place();
        let addresses = self.subject.base.addresses(&place)?;
        self.runtime.block_on(async {
            guarded::make(&addresses[0]).await?;
            Client::open(&addresses[0]).await?.execute(&copy_table(&addresses[0])).await
        })?;
        let actors = self.subject.actors(size, &place)?;
        let group = actors.group.clone();
        *self.state() = State { group, addresses, ..State::default() };
        Ok(Box::new(actors))
    }

    fn patience(&self) -> Duration {
        self.within
    }
}

impl ChaosTarget for ServerTarget {
    fn kinds(&self) -> Vec<(Kind, usize)> {
        let mut kinds = match &*self.subject.base {
            Base::File => storm::ON_A_FILE.to_vec(),
            _ => storm::ON_A_SERVER.to_vec(),
        };
        if let Base::Postgres(_) = &*self.subject.base {
            kinds.push((Kind::Forget, 2));
        }
        if self.steps_clock {
            kinds.push((Kind::ClockStep, 2));
        }
        kinds
    }

    fn inflict(&self, fault: &Strike, member: MemberId) -> anyhow::Result<String> {
        let node = self.node(member);
        let name = self.node_name(node);
        Ok(match fault {
            Strike::Stop(_) => match self.on_node(node, |server| server.stop()) {
                Ok(()) => format!("stop {name} in good order"),
                Err(error) => {
                    self.on_node(node, |server| server.kill())?;
                    format!("kill {name}, which did not stop: {error:#}")
                }
            },
            Strike::Crash(_) => {
                self.on_node(node, |server| server.kill())?;
                format!("kill {name}")
            }
            Strike::Freeze(_) => match self.on_node(node, |server| server.freeze()) {
                Ok(()) => format!("freeze {name}"),
                Err(error) => format!("{name} cannot be frozen: {error}"),
            },
            Strike::FillDisk(_) => {
                self.fill(node)?;
                format!("fill the disk of {name}")
            }
            Strike::HoldLock(_) => self.hold_lock(node)?,
            Strike::BreakConnections => {
                self.break_connections();
                "break all connections".into()
            }
            Strike::Vanish | Strike::Restore => self.lose_row(fault, node)?,
            Strike::Forget => self.forget(node)?,
            Strike::StepClock(seconds) => {
                let mut state = self.state();
                state.clock = None;
                state.clock = Some(Stepped::by(*seconds)?);
                format!("step the wall clock by {seconds} s")
            }
            other => bail!("{} does not happen on a database", other.kind().name()),
        })
    }

    fn heal(&self) -> anyhow::Result<()> {
        let (stranger, breaking) = {
            let mut state = self.state();
            state.clock = None;
            (state.stranger.take(), state.breaking.take())
        };
        if let Some(breaking) = breaking {
            breaking.abort();
        }
        // Whose connection ends, its lock ends.
        self.runtime.block_on(async { drop(stranger) });
        self.disks.iter().try_for_each(Disk::free)?;
        self.start_servers()
    }

    fn look(&self) -> anyhow::Result<Option<Term>> {
        let (address, group, last) = {
            let state = self.state();
            (state.addresses[0].clone(), state.group.clone(), state.last)
        };
        let (writes, last) = self.runtime.block_on(guarded::read(&address, &group, last))?;
        let mut state = self.state();
        let found = falls(&mut state.newest, &writes);
        state.violations.extend(found.iter().map(|fall| format!("the guarded table: {fall}")));
        state.last = last;
        Ok(Some(state.newest))
    }

    fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Members show what the row says, and it says an older term again.
    fn expects(&self, violation: &HistoryViolation) -> bool {
        matches!(violation, HistoryViolation::ViewFell { .. }) && self.state().is_restored
    }

    /// Who lost a row must be told so; and a crash must not cost one.
    fn untold(&self, logged: &str) -> Option<String> {
        let (is_lost, is_forgetful) = {
            let mut state = self.state();
            (take(&mut state.is_lost), take(&mut state.is_forgetful))
        };
        let is_told = TOLD.iter().any(|told| logged.contains(told));
        match (is_lost, is_forgetful, is_told) {
            (true, _, false) => Some("the control row was lost, and no member logged that".into()),
            (false, true, true) => {
                Some("a crash of the database cost a control row that was acknowledged".into())
            }
            _ => None,
        }
    }

    fn writes(&self) -> u64 {
        self.state().last.unsigned_abs()
    }
}
