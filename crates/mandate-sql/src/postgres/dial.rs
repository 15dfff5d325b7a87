//! From a target to a connection that is logged in.
//!
//! The driver could dial by itself. It is done here because the driver answers every server that asks for the password in plain
//! text, over whatever connection there is: that is seen to between the driver and the socket (see [`Guarded`]).
//!
//! Every address of every host has its own time, as in `libpq`, so that a silent one does not use up that of the next. That
//! bounds the whole: there is no limit above it that could end an attempt before its last address was tried.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::sync::{broadcast, watch};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::guarded::{Guarded, Rules};
use super::target::{Keepalive, Place, Target, Terms, Tls, Wanted};
use super::{described, drive, refusal, tls};
use crate::error::NoConnection;

/// How long the addresses may take together where nothing else is written.
const LIMIT: Duration = Duration::from_secs(8);

/// The least of it that an address has.
const LEAST: Duration = Duration::from_secs(2);

/// The most that is waited for one address, whatever is written: with `connect_timeout=3600` nobody wants to wait for hours.
const MOST: Duration = Duration::from_secs(60);

/// So many addresses are tried: with a name that has hundreds, an attempt still ends.
const MAX_ADDRESSES: usize = 32;

/// A connection, driven by a task of its own, and when it has ended.
pub(crate) type Dialed = (Client, watch::Receiver<bool>);

/// Where a server may be found.
#[derive(Debug)]
enum Route {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

/// One way to one of the places.
#[derive(Debug)]
struct Candidate<'a> {
    place: &'a Place,
    /// Or why there is none.
    route: Result<Route, NoConnection>,
}

/// Connects to the first place that will do.
pub(crate) async fn dial(
    target: &Target,
    heard: &broadcast::Sender<String>,
) -> Result<Dialed, NoConnection> {
    let mut places: Vec<&Place> = target.places.iter().collect();
    if target.shuffles {
        shuffle(&mut places);
    }
    let limit = target.limit.unwrap_or(LIMIT).min(MOST);
    let found = join_all(places.into_iter().map(|place| candidates(place, limit))).await;
    let found = found.into_iter().flatten().take(MAX_ADDRESSES).collect();
    first_of(target, found, heard).await
}

/// Connects to the first that will do, or else to the first that answered, if that is good enough.
async fn first_of(
    target: &Target,
    candidates: Vec<Candidate<'_>>,
    heard: &broadcast::Sender<String>,
) -> Result<Dialed, NoConnection> {
    let tls = match &target.tls {
        Tls::Never => None,
        Tls::Offered(terms) | Tls::Always(terms) => Some(connector(terms)?),
    };
    let dial = Dial { target, tls: tls.as_ref(), heard };
    let number = candidates.len();
    let share = (LIMIT / u32::try_from(number).unwrap_or(1).max(1)).max(LEAST);
    let limit = target.limit.unwrap_or(share).min(MOST);
    let (mut second_best, mut failures) = (None, Vec::new());
    for Candidate { place, route } in candidates {
        let attempt = async { dial.one(place, route?).await };
        let failed = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok((dialed, None))) => return Ok(dialed),
            Ok(Ok((dialed, Some(unsuitable)))) => {
                second_best.get_or_insert(dialed);
                // A standby is promoted some day.
                NoConnection::passing(unsuitable)
            }
            Ok(Err(failed)) => failed,
            Err(_) => NoConnection::passing(format!("no answer within {limit:?}")),
        };
        failures.push((place, failed));
    }
    let is_lenient = matches!(target.wanted, Wanted::PreferWritable | Wanted::PreferStandby);
    if let Some(dialed) = second_best.filter(|(_, ended)| is_lenient && !*ended.borrow()) {
        return Ok(dialed);
    }
    // One that may come back makes all of it pass.
    let is_final = failures.iter().all(|(_, failed)| failed.is_final);
    let reasons = failures.into_iter().map(|(place, failed)| match number {
        1 => failed.reason,
        _ => format!("{}:{}: {}", place.host, place.port, failed.reason),
    });
    Err(NoConnection { reason: reasons.collect::<Vec<_>>().join("; "), is_final })
}

fn connector(terms: &Terms) -> Result<MakeRustlsConnect, NoConnection> {
    let Terms { trust, roots, identity, names_server } = terms;
    let mut config =
        tls::config(*trust, roots, identity.as_ref()).map_err(NoConnection::lasting)?;
    config.enable_sni = *names_server;
    Ok(MakeRustlsConnect::new(config))
}

struct Dial<'a> {
    target: &'a Target,
    tls: Option<&'a MakeRustlsConnect>,
    heard: &'a broadcast::Sender<String>,
}

/// A connection, and why its server is not of the kind that is wanted, if so.
type Answered = (Dialed, Option<&'static str>);

impl Dial<'_> {
    async fn one(&self, place: &Place, route: Route) -> Result<Answered, NoConnection> {
        let dialed = match route {
            Route::Tcp(address) => self.over_tcp(place, address).await?,
            Route::Socket(path) => {
                let socket = UnixStream::connect(&path).await;
                let failed = |error| NoConnection::passing(format!("{}: {error}", path.display()));
                let stream = Guarded::new(Box::new(socket.map_err(failed)?), Rules::default());
                self.log_in(place, stream, false).await?
            }
        };
        let unsuitable = self.judge(&dialed.0).await?;
        Ok((dialed, unsuitable))
    }

    async fn over_tcp(&self, place: &Place, address: SocketAddr) -> Result<Dialed, NoConnection> {
        let failed = |error: std::io::Error| NoConnection::passing(format!("{address}: {error}"));
        let socket = TcpStream::connect(address).await.map_err(failed)?;
        socket.set_nodelay(true).map_err(failed)?;
        keep_alive(&socket, self.target.keepalive.as_ref(), self.target.user_timeout);
        let is_near = (self.target.is_near)(address.ip());
        let rules = Rules {
            asks_for_tls: self.tls.is_some(),
            insists: matches!(self.target.tls, Tls::Always(_)),
            // A user who writes sslmode=disable means it.
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
        Ok((client, watched))
    }

    /// Why it is no server of the kind that is wanted, if it is not.
    async fn judge(&self, client: &Client) -> Result<Option<&'static str>, NoConnection> {
        if self.target.wanted == Wanted::Any {
            return Ok(None);
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
        let (suits, what) = match self.target.wanted {
            Wanted::Writable | Wanted::PreferWritable => {
                (!is_standby && !is_read_only, "it may only be read")
            }
            Wanted::ReadOnly => (is_standby || is_read_only, "it takes writes"),
            Wanted::Primary => (!is_standby, "it is a standby"),
            Wanted::Standby | Wanted::PreferStandby => (is_standby, "it is not a standby"),
            Wanted::Any => (true, ""),
        };
        Ok((!suits).then_some(what))
    }
}

/// Every address that a place has. Names are looked up within this time.
async fn candidates(place: &Place, limit: Duration) -> Vec<Candidate<'_>> {
    let one = |route| Candidate { place, route };
    if let Some(path) = place.socket() {
        return vec![one(Ok(Route::Socket(path)))];
    }
    if let Some(address) = place.address {
        return vec![one(Ok(Route::Tcp((address, place.port).into())))];
    }
    let looking = lookup_host((place.host.as_str(), place.port));
    let failed = match tokio::time::timeout(limit, looking).await {
        Ok(Ok(found)) => {
            let found: Vec<_> = found.map(|address| one(Ok(Route::Tcp(address)))).collect();
            if !found.is_empty() {
                return found;
            }
            "the name has no address".to_owned()
        }
        Ok(Err(error)) => format!("{}: {error}", place.host),
        Err(_) => format!("the name was not looked up within {limit:?}"),
    };
    vec![one(Err(NoConnection::passing(failed)))]
}

/// Has the system notice that the other side is gone. Where it cannot, statements have limits of their own.
fn keep_alive(socket: &TcpStream, keepalive: Option<&Keepalive>, user_timeout: Option<Duration>) {
    use rustix::net::sockopt;
    if let Some(Keepalive { idle, interval, count }) = keepalive {
        let _ = sockopt::set_socket_keepalive(socket, true);
        let _ = sockopt::set_tcp_keepidle(socket, *idle);
        let _ = sockopt::set_tcp_keepintvl(socket, *interval);
        let _ = sockopt::set_tcp_keepcnt(socket, *count);
    }
    #[cfg(target_os = "linux")]
    {
        let as_long = keepalive.map(|it| it.idle + it.interval * it.count);
        if let Some(limit) = user_timeout.or(as_long) {
            let limit = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
            let _ = sockopt::set_tcp_user_timeout(socket, limit);
        }
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

#[cfg(test)]
mod tests {
    use mandate_servers::postgres::{Postgres, PostgresConfig};
    use tokio::net::TcpListener;

    use super::super::parameters::Parameters;
    use super::super::target::{Surroundings, resolve};
    use super::*;

    /// A name with an address that accepts and says nothing, one that nothing listens at, and one that is right.
    #[tokio::test(flavor = "multi_thread")]
    async fn each_address_of_a_name_has_a_time_of_its_own() {
        let server = Postgres::launch(&PostgresConfig::default()).unwrap();
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = "postgres://mandate@db.example/postgres?connect_timeout=8";
        let parameters = Parameters::from_url(url).unwrap();
        let target = resolve(&parameters, &Surroundings { variable: &|_| None }).unwrap();
        let ports = [mute.local_addr().unwrap().port(), 1, server.port()];
        let candidates = |ports: &[u16]| {
            let candidate = |port: &u16| Candidate {
                place: &target.places[0],
                route: Ok(Route::Tcp(([127, 0, 0, 1], *port).into())),
            };
            ports.iter().map(candidate).collect::<Vec<_>>()
        };
        let heard = broadcast::Sender::new(1);
        let (client, _ended) = first_of(&target, candidates(&ports), &heard).await.unwrap();
        client.simple_query("select 1").await.unwrap();
        let failed = first_of(&target, candidates(&ports[..2]), &heard).await.map(drop);
        let failed = failed.unwrap_err();
        assert!(!failed.is_final, "{failed:?}");
        assert!(failed.reason.contains("no answer within 8s"), "{failed:?}");
        assert!(failed.reason.contains("refused"), "each of them is told of: {failed:?}");
    }

    /// The socket is asked what it was told.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_limit_for_unacknowledged_data_is_the_one_that_is_written() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (query, expected) in [
            ("", 11_000),
            ("?tcp_user_timeout=7000", 7000),
            ("?keepalives=0&tcp_user_timeout=7000", 7000),
            ("?tcp_user_timeout=0", 0),
            ("?keepalives=0", 0),
        ] {
            let parameters = Parameters::from_url(&format!("postgres://u@h/d{query}")).unwrap();
            let target = resolve(&parameters, &Surroundings { variable: &|_| None }).unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            keep_alive(&socket, target.keepalive.as_ref(), target.user_timeout);
            let set = rustix::net::sockopt::tcp_user_timeout(&socket).unwrap();
            assert_eq!(set, expected, "{query}");
        }
    }

    #[test]
    fn only_loopback_is_this_host() {
        let parameters = Parameters::from_url("postgres://u@h/d").unwrap();
        let target = resolve(&parameters, &Surroundings { variable: &|_| None }).unwrap();
        let near = |text: &str| (target.is_near)(text.parse().unwrap());
        assert!(
            ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"].map(near).iter().all(|it| *it)
        );
        assert!(
            !["192.0.2.1", "10.0.0.1", "::2", "::ffff:10.0.0.1", "0.0.0.0"]
                .map(near)
                .contains(&true)
        );
    }
}
