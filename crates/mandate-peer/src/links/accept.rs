//! Connections of members with lower ids, which dial us; and questions of those with higher ids, whom we ought to dial and do
//! not: they may not be in our list, or have other settings, and both sides are to know.

use std::sync::Arc;

use mandate_proto::identity::MemberId;
use quinn::{Connecting, Connection, Incoming, RecvStream, SendStream};
use tokio::time::timeout;

use super::connection_limit::{ConnectionLimit, Place};
use super::control::{Control, Word};
use super::failure::{DIFFERS, Failure, REFUSED, Refusal, STOPPING};
use super::hello::Hello;
use super::limits::{HANDSHAKE_TIMEOUT, UNVALIDATED_ALLOWED};
use super::link::{self, Established};
use super::peers::Peer;
use super::shared::Shared;
use super::{name, twins};

/// Accepts connections until the member stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let places = ConnectionLimit::default();
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
fn admit(
    shared: &Arc<Shared>,
    incoming: Incoming,
    places: &ConnectionLimit,
) -> Option<(Connecting, Place)> {
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
        Ok(Ok(Greeted { member, peer, hello, version, connection })) => {
            let Some((sender, receiver)) = known.streams.take() else { return };
            let control = Control { sender, receiver, dials: false };
            let place = Some(place);
            let established =
                Established { member, peer, hello, version, connection, control, place };
            return link::run(shared, established).await;
        }
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Lost("the handshake took too long".to_owned()),
    };
    if let Some(connection) = &known.connection {
        match &failure {
            // The other side can then say what differs, as we do.
            Failure::Refused(Refusal::OtherSettings { ours, .. }) => {
                connection.close(DIFFERS, ours.encode().as_bytes());
            }
            Failure::Refused(Refusal::OutOfTurn { .. }) => {
                connection.close(STOPPING, failure.to_string().as_bytes());
            }
            _ => connection.close(REFUSED, failure.to_string().as_bytes()),
        }
    }
    match failure {
        // It only asked why we do not dial it, and nothing is wrong with it.
        Failure::Refused(refusal @ Refusal::OutOfTurn { .. }) => {
            tracing::debug!(%address, "no link: {refusal}");
        }
        Failure::Refused(refusal) => {
            if let Some(member) = known.member {
                shared.note_settings(member, &refusal).await;
            }
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

/// Who was greeted, and accepts us.
struct Greeted {
    member: MemberId,
    peer: Arc<Peer>,
    hello: Hello,
    version: u32,
    connection: Connection,
}

async fn greet(
    shared: &Shared,
    connecting: Connecting,
    known: &mut Known,
) -> Result<Greeted, Failure> {
    let connection = connecting.await?;
    known.connection = Some(connection.clone());
    let member = name::of_peer(&connection, &shared.group)?;
    known.member = Some(member);
    if member == shared.me {
        return Err(Refusal::Myself(member).into());
    }
    let (sender, receiver) = known.streams.insert(connection.accept_bi().await?);
    let ours = shared.hello();
    let theirs = ours.read(receiver).await?;
    // First: whoever is not in our list mostly has another one, and both sides are to name both.
    let version = ours.check(&theirs)?;
    let peer = find(shared, member, &theirs)?;
    shared.compare_settings(member, &theirs.settings);
    twins::check(shared, (member, &peer), &theirs).await?;
    tracing::debug!(%member, life = format_args!("{:016x}", theirs.life), "greeted");
    sender.write_all(&shared.hello().encode()).await?;
    // Its first word says that it accepts us.
    match Word::read(receiver).await? {
        Some(Word::Ask) => Ok(Greeted { member, peer, hello: theirs, version, connection }),
        _ => Err(Refusal::NoGreeting.into()),
    }
}

/// Who comes: a member that is to dial us, or a guest.
fn find(shared: &Shared, member: MemberId, theirs: &Hello) -> Result<Arc<Peer>, Refusal> {
    match shared.peers.get(member).filter(|peer| peer.is_listed()) {
        // One that we cannot dial, since nobody has said where it is, may dial us.
        Some(peer) if member > shared.me && !peer.addresses().is_empty() => {
            Err(Refusal::OutOfTurn { theirs: member, ours: shared.me })
        }
        Some(peer) => Ok(peer),
        None if shared.hello().settings.goes_by_another_list(&theirs.settings) => {
            shared.peers.guest(member).ok_or(Refusal::TooManyGuests)
        }
        // It has our list, which was changed while the group ran.
        None if shared.hello().settings.is_changed() => Err(Refusal::NoMember(member)),
        None => Err(Refusal::UnknownMember(member)),
    }
}
