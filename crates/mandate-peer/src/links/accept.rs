//! Connections of members with lower ids, which dial us.

use std::sync::Arc;
use std::time::Instant;

use mandate_proto::identity::MemberId;
use quinn::{Connecting, Connection, Incoming, RecvStream, SendStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{Failure, REFUSED, Refusal};
use super::hello::{Hello, WATCHED};
use super::limits::{HANDSHAKE_TIMEOUT, NONCE_LIFETIME, UNVALIDATED_ALLOWED};
use super::link::{self, Established};
use super::name;
use super::nonce::Issued;
use super::places::{Place, Places};
use super::shared::Shared;

/// Accepts connections until the member stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let places = Places::default();
    loop {
        let incoming = tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            incoming = shared.endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { break };
        let Some((connecting, place)) = admit(&shared, incoming, &places) else { continue };
        let shared_by_task = shared.clone();
        shared.tasks.spawn(async move { newcomer(&shared_by_task, connecting, place).await });
    }
    // Links have yet to say goodbye; nobody new comes in meanwhile.
    shared.endpoint.set_server_config(None);
}

/// Lets a newcomer begin its handshake, unless too many do. When it becomes crowded, addresses are
/// verified first, which costs us no memory: forged ones then take no place.
fn admit(shared: &Arc<Shared>, incoming: Incoming, places: &Places) -> Option<(Connecting, Place)> {
    let crowded = places.count() >= UNVALIDATED_ALLOWED;
    if crowded && !incoming.remote_address_validated() && incoming.may_retry() {
        // An error only says that it may not be asked again, which was checked.
        let _ = incoming.retry();
        return None;
    }
    match places.take(incoming.remote_address().ip()) {
        Ok(place) => Some((incoming.accept().ok()?, place)),
        Err(full) => {
            shared.turn_away(incoming.remote_address(), full);
            incoming.refuse();
            None
        }
    }
}

/// Makes a link of a connection, or tells why not.
async fn newcomer(shared: &Arc<Shared>, connecting: Connecting, place: Place) {
    let address = connecting.remote_address();
    let mut known = Known::default();
    let greeted = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return,
        greeted = timeout(HANDSHAKE_TIMEOUT, greet(shared, connecting, &mut known)) => greeted,
    };
    let failure = match greeted {
        Ok(Ok(greeted)) => {
            let Greeted { member, connection, issued } = greeted;
            let watch = match known.streams.take() {
                Some(streams) => await_watch(shared, issued, streams).await,
                None => None,
            };
            let place = Some(place);
            return link::run(shared, Established { member, connection, watch, place }).await;
        }
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Lost("the handshake took too long".to_owned()),
    };
    if let Some(connection) = &known.connection {
        connection.close(REFUSED, failure.to_string().as_bytes());
    }
    match failure {
        Failure::Refused(refusal) => {
            shared.refuse(known.member, address, refusal.to_string()).await;
        }
        Failure::Lost(reason) => tracing::debug!(%address, "no link: {reason}"),
    }
}

/// What is known of a newcomer also when it is refused.
#[derive(Default)]
struct Known {
    member: Option<MemberId>,
    connection: Option<Connection>,
    /// Kept until the connection is closed: a stream that ends before would hide the reason.
    streams: Option<(SendStream, RecvStream)>,
}

/// A newcomer that is who it says, and waits for its watch.
struct Greeted {
    member: MemberId,
    connection: Connection,
    issued: Issued,
}

async fn greet(
    shared: &Shared,
    connecting: Connecting,
    known: &mut Known,
) -> Result<Greeted, Failure> {
    let connection = connecting.await?;
    known.connection = Some(connection.clone());
    let member = name::of_peer(&connection, &shared.hello.group)?;
    known.member = Some(member);
    check_member(shared, member)?;
    let (sender, receiver) = known.streams.insert(connection.accept_bi().await?);
    let theirs = Hello::read(receiver).await?;
    shared.hello.check(&theirs)?;
    tracing::debug!(%member, life = format_args!("{:016x}", theirs.life), "greeted");
    let issued = shared.nonces.issue(Instant::now());
    let mut answer = shared.hello.encode();
    answer.extend(issued.nonce.as_bytes());
    sender.write_all(&answer).await?;
    Ok(Greeted { member, connection, issued })
}

/// Whether this member is one that dials us.
fn check_member(shared: &Shared, member: MemberId) -> Result<(), Refusal> {
    if member == shared.me {
        return Err(Refusal::Myself(member));
    }
    if !shared.peers.contains_key(&member) {
        return Err(Refusal::UnknownMember(member));
    }
    if member > shared.me {
        return Err(Refusal::OutOfTurn { theirs: member, ours: shared.me });
    }
    Ok(())
}

/// Waits until the watch has shown its number, or the dialler does without one (it ends its stream).
async fn await_watch(
    shared: &Shared,
    mut issued: Issued,
    (mut sender, mut receiver): (SendStream, RecvStream),
) -> Option<TcpStream> {
    let mut nothing = [0];
    let stream = tokio::select! {
        biased;
        () = shared.stop.cancelled() => None,
        stream = &mut issued.stream => stream.ok(),
        _ = receiver.read(&mut nothing) => None,
        () = tokio::time::sleep(NONCE_LIFETIME) => None,
    }?;
    // If the connection is lost meanwhile, the link will notice.
    let _ = sender.write_all(&[WATCHED]).await;
    Some(stream)
}
