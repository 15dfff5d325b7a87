//! A private PostgreSQL.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal};

use crate::instance::Instance;
use crate::{Server, ServerError, ports, programs, system};

/// The user, a superuser, whom [`Postgres::url`] names.
const USER: &str = "mandate";

/// The database that [`Postgres::url`] names.
const DATABASE: &str = "postgres";

/// A server that is killed leaves the small System V segment by which it makes sure to be alone on its
/// data; the seventh line of its file says which.
const LEFTOVERS: &str =
    r#"ipcrm -m "$(sed -n '7s/.* //p' "$1/data/postmaster.pid" 2>/dev/null)" 2>/dev/null"#;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    /// How many clients at once, besides those reserved for superusers (three). 100 by default.
    pub max_connections: u32,
    /// Whether a commit waits for the disk (`fsync`). Not by default: the death of all processes loses
    /// nothing, only that of the machine would.
    pub waits_for_disk: bool,
    /// The password of the user in the URL. Without one, every client on loopback is trusted.
    pub password: Option<String>,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// An existing directory to put its own into, say on a small disk. Where temporary files are by default.
    pub within: Option<PathBuf>,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        PostgresConfig {
            max_connections: 100,
            waits_for_disk: false,
            password: None,
            settings: Vec::new(),
            within: None,
        }
    }
}

/// A running PostgreSQL. It listens on loopback and on a Unix socket in its directory.
#[derive(Debug)]
pub struct Postgres {
    instance: Instance,
    programs: PathBuf,
    port: u16,
    config: PostgresConfig,
}

impl Postgres {
    /// Makes a database cluster and starts a server on it.
    pub fn launch(config: &PostgresConfig) -> Result<Self, ServerError> {
        let programs = programs::postgresql()?;
        let instance =
            Instance::new("postgresql", "postgres", LEFTOVERS, config.within.as_deref())?;
        let port = ports::free_port().map_err(system("find a port"))?;
        let mut server = Postgres { instance, programs, port, config: config.clone() };
        server.initialise()?;
        server.start()?;
        Ok(server)
    }

    /// Starts a standby that follows this server, with the same settings: it streams what this one writes, and may be
    /// read.
    pub fn standby(&self) -> Result<Self, ServerError> {
        let within = self.config.within.as_deref();
        let instance = Instance::new("postgresql", "postgres", LEFTOVERS, within)?;
        let port = ports::free_port().map_err(system("find a port"))?;
        let mut copy = Command::new(self.programs.join("pg_basebackup"));
        copy.args([
            "--no-sync",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--write-recovery-conf",
        ]);
        copy.arg("--dbname").arg(self.url()).arg("--pgdata").arg(instance.directory().join("data"));
        instance.run(&mut copy)?;
        let (programs, config) = (self.programs.clone(), self.config.clone());
        let mut standby = Postgres { instance, programs, port, config };
        standby.start()?;
        Ok(standby)
    }

    fn initialise(&self) -> Result<(), ServerError> {
        let mut initdb = Command::new(self.programs.join("initdb"));
        initdb.args(["--no-sync", "--encoding=UTF8", "--locale=C", "--username", USER]);
        match &self.config.password {
            Some(password) => {
                let file = self.instance.write("password", password)?;
                initdb.arg("--auth=scram-sha-256").arg("--pwfile").arg(file);
            }
            None => {
                initdb.arg("--auth=trust");
            }
        }
        initdb.arg("--pgdata").arg(self.instance.directory().join("data"));
        self.instance.run(&mut initdb).map(|_| ())
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How a client finds it by its Unix socket.
    pub fn socket_url(&self) -> String {
        let directory = self.instance.directory().display().to_string().replace('/', "%2F");
        format!("postgres://{}@{directory}:{}/{DATABASE}", self.credentials(), self.port)
    }

    fn credentials(&self) -> String {
        match &self.config.password {
            Some(password) => format!("{USER}:{password}"),
            None => USER.into(),
        }
    }

    /// Has its own client, `psql`, run statements as a superuser; what it printed, without headings.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url());
        self.instance.run(psql.args(["-c", statements]))
    }

    fn command(&self) -> Command {
        let directory = self.instance.directory();
        let mut command = Command::new(self.programs.join("postgres"));
        command.arg("-D").arg(directory.join("data"));
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", "127.0.0.1");
        set("port", &self.port.to_string());
        set("unix_socket_directories", &directory.display().to_string());
        set("max_connections", &(self.config.max_connections + 3).to_string());
        set("superuser_reserved_connections", "3");
        set("fsync", if self.config.waits_for_disk { "on" } else { "off" });
        if !self.config.waits_for_disk {
            // Members do not lead on such a server otherwise.
            set("mandate.durability", "accept-loss");
        }
        set("shared_buffers", "32MB");
        // Files below the data directory, which go with it; in /dev/shm they would outlive a kill.
        set("dynamic_shared_memory_type", "mmap");
        for (name, value) in &self.config.settings {
            set(name, value);
        }
        command
    }
}

impl Server for Postgres {
    /// As a superuser of the name `mandate`, for which no connections run out before `max_connections`.
    fn url(&self) -> String {
        format!("postgres://{}@127.0.0.1:{}/{DATABASE}", self.credentials(), self.port)
    }

    fn start(&mut self) -> Result<(), ServerError> {
        let file = self.instance.directory().join("data/postmaster.pid");
        let is_ready = |main: Pid| {
            // The first line is the process, the eighth its state: what `pg_ctl` waits for, too.
            let state = fs::read_to_string(&file).unwrap_or_default();
            let mut lines = state.lines();
            lines.next() == Some(&main.as_raw_nonzero().to_string())
                && lines.nth(6).is_some_and(|state| state.trim() == "ready")
        };
        let mut command = self.command();
        self.instance.launch(&mut command, is_ready)
    }

    // "Fast": clients are disconnected.
    crate::instance::faults!(Signal::INT);
}
