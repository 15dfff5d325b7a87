//! How commands reach a running emulator: one line of JSON there, one back, over a Unix socket.
//!
//! The socket's name is abstract: it is no file, so none is left behind, and two emulators of one name cannot be.
//! Abstract names belong to a network namespace, so programs inside the emulated hosts cannot reach it, and
//! cannot change the network they are tested on. Who may connect is decided by the user at the other end: the one
//! that runs the emulator, and root.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use serde::{Deserialize, Serialize};

use crate::wan::Wan;
use crate::wan::fault::NetworkFault;
use crate::wan::switch::TrafficTotals;

/// Longer lines are no requests.
const MAX_LINE: u64 = 1 << 16;

/// Connections at a time: each program that `exec` started holds one.
const MAX_CONNECTIONS: usize = 1024;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum ControlRequest {
    /// Hosts, links and faults.
    Status,
    /// Let something go wrong.
    Inflict {
        /// The fault to begin with.
        fault: NetworkFault,
    },
    /// End all faults.
    Heal,
    /// Where a host is, to enter it. The connection stays open for as long as someone is inside: its end means
    /// that the network is gone.
    Enter {
        /// Which host.
        host: String,
    },
    /// End the emulator.
    Down,
}

/// What is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum ControlReply {
    /// It is done.
    Done {
        /// How many directed links it touched.
        links: usize,
    },
    /// How things are.
    Status(EmulatorStatus),
    /// Where a host is.
    Host(HostEntry),
    /// It cannot be done.
    Refused {
        /// The reason, for people.
        reason: String,
    },
}

/// How things are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmulatorStatus {
    /// The emulator's process.
    pub process: u32,
    /// Whether the thread that carries packets runs with real-time priority.
    pub real_time: bool,
    /// The hosts.
    pub hosts: Vec<HostEntry>,
    /// What went over the network.
    pub figures: TrafficTotals,
}

/// A host, and where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostEntry {
    /// Its name.
    pub name: String,
    /// Its site.
    pub site: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its other address.
    pub address_v6: Ipv6Addr,
    /// What to open to enter it.
    pub namespace: PathBuf,
}

/// The status of an emulator.
pub fn status(wan: &Wan) -> EmulatorStatus {
    EmulatorStatus {
        process: std::process::id(),
        real_time: wan.is_real_time(),
        hosts: wan.hosts().iter().map(entry).collect(),
        figures: wan.figures(),
    }
}

fn entry(host: &crate::wan::EmulatedHost) -> HostEntry {
    HostEntry {
        name: host.name.clone(),
        site: host.site.clone(),
        address: host.address,
        address_v6: host.address_v6,
        namespace: host.namespace_path(),
    }
}

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("mandate-wan-{name}"))
}

/// The socket of an emulator, taken before its network is made: so there is at most one of a name.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
}

impl ControlSocket {
    /// Takes a name.
    pub fn bind(name: &str) -> io::Result<Self> {
        Ok(ControlSocket { listener: UnixListener::bind_addr(&address(name)?)? })
    }

    /// Answers until it is told to go down.
    pub fn serve(self, wan: Wan) -> io::Result<()> {
        let wan = Arc::new(wan);
        let (down, told) = channel();
        let listener = self.listener;
        std::thread::Builder::new().name("control".into()).spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming().map_while(Result::ok) {
                if !is_allowed(&stream) || open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
                    continue;
                }
                open.fetch_add(1, Ordering::Relaxed);
                let (wan, down, open) = (wan.clone(), down.clone(), open.clone());
                std::thread::spawn(move || {
                    let _ = converse(&stream, &wan, &down);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        })?;
        let _ = told.recv();
        Ok(())
    }
}

fn is_allowed(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid();
    let other = rustix::net::sockopt::socket_peercred(stream);
    other.is_ok_and(|other| other.uid == me || other.uid.is_root())
}

fn converse(mut stream: &UnixStream, wan: &Wan, down: &Sender<()>) -> io::Result<()> {
    let mut lines = BufReader::new(stream.take(MAX_LINE)).lines();
    while let Some(line) = lines.next().transpose()? {
        let request = serde_json::from_str(&line);
        let reply = match &request {
            Ok(request) => answer(request, wan),
            Err(error) => ControlReply::Refused { reason: format!("this is no request: {error}") },
        };
        writeln!(stream, "{}", serde_json::to_string(&reply)?)?;
        if let Ok(ControlRequest::Down) = request {
            let _ = down.send(());
        }
    }
    Ok(())
}

fn answer(request: &ControlRequest, wan: &Wan) -> ControlReply {
    match request {
        ControlRequest::Status => ControlReply::Status(status(wan)),
        ControlRequest::Inflict { fault } => match wan.inflict(fault) {
            Ok(links) => ControlReply::Done { links },
            Err(unknown) => ControlReply::Refused { reason: unknown.to_string() },
        },
        ControlRequest::Heal => {
            wan.heal();
            ControlReply::Done { links: wan.hosts().len() * (wan.hosts().len() - 1) }
        }
        ControlRequest::Enter { host } => match wan.host(host) {
            Some(host) => ControlReply::Host(entry(host)),
            None => {
                let known: Vec<_> = wan.hosts().iter().map(|host| host.name.as_str()).collect();
                let known = known.join(", ");
                ControlReply::Refused {
                    reason: format!("there is no host `{host}`; there are {known}"),
                }
            }
        },
        ControlRequest::Down => ControlReply::Done { links: 0 },
    }
}

/// The other end.
#[derive(Debug)]
pub struct ControlClient {
    stream: BufReader<UnixStream>,
}

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody is there.
    #[error(
        "no emulator called `{0}` is running: start one with `mandate lab wan up`, or give its --name"
    )]
    Absent(String),
    /// It went away, or is something else.
    #[error("the emulator has gone")]
    Gone(#[from] io::Error),
    /// It will not.
    #[error("{0}")]
    Refused(String),
}

impl ControlClient {
    /// Connects to the emulator of this name.
    pub fn connect(name: &str) -> Result<Self, ControlError> {
        let stream = address(name)
            .and_then(|address| UnixStream::connect_addr(&address))
            .map_err(|_| ControlError::Absent(name.into()))?;
        Ok(ControlClient { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: &ControlRequest) -> Result<ControlReply, ControlError> {
        let text = serde_json::to_string(request).map_err(io::Error::from)?;
        writeln!(self.stream.get_mut(), "{text}")?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(ControlError::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_str(&line).map_err(io::Error::from)? {
            ControlReply::Refused { reason } => Err(ControlError::Refused(reason)),
            reply => Ok(reply),
        }
    }

    /// Waits until the emulator has ended.
    pub fn wait_for_end(mut self) {
        let mut line = String::new();
        while self.stream.read_line(&mut line).is_ok_and(|length| length > 0) {}
    }
}
