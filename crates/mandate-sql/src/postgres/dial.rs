//! From a target to a connection that is logged in.
//!
//! The driver could dial by itself. It is done here because the driver answers whoever asks for the password in plain
//! text, over whatever connection there is: that is seen to between the driver and the socket (see [`Guarded`]).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::sync::{broadcast, watch};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::guarded::{Guarded, Rules};
use super::target::{Keepalive, Place, Target, Terms, Tls, Wanted};
use super::{described, drive, refusal};
use crate::error::NoConnection;
use crate::tls;

/// How long one attempt may take where nothing else is written, shared among the hosts.
const LIMIT: Duration = Duration::from_secs(8);

/// The least of it that a host has.
const LEAST: Duration = Duration::from_secs(2);

/// A connection, driven by a task of its own, and when it has ended.
pub(crate) type Dialed = (Client, watch::Receiver<bool>);

/// Connects to the first place that will do.
pub(crate) async fn dial(
    target: &Target,
    heard: &broadcast::Sender<String>,
) -> Result<Dialed, NoConnection> {
    let tls = match &target.tls {
        Tls::Never => None,
        Tls::Offered(terms) | Tls::Always(terms) => Some(connector(terms)?),
    };
    let mut places: Vec<&Place> = target.places.iter().collect();
    if target.shuffles {
        shuffle(&mut places);
    }
    let strict = Dial { target, tls: tls.as_ref(), heard, wanted: first_pass(target.wanted) };
    let mut failed = match strict.first_of(&places).await {
        Ok(dialed) => return Ok(dialed),
        Err(failed) => failed,
    };
    if strict.wanted != target.wanted {
        let lenient = Dial { wanted: Wanted::Any, ..strict };
        match lenient.first_of(&places).await {
            Ok(dialed) => return Ok(dialed),
            Err(again) => failed = again,
        }
    }
    Err(failed)
}

/// What is looked for at first; any will do after that, if this is not all that is wanted.
fn first_pass(wanted: Wanted) -> Wanted {
    match wanted {
        Wanted::PreferWritable => Wanted::Writable,
        Wanted::PreferStandby => Wanted::Standby,
        wanted => wanted,
    }
}

fn connector(terms: &Terms) -> Result<MakeRustlsConnect, NoConnection> {
    let Terms { trust, roots, identity } = terms;
    let config = tls::config(*trust, roots, identity.as_ref()).map_err(NoConnection::lasting)?;
    Ok(MakeRustlsConnect::new(config))
}

struct Dial<'a> {
    target: &'a Target,
    tls: Option<&'a MakeRustlsConnect>,
    heard: &'a broadcast::Sender<String>,
    wanted: Wanted,
}

impl Dial<'_> {
    async fn first_of(&self, places: &[&Place]) -> Result<Dialed, NoConnection> {
        let share = LIMIT / u32::try_from(places.len()).unwrap_or(1);
        let limit = self.target.limit.unwrap_or(share.max(LEAST));
        let mut failures = Vec::new();
        for place in places {
            let failed = match tokio::time::timeout(limit, self.one(place)).await {
                Ok(Ok(dialed)) => return Ok(dialed),
                Ok(Err(failed)) => failed,
                Err(_) => NoConnection::passing(format!("no answer within {limit:?}")),
            };
            failures.push((place, failed));
        }
        // One that may come back makes all of it pass.
        let is_final = failures.iter().all(|(_, failed)| failed.is_final);
        let reasons = failures.into_iter().map(|(place, failed)| match places.len() {
            1 => failed.reason,
            _ => format!("{}:{}: {}", place.host, place.port, failed.reason),
        });
        Err(NoConnection { reason: reasons.collect::<Vec<_>>().join("; "), is_final })
    }

    /// Every address that a name has, in turn.
    async fn one(&self, place: &Place) -> Result<Dialed, NoConnection> {
        if let Some(path) = place.socket() {
            let socket = UnixStream::connect(&path).await;
            let failed = |error| NoConnection::passing(format!("{}: {error}", path.display()));
            let stream = Guarded::new(Box::new(socket.map_err(failed)?), Rules::default());
            return self.log_in(place, stream, false).await;
        }
        let mut failed = NoConnection::passing("the name has no address");
        for address in addresses(place).await? {
            match self.over_tcp(place, address).await {
                Ok(dialed) => return Ok(dialed),
                Err(again) => failed = again,
            }
        }
        Err(failed)
    }

    async fn over_tcp(&self, place: &Place, address: SocketAddr) -> Result<Dialed, NoConnection> {
        let failed = |error: std::io::Error| NoConnection::passing(format!("{address}: {error}"));
        let socket = TcpStream::connect(address).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        keep_alive(&socket, self.target.keepalive.as_ref());
        let is_near = is_near(address.ip());
        let rules = Rules {
            asks_for_tls: self.tls.is_some(),
            insists: matches!(self.target.tls, Tls::Always(_)),
            // Whoever writes sslmode=disable means it.
            hides_password: self.tls.is_some() && !is_near,
        };
        let stream = Guarded::new(Box::new(socket), rules);
        let is_plain = stream.is_plain();
        let dialed = self.log_in(place, stream, self.tls.is_some()).await?;
        if is_plain.get() && !is_near {
            warn_once(place);
        }
        Ok(dialed)
    }

    async fn log_in(
        &self,
        place: &Place,
        stream: Guarded,
        with_tls: bool,
    ) -> Result<Dialed, NoConnection> {
        let mut config = self.target.config(place);
        let (ended, watched) = watch::channel(false);
        let client = match self.tls.filter(|_| with_tls) {
            Some(tls) => {
                // Whether TLS is a must is the stream's business, which says so in words.
                config.ssl_mode(SslMode::Prefer);
                let connector =
                    MakeTlsConnect::<Guarded>::make_tls_connect(&mut tls.clone(), &place.host);
                let connector =
                    connector.map_err(|error| NoConnection::lasting(error.to_string()))?;
                let connected = config.connect_raw(stream, connector).await;
                let (client, connection) = connected.map_err(|error| refusal(&error))?;
                tokio::spawn(drive(connection, self.heard.clone(), ended));
                client
            }
            None => {
                config.ssl_mode(SslMode::Disable);
                let connected = config.connect_raw(stream, NoTls).await;
                let (client, connection) = connected.map_err(|error| {
                    let mut refused = refusal(&error);
                    if self.tls.is_none() && refused.reason.contains("no encryption") {
                        refused.reason +=
                            ": the server wants TLS; leave sslmode=disable out of the address";
                    }
                    refused
                })?;
                tokio::spawn(drive(connection, self.heard.clone(), ended));
                client
            }
        };
        self.check(&client).await?;
        Ok((client, watched))
    }

    /// Whether it is a server of the kind that is wanted.
    async fn check(&self, client: &Client) -> Result<(), NoConnection> {
        if self.wanted == Wanted::Any {
            return Ok(());
        }
        let ask = "select pg_is_in_recovery(), current_setting('transaction_read_only')";
        let rows = client.simple_query(ask).await;
        let rows = rows.map_err(|error| NoConnection::passing(described(&error)))?;
        let row = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((row.get(0) == Some("t"), row.get(1) == Some("on")))
            }
            _ => None,
        });
        let (is_standby, is_read_only) = row.unwrap_or_default();
        let (suits, what) = match self.wanted {
            Wanted::Writable => (!is_standby && !is_read_only, "it may only be read"),
            Wanted::ReadOnly => (is_standby || is_read_only, "it takes writes"),
            Wanted::Primary => (!is_standby, "it is a standby"),
            Wanted::Standby => (is_standby, "it is not a standby"),
            Wanted::Any | Wanted::PreferWritable | Wanted::PreferStandby => (true, ""),
        };
        // A standby is promoted some day.
        if suits { Ok(()) } else { Err(NoConnection::passing(what)) }
    }
}

async fn addresses(place: &Place) -> Result<Vec<SocketAddr>, NoConnection> {
    if let Some(address) = place.address {
        return Ok(vec![(address, place.port).into()]);
    }
    let found = lookup_host((place.host.as_str(), place.port)).await;
    let found = found.map_err(|error| NoConnection::passing(format!("{}: {error}", place.host)))?;
    Ok(found.collect())
}

/// Whether nobody but this host sees what is sent there.
fn is_near(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Has the system notice that the other side is gone. Where it cannot, statements have limits of their own.
fn keep_alive(socket: &TcpStream, keepalive: Option<&Keepalive>) {
    use rustix::net::sockopt;
    let Some(Keepalive { idle, interval, count }) = keepalive else { return };
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, *idle);
    let _ = sockopt::set_tcp_keepintvl(socket, *interval);
    let _ = sockopt::set_tcp_keepcnt(socket, *count);
    #[cfg(target_os = "linux")]
    {
        let patience = *idle + *interval * *count;
        let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        let _ = sockopt::set_tcp_user_timeout(socket, patience);
    }
}

fn shuffle(places: &mut [&Place]) {
    for last in (1..places.len()).rev() {
        let drawn = getrandom::u32().unwrap_or_default() as usize % (last + 1);
        places.swap(last, drawn);
    }
}

/// Tells the operator once for each server that nothing is encrypted.
fn warn_once(place: &Place) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let server = format!("{}:{}", place.host, place.port);
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(server.clone()) {
        tracing::warn!(
            server,
            "the connection is not encrypted: the server offers no TLS. Have it offer TLS (ssl = on) and write \
             sslmode=require, or write sslmode=disable if the network is trusted"
        );
    }
}
