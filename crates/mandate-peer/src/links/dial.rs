//! Connections to members with higher ids, which we dial.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mandate_proto::identity::MemberId;
use quinn::{Connection, RecvStream, SendStream};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::backoff::Backoff;
use super::failure::{Failure, REFUSED, Refusal};
use super::hello::{self, Hello, WATCHED};
use super::limits::{
    BACKOFF_FIRST, HANDSHAKE_TIMEOUT, MAX_ADDRESSES, SETTLED_AFTER, WATCH_TIMEOUT,
};
use super::link::{self, Established};
use super::nonce::Nonce;
use super::shared::Shared;
use super::sockets::canonical;
use super::{name, watch};

/// Keeps a link to a member, until we stop.
pub(crate) async fn run(shared: Arc<Shared>, member: MemberId) {
    let Some(peer) = shared.peers.get(&member) else { return };
    let mut backoff = Backoff::new();
    let mut told = None;
    loop {
        let started = Instant::now();
        let attempted = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            attempted = attempt(&shared, member, &peer.address) => attempted,
        };
        match attempted {
            Ok(established) => {
                told = None;
                let since = Instant::now();
                link::run(&shared, established).await;
                if since.elapsed() >= SETTLED_AFTER {
                    backoff.reset();
                }
            }
            // Logged once, since it is tried again every few seconds.
            Err(Failure::Lost(reason)) if told.as_ref() != Some(&reason) => {
                tracing::info!(%member, address = peer.address, "no link yet: {reason}");
                told = Some(reason);
            }
            Err(_) => {}
        }
        // An attempt that nobody answered was a pause itself: whoever comes back should not wait twice.
        let pause = backoff.pause(rand::random()).saturating_sub(started.elapsed());
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(pause.max(BACKOFF_FIRST)) => {}
        }
    }
}

/// Tries each address of a member in turn. Refusals have been told when this returns.
async fn attempt(shared: &Shared, member: MemberId, host: &str) -> Result<Established, Failure> {
    let unreachable = "its name has no address that can be reached from the one listened on";
    let mut last = Failure::Lost(unreachable.to_owned());
    for address in resolve(shared, host).await? {
        let mut opened = None;
        let connected = timeout(HANDSHAKE_TIMEOUT, connect(shared, member, address, &mut opened));
        last = match connected.await {
            Ok(Ok((connection, nonce, streams))) => {
                let watch = open_watch(&connection, &nonce, streams).await;
                if watch.is_none() {
                    tracing::warn!(%member, %address, "no watch: TCP does not get through to the port \
                        that QUIC uses; a crash of this member will be noticed by timeouts only");
                }
                return Ok(Established { member, connection, watch, place: None });
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Lost("the handshake took too long".to_owned()),
        };
        if let Some(connection) = opened {
            connection.close(REFUSED, last.to_string().as_bytes());
        }
        if let Failure::Refused(refusal) = &last {
            shared.refuse(Some(member), address, refusal.to_string()).await;
        }
    }
    Err(last)
}

/// The addresses of a name that our socket can reach.
async fn resolve(shared: &Shared, host: &str) -> Result<Vec<SocketAddr>, Failure> {
    let unresolved = |why: &dyn std::fmt::Display| {
        Failure::Lost(format!("the name {host} cannot be resolved: {why}"))
    };
    let ours = shared.endpoint.local_addr().map_err(|error| unresolved(&error))?;
    let found = timeout(HANDSHAKE_TIMEOUT, lookup_host(host)).await;
    let found = found.map_err(|_| unresolved(&"no answer"))?.map_err(|error| unresolved(&error))?;
    Ok(found.filter(|to| ours.is_ipv6() || to.is_ipv4()).take(MAX_ADDRESSES).collect())
}

/// Connects and greets. `opened` is the connection, also when it is then refused.
async fn connect(
    shared: &Shared,
    member: MemberId,
    address: SocketAddr,
    opened: &mut Option<Connection>,
) -> Result<(Connection, Nonce, (SendStream, RecvStream)), Failure> {
    let expected = name::of_member(member, &shared.hello.group);
    let client = shared.papers().client.clone();
    let connection = shared
        .endpoint
        .connect_with(client, address, &expected)
        .map_err(|error| Failure::Lost(error.to_string()))?
        .await?;
    *opened = Some(connection.clone());
    // TLS has compared the name already, but a wildcard would satisfy it.
    let found = name::of_peer(&connection, &shared.hello.group)?;
    if found != member {
        return Err(Refusal::OtherMember { expected: member, found }.into());
    }
    let (mut sender, mut receiver) = connection.open_bi().await?;
    sender.write_all(&shared.hello.encode()).await?;
    let theirs = Hello::read(&mut receiver).await?;
    shared.hello.check(&theirs)?;
    tracing::debug!(%member, life = format_args!("{:016x}", theirs.life), "greeted");
    let nonce = hello::read_nonce(&mut receiver).await?;
    Ok((connection, nonce, (sender, receiver)))
}

/// Opens the watch and waits until the other side has it. Dropping the streams tells the other side that
/// we do not wait any more.
async fn open_watch(
    connection: &Connection,
    nonce: &Nonce,
    (_sender, mut receiver): (SendStream, RecvStream),
) -> Option<TcpStream> {
    let opened = timeout(WATCH_TIMEOUT, async {
        let stream = watch::open(canonical(connection.remote_address()), nonce).await.ok()?;
        let mut answer = [0];
        receiver.read_exact(&mut answer).await.ok()?;
        (answer == [WATCHED]).then_some(stream)
    });
    opened.await.ok().flatten()
}
