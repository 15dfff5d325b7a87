//! Connections to members with higher ids, which we dial; and questions to those with lower ids that ought to dial us and
//! do not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use mandate_proto::identity::MemberId;
use quinn::Connection;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::backoff::Backoff;
use super::control::{Control, Word};
use super::failure::{Failure, REFUSED, Refusal};
use super::limits::{
    BACKOFF_FIRST, HANDSHAKE_TIMEOUT, INQUIRE_EVERY, MAX_ADDRESSES, SETTLED_AFTER,
};
use super::link::{self, Established};
use super::peers::{Listed, Peer};
use super::settings::Settings;
use super::shared::Shared;
use super::{name, twins};

/// Sees to a link with a member for as long as it is on the list: dials it, or asks it to dial us.
pub(crate) async fn keep(shared: Arc<Shared>, listed: Listed) {
    let Listed { member, peer, until } = listed;
    tokio::select! {
        biased;
        () = shared.stop.cancelled() => {}
        () = until.cancelled() => {}
        () = async {
            match member > shared.me {
                true => dial(&shared, member, &peer).await,
                false => inquire(&shared, member, &peer).await,
            }
        } => {}
    }
}

/// Keeps a link to a member. It may have come by itself, while it was a guest. What has been linked runs on its own, so that it lasts
/// when this is dropped.
async fn dial(shared: &Arc<Shared>, member: MemberId, peer: &Arc<Peer>) {
    let mut backoff = Backoff::new();
    let mut told = None;
    loop {
        peer.unlinked().await;
        let addresses = peer.addresses();
        if addresses.is_empty() {
            peer.moved.notified().await;
            continue;
        }
        let started = Instant::now();
        match attempt(shared, (member, peer), &addresses).await {
            Ok(established) => {
                told = None;
                let since = Instant::now();
                link_up(shared, established).await;
                if since.elapsed() >= SETTLED_AFTER {
                    backoff.reset();
                }
            }
            // Logged once, since it is tried again every few seconds.
            Err(Failure::Lost(reason)) if told.as_ref() != Some(&reason) => {
                tracing::info!(%member, address = addresses.join(", "), "no link yet: {reason}");
                told = Some(reason);
            }
            Err(_) => {}
        }
        // An attempt that nobody answered was a pause itself: whoever comes back should not wait twice.
        let pause = backoff.pause(rand::random()).saturating_sub(started.elapsed());
        tokio::select! {
            () = peer.moved.notified() => {}
            () = tokio::time::sleep(pause.max(BACKOFF_FIRST)) => {}
        }
    }
}

/// Asks a member with a lower id why it does not dial us, now and then while there is no link. It may not have us in its list:
/// then neither of us would ever learn of the other. What it answers is told like any refusal. If its list is another one, or it
/// does not know where we are, it takes us in.
async fn inquire(shared: &Arc<Shared>, member: MemberId, peer: &Arc<Peer>) {
    loop {
        tokio::time::sleep(INQUIRE_EVERY).await;
        let addresses = peer.addresses();
        if peer.is_linked() || addresses.is_empty() {
            continue;
        }
        if let Ok(established) = attempt(shared, (member, peer), &addresses).await {
            link_up(shared, established).await;
        }
    }
}

/// Runs a link to its end.
async fn link_up(shared: &Arc<Shared>, established: Established) {
    let by_task = shared.clone();
    let link = shared.tasks.spawn(async move { link::run(&by_task, established).await });
    // It never panics, and nobody aborts it.
    let _ = link.await;
}

/// Tries each address of a member in turn. Refusals have been told when this returns.
async fn attempt(
    shared: &Shared,
    (member, peer): (MemberId, &Arc<Peer>),
    hosts: &[String],
) -> Result<Established, Failure> {
    let unreachable = "its name has no address that can be reached from the one listened on";
    let mut last = Failure::Lost(unreachable.to_owned());
    let mut found = Vec::new();
    for host in hosts {
        match resolve(shared, host).await {
            Ok(addresses) => found.extend(addresses),
            Err(failure) => last = failure,
        }
    }
    for address in found {
        let mut opened = None;
        let connected = connect(shared, (member, peer), address, &mut opened);
        let connected = timeout(HANDSHAKE_TIMEOUT, connected);
        last = match connected.await {
            Ok(Ok(established)) => return Ok(established),
            // It has said what it has instead.
            Ok(Err(Failure::Refused(Refusal::DiffersThere(theirs)))) => {
                shared.hello().differs(Settings::decode(&theirs)).into()
            }
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Lost("the handshake took too long".to_owned()),
        };
        if let Some(connection) = opened {
            connection.close(REFUSED, last.to_string().as_bytes());
        }
        if let Failure::Refused(refusal) = &last {
            shared.note_settings(member, refusal).await;
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
    (member, peer): (MemberId, &Arc<Peer>),
    address: SocketAddr,
    opened: &mut Option<Connection>,
) -> Result<Established, Failure> {
    let expected = name::of_member(member, &shared.group);
    let client = shared.papers().client.clone();
    let connection = shared
        .endpoint
        .connect_with(client, address, &expected)
        .map_err(|error| Failure::Lost(error.to_string()))?
        .await?;
    *opened = Some(connection.clone());
    // TLS has compared the name already, but a wildcard would satisfy it.
    let found = name::of_peer(&connection, &shared.group)?;
    if found != member {
        return Err(Refusal::OtherMember { expected: member, found }.into());
    }
    let (mut sender, mut receiver) = connection.open_bi().await?;
    sender.write_all(&shared.hello().encode()).await?;
    let theirs = shared.hello().read(&mut receiver).await?;
    let version = shared.hello().check(&theirs)?;
    shared.compare_settings(member, &theirs.settings);
    twins::check(shared, (member, peer), &theirs).await?;
    tracing::debug!(%member, life = format_args!("{:016x}", theirs.life), "greeted");
    // Tells the other side that it is accepted here.
    sender.write_all(&Word::Ask.encode()).await?;
    let control = Control { sender, receiver, dials: true };
    let peer = peer.clone();
    Ok(Established { member, peer, hello: theirs, version, connection, control, place: None })
}
