//! A private PgBouncer: a pooler before a private PostgreSQL.
//!
//! In transaction mode it lends a session of the server to one client for one transaction, and to another for the next:
//! whatever a client leaves in a session is the next client's. In session mode a client keeps its session until it hangs up.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use rustix::process::Signal;

use crate::instance::Instance;
use crate::postgres::Postgres;
use crate::{Server, ServerError, ports, programs, system};

/// What brings it.
const PACKAGE: &str = "pgbouncer";

/// For how long a session is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// For a transaction.
    Transaction,
    /// For as long as the client is connected.
    Session,
}

/// A running PgBouncer. It listens on loopback.
#[derive(Debug)]
pub struct PgBouncer {
    instance: Instance,
    port: u16,
    url: String,
}

impl PgBouncer {
    /// Starts a pooler with so many sessions of this server, which must ask for no password.
    pub fn launch(server: &Postgres, mode: PoolMode, sessions: u32) -> Result<Self, ServerError> {
        // PostgreSQL's user: that one is there.
        let instance = Instance::new("pgbouncer", "postgres", "", None)?;
        let port = ports::free_port().map_err(system("find a port"))?;
        instance.write("users", "\"mandate\" \"\"\n")?;
        let users = instance.directory().join("users");
        let mode = match mode {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
        };
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = {sessions}\n\
             max_client_conn = 200\nserver_round_robin = 1\n",
            server.port(),
            users.display()
        );
        instance.write("pgbouncer.ini", &settings)?;
        let url = format!("postgres://mandate@127.0.0.1:{port}/postgres");
        let mut bouncer = PgBouncer { instance, port, url };
        bouncer.start()?;
        Ok(bouncer)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Server for PgBouncer {
    /// The server's own database, through the pooler.
    fn url(&self) -> String {
        self.url.clone()
    }

    fn start(&mut self) -> Result<(), ServerError> {
        let mut command = Command::new(programs::find("pgbouncer", PACKAGE)?);
        command.arg(self.instance.directory().join("pgbouncer.ini"));
        let port = self.port;
        self.instance
            .launch(&mut command, |_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
    }

    crate::instance::faults!(Signal::INT);
}
