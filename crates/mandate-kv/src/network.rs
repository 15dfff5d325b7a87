//! Raft's and the driver's messages to the other members, over [`Link`]s.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::MemberId;
use openraft::error::{
    Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, ReplicationClosed,
    StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, LogId, Snapshot, Vote};

use super::agreement::{Agreement, Search};
use super::link::{Came, Link, Service};
use super::log::{Log, is_of};
use super::member::Mutant;
use super::pipeline::Pipeline;
use super::room::{Replies, Room};
use super::transfer;
use super::types::Kv;
use super::wire::{Lane, Reply, Request};
use mandate_openraft::driver::{Answer, Messenger, Request as DriverRequest};

/// How long after a member could not be reached Raft tries again. Connections have a pause of their own.
const AGAIN: Duration = Duration::from_millis(50);

/// The other members.
#[derive(Clone)]
pub(crate) struct Peers {
    links: Arc<BTreeMap<(u64, Lane), Link>>,
    log: Log,
    /// A bug put back.
    trusts_sending: bool,
}

impl Peers {
    /// Links to all but one of a service's members, by their addresses.
    pub(crate) fn new(
        service: &Service,
        me: MemberId,
        addresses: &BTreeMap<MemberId, String>,
        log: Log,
        replies: &Replies,
        mutant: Option<Mutant>,
    ) -> Self {
        let mut links = BTreeMap::new();
        for (id, address) in addresses.iter().filter(|(id, _)| **id != me) {
            for lane in [Lane::Raft, Lane::Snapshots, Lane::Requests] {
                let replies = (lane == Lane::Requests).then(|| replies.clone());
                let link = Link::with_room(address.as_str().into(), service, *id, lane, replies);
                links.insert((u64::from(id.get()), lane), link);
            }
        }
        let trusts_sending = mutant == Some(Mutant::UnheardFollowers);
        Peers { links: Arc::new(links), log, trusts_sending }
    }

    /// Sends a member one of Raft's or the driver's messages.
    async fn call(&self, to: u64, request: Request) -> io::Result<Reply> {
        self.link(to, Lane::Raft)?.call(request).await
    }

    /// Passes a client's request on to a member, with room for a value if some was reserved.
    pub(crate) async fn pass_on(
        &self,
        to: u64,
        request: Request,
        room: Option<Room>,
    ) -> io::Result<Came> {
        self.link(to, Lane::Requests)?.ask(request, room).await?.await
    }

    /// Whether that is another member.
    pub(crate) fn has(&self, member: MemberId) -> bool {
        self.links.contains_key(&(member.get().into(), Lane::Raft))
    }

    /// The last entry of this member's log, if that can be read and has one.
    pub(crate) fn log_end(&self) -> Option<LogId<u64>> {
        self.log.last().ok().flatten()
    }

    fn link(&self, to: u64, lane: Lane) -> io::Result<&Link> {
        let none = || io::Error::other(format!("there is no other member {to}"));
        self.links.get(&(to, lane)).ok_or_else(none)
    }
}

impl Messenger for Peers {
    async fn ask(
        &self,
        to: MemberId,
        request: DriverRequest,
    ) -> Result<Answer, Box<dyn Error + Send + Sync>> {
        match self.call(u64::from(to.get()), Request::RaftDriver(request)).await? {
            Reply::RaftDriver(answer) => Ok(answer),
            other => Err(other.unexpected().into()),
        }
    }
}

impl RaftNetworkFactory<Kv> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _: &BasicNode) -> Peer {
        Peer { target, peers: self.clone(), agreement: None, pipeline: None }
    }
}

/// One of them, as Raft sees it.
pub(crate) struct Peer {
    target: u64,
    peers: Peers,
    /// Where its log was found to agree.
    agreement: Option<Agreement>,
    /// What goes ahead of Raft to it.
    pipeline: Option<Pipeline>,
}

impl Peer {
    async fn call<E: Error>(&self, request: Request) -> Result<Reply, RPCError<u64, BasicNode, E>> {
        self.peers.call(self.target, request).await.map_err(failed)
    }

    /// What the follower says to a message, if that is known or can be found without sending it.
    async fn without_sending(
        &mut self,
        message: &AppendEntriesRequest<Kv>,
    ) -> io::Result<Option<AppendEntriesResponse<u64>>> {
        if let Some(pipeline) = &mut self.pipeline {
            if let Some(known) = pipeline.stand_in(message).await {
                return Ok(Some(known));
            }
            // What asks nothing but whether the follower is there does not end it.
            self.pipeline.take_if(|_| !message.entries.is_empty());
        }
        let has_looked = self.agreement.is_some_and(|found| found.is_of(&message.vote));
        if !has_looked && !message.entries.is_empty() {
            let (vote, committed) = (message.vote, message.leader_commit);
            let link = self.peers.link(self.target, Lane::Raft)?;
            let ask = |request| link.call(request);
            // openraft gives up who takes longer than a heartbeat: then it looks for itself, a round trip at a time.
            self.agreement = Some(Agreement::unknown(vote));
            match Agreement::search(ask, &self.peers.log, vote, committed).await {
                Ok(Search::Level(found)) => {
                    self.agreement = Some(found);
                    if let Some(upto) = found.upto() {
                        self.go_ahead(vote, upto);
                    }
                }
                Ok(Search::Behind(found)) => self.agreement = Some(found),
                Ok(Search::Deposed(answer)) => return Ok(Some(answer)),
                Err(error) => {
                    self.agreement = None;
                    return Err(error);
                }
            }
        }
        Ok(self.agreement.as_mut().and_then(|found| found.stand_in(message)))
    }

    fn go_ahead(&mut self, vote: Vote<u64>, acknowledged: LogId<u64>) {
        let Peers { log, trusts_sending, .. } = &self.peers;
        let link = self.peers.link(self.target, Lane::Raft).ok().cloned();
        self.pipeline = link
            .map(|link| Pipeline::start(link, log.clone(), vote, acknowledged, *trusts_sending));
    }
}

fn failed<E: Error>(error: io::Error) -> RPCError<u64, BasicNode, E> {
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::TimedOut => RPCError::Unreachable(Unreachable::new(&error)),
        _ => RPCError::Network(NetworkError::new(&error)),
    }
}

fn strange<E: Error>(reply: &Reply) -> RPCError<u64, BasicNode, E> {
    RPCError::Network(NetworkError::new(&reply.unexpected()))
}

impl RaftNetwork<Kv> for Peer {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Kv>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        if let Some(known) = self.without_sending(&rpc).await.map_err(failed)? {
            return Ok(known);
        }
        if let Some(found) = &mut self.agreement {
            found.is_sent_more();
        }
        let (vote, last) = (rpc.vote, rpc.entries.last().map(|entry| entry.log_id));
        match self.call(Request::Append(rpc)).await? {
            Reply::Append { response, .. } => {
                if let (AppendEntriesResponse::Success, Some(last)) = (&response, last)
                    && is_of(last, &vote)
                {
                    self.go_ahead(vote, last);
                }
                Ok(response)
            }
            other => Err(strange(&other)),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        match self.call(Request::Vote(rpc)).await? {
            Reply::Vote(response) => Ok(response),
            other => Err(strange(&other)),
        }
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<Kv>,
        _: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, BasicNode, RaftError<u64, InstallSnapshotError>>,
    > {
        let what = io::Error::other("snapshots are sent whole, by full_snapshot");
        Err(RPCError::Network(NetworkError::new(&what)))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Kv>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Kv, Fatal<u64>>> {
        let network = |error: io::Error| StreamingError::Network(NetworkError::new(&error));
        let link = self.peers.link(self.target, Lane::Snapshots).map_err(network)?;
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = transfer::send(|piece| link.send(piece), vote, snapshot) => sent,
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(AGAIN))
    }
}
