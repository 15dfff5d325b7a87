//! A private MariaDB.

use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::{Server, ServerError, ports, programs, system};

/// What brings the server and its tools.
pub(crate) const PACKAGE: &str = "mariadb-server";

/// The user of the system that the package makes.
pub(crate) const SYSTEM_USER: &str = "mysql";

/// The user and database that [`MariaDb::url`] names.
const USER: &str = "mandate";

/// For the first word of a server that listens.
const GREETING: Duration = Duration::from_millis(500);

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct MariaDbConfig {
    /// How many clients at once. 200 by default.
    pub max_connections: u32,
    /// Whether a commit waits for the disk. Not by default (`innodb_flush_method` is `nosync`): the death of the process
    /// loses nothing, only that of the machine would. `innodb_flush_log_at_trx_commit` is 1 either way: members do not
    /// lead on a server where it is not.
    pub waits_for_disk: bool,
    /// The password of the user in the URL; empty by default.
    pub password: String,
    /// Further options of `mariadbd`, without the two dashes, and their values.
    pub settings: Vec<(String, String)>,
    /// An existing directory to put its own into, say on a small disk. Where temporary files are by default.
    /// The nodes of a cluster use its subdirectories `n1`, `n2` and `n3`, which must exist.
    pub within: Option<PathBuf>,
}

impl Default for MariaDbConfig {
    fn default() -> Self {
        MariaDbConfig {
            max_connections: 200,
            waits_for_disk: false,
            password: String::new(),
            settings: Vec::new(),
            within: None,
        }
    }
}

impl MariaDbConfig {
    /// What a client needs, as a URL.
    pub(crate) fn url(&self, port: u16) -> String {
        let password = match self.password.as_str() {
            "" => String::new(),
            password => format!(":{password}"),
        };
        format!("mysql://{USER}{password}@127.0.0.1:{port}/{USER}")
    }

    /// Options for a server in this directory.
    pub(crate) fn options(&self, directory: &Path, port: u16) -> Vec<OsString> {
        let mut options = vec!["--no-defaults".into()];
        let mut set = |name: &str, value: &str| options.push(format!("--{name}={value}").into());
        let within = |name: &str| directory.join(name).display().to_string();
        set("datadir", &within("data"));
        set("socket", &within("socket"));
        set("pid-file", &within("pid"));
        set("tmpdir", &directory.display().to_string());
        set("bind-address", "127.0.0.1");
        set("port", &port.to_string());
        set("skip-name-resolve", "on");
        set("max-connections", &self.max_connections.to_string());
        set("thread-cache-size", "16");
        set("innodb-buffer-pool-size", "32M");
        set("innodb-log-file-size", "16M");
        set("innodb-flush-log-at-trx-commit", "1");
        if !self.waits_for_disk {
            set("innodb-flush-method", "nosync");
        }
        for (name, value) in &self.settings {
            set(name, value);
        }
        options
    }

    /// Makes the system tables.
    pub(crate) fn install(&self, instance: &Instance) -> Result<(), ServerError> {
        let mut install = Command::new(programs::find("mariadb-install-db", PACKAGE)?);
        install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
        install.args(["--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M"]);
        install.arg("--innodb-flush-log-at-trx-commit=0");
        install.arg(format!("--datadir={}", instance.directory().join("data").display()));
        instance.run(&mut install).map(|_| ())
    }

    /// Makes the user and the database of the URL.
    pub(crate) fn provide(&self, instance: &Instance) -> Result<(), ServerError> {
        let statements = format!(
            "create database if not exists {USER}; \
             create user if not exists {USER}@'%' identified by '{}'; \
             grant all privileges on *.* to {USER}@'%' with grant option",
            self.password
        );
        sql(instance, "mysql", &statements).map(|_| ())
    }
}

/// Has the server's own client run statements as its administrator; what it printed, without headings.
pub(crate) fn sql(
    instance: &Instance,
    database: &str,
    statements: &str,
) -> Result<String, ServerError> {
    let mut client = Command::new(programs::find("mariadb", "mariadb-client")?);
    client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
    client.arg("--connect-timeout=5");
    client.arg("--socket").arg(instance.directory().join("socket"));
    instance.run(client.args(["--database", database, "--execute", statements]))
}

/// Whether a server greets at this port.
pub(crate) fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut first = [0; 5];
    // The length and number of its first packet, and the version of the protocol.
    stream.set_read_timeout(Some(GREETING)).is_ok()
        && stream.read_exact(&mut first).is_ok()
        && first[4] == 10
}

/// A running MariaDB. It listens on loopback and on a Unix socket in its directory.
#[derive(Debug)]
pub struct MariaDb {
    instance: Instance,
    port: u16,
    config: MariaDbConfig,
}

impl MariaDb {
    /// Makes the system tables and starts a server on them.
    pub fn launch(config: &MariaDbConfig) -> Result<Self, ServerError> {
        let instance = Instance::new("mariadb", SYSTEM_USER, "", config.within.as_deref())?;
        let port = ports::free_port().map_err(system("find a port"))?;
        config.install(&instance)?;
        let mut server = MariaDb { instance, port, config: config.clone() };
        server.start()?;
        config.provide(&server.instance)?;
        Ok(server)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Has its own client, `mariadb`, run statements as the administrator; what it printed, without
    /// headings.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        sql(&self.instance, USER, statements)
    }
}

impl Server for MariaDb {
    /// As a user of the name `mandate`, who may do everything, in a database of that name.
    fn url(&self) -> String {
        self.config.url(self.port)
    }

    fn start(&mut self) -> Result<(), ServerError> {
        let mut command = Command::new(programs::find("mariadbd", PACKAGE)?);
        command.args(self.config.options(self.instance.directory(), self.port));
        let port = self.port;
        self.instance.launch(&mut command, |_| greets(port))
    }

    crate::instance::faults!(Signal::TERM);
}
