//! What a member does with a client's request: carries it out if it leads, passes it on if another does, and waits
//! while nobody does.

use std::io;
use std::time::{Duration, Instant as Stopwatch};

use bytes::Bytes;
use mandate_proto::identity::MemberId;
use mandate_runtime::durable::DurableFile;
use mandate_runtime::{Election, ElectionState};
use openraft::error::{CheckIsLeaderError, RaftError};
use openraft::{BasicNode, Raft};
use tokio::time::{Instant, timeout, timeout_at};

use super::batch::{Batcher, NotWritten, UNCOMMITTED};
use super::link::Came;
use super::load::Load;
use super::machine::Store;
use super::network::Peers;
use super::room::{REPLIES, Replies, Room};
use super::types::{Kv, WriteCommand, WriteOutcome, check_key};
use super::wire::{KvStatus, Reply, Request, Way};
use mandate_openraft::direction::Step;
use mandate_openraft::driver::RaftDriver;

/// No request is worked on for longer, whatever its client says.
const MAX_WITHIN: Duration = Duration::from_secs(60);

/// How long after nobody was found to lead it is looked again, if Raft has nothing new before.
const AGAIN: Duration = Duration::from_millis(10);

/// How long after a leader did not take a request it is sent again, at most. The first time it is after [`AGAIN`], then
/// after twice as long each time: a request may be a megabyte, and what the leader lacks may be room for it.
const SENT_AGAIN: Duration = Duration::from_millis(160);

/// A bug, put back so that a test can show that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Every member answers reads from what it has itself, without asking who leads.
    StaleReads,
    /// What clients write is acknowledged when it is in the members' memory.
    UnforcedLog,
    /// A leader that is restarted goes on leading without an election, as openraft would have it.
    RestoredLeaders,
    /// A follower is taken to have what it was sent.
    UnheardFollowers,
}

/// A member of the service, as its connections see it.
pub(crate) struct Member {
    pub(crate) me: MemberId,
    pub(crate) raft: Raft<Kv>,
    pub(crate) driver: RaftDriver<Kv>,
    pub(crate) election: Election,
    pub(crate) peers: Peers,
    pub(crate) batcher: Batcher,
    pub(crate) store: Store,
    /// Room for values on their way to clients.
    pub(crate) replies: Replies,
    pub(crate) load: Load,
    /// If not, it serves only where the election's winner leads.
    pub(crate) interim_serves: bool,
    pub(crate) mutant: Option<Mutant>,
    /// Locked while it runs.
    pub(crate) _record: DurableFile,
}

/// What an attempt came to.
enum Attempt {
    /// This, and the room that a value in it takes.
    Answered(Reply, Option<Room>),
    /// A value came from the leader, and there was no room for it.
    NoRoom,
    /// Ask that one, or wait until one is known.
    Elsewhere(Option<u64>),
    /// Nothing was done, for this reason. It may pass.
    NotNow(String),
    /// It may have been carried out.
    Lost(String),
}

/// A client's question.
enum Wanted {
    Write(WriteCommand),
    Read(String),
}

impl Member {
    fn node(&self) -> u64 {
        u64::from(self.me.get())
    }

    /// Whether that is another member of the service.
    pub(crate) fn is_other(&self, member: MemberId) -> bool {
        self.peers.has(member)
    }

    /// Carries out a write, once.
    pub(crate) async fn write(&self, command: WriteCommand, way: Way) -> Reply {
        match command.operation.check() {
            Ok(()) => self.serve(Wanted::Write(command), way).await.0,
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    /// Reads a key: what it has is not older than the question. With it comes the room that it takes until it was sent.
    pub(crate) async fn read(&self, key: String, way: Way) -> (Reply, Option<Room>) {
        if self.mutant == Some(Mutant::StaleReads) {
            return (Reply::Value(self.store.get(&key)), None);
        }
        match check_key(&key) {
            Ok(()) => self.serve(Wanted::Read(key), way).await,
            Err(error) => (Reply::Refused(error.to_string()), None),
        }
    }

    async fn serve(&self, wanted: Wanted, way: Way) -> (Reply, Option<Room>) {
        let began = Stopwatch::now();
        if !way.passed_on {
            self.load.began();
        }
        let until = Instant::now() + Duration::from_millis(way.within_ms.into()).min(MAX_WITHIN);
        let answered = self.try_until(&wanted, way, until).await;
        if !way.passed_on && matches!(answered.0, Reply::Written(_) | Reply::Value(_)) {
            self.load.ended(began.elapsed());
        }
        answered
    }

    async fn try_until(&self, wanted: &Wanted, way: Way, until: Instant) -> (Reply, Option<Room>) {
        let mut metrics = self.raft.server_metrics();
        let (mut reserves, mut pause) = (false, AGAIN);
        let mut lost = None;
        let mut waits = "nobody leads".to_owned();
        loop {
            let leader = metrics.borrow_and_update().current_leader;
            let attempt = match leader {
                Some(leader) if leader == self.node() => match self.may_serve() {
                    true => self.here(wanted, until).await,
                    false => Attempt::Elsewhere(None),
                },
                Some(leader) if !way.passed_on => self.there(wanted, leader, until, reserves).await,
                leader => Attempt::Elsewhere(leader),
            };
            let was_sent = !way.passed_on && leader.is_some_and(|leader| leader != self.node());
            let hint = match attempt {
                // It was sent before, and may have been carried out then.
                Attempt::Answered(Reply::Written(WriteOutcome::Expired), _) if lost.is_some() => {
                    let reason = "the client is not known any more".into();
                    return (Reply::Unknown(reason), None);
                }
                Attempt::Answered(reply, room) => return (reply, room),
                Attempt::NoRoom if !reserves => {
                    reserves = true;
                    continue;
                }
                Attempt::NoRoom => {
                    waits = no_room();
                    None
                }
                Attempt::Elsewhere(leader) => leader,
                Attempt::NotNow(reason) if way.passed_on => return (Reply::Refused(reason), None),
                Attempt::NotNow(reason) => {
                    waits = reason;
                    None
                }
                Attempt::Lost(reason) => {
                    lost = Some(reason);
                    None
                }
            };
            if way.passed_on {
                // The member that passed it on looks for another, and knows that repeating does no harm.
                return (lost.map_or(Reply::NotLeading { leader: hint }, Reply::Unknown), None);
            }
            if Instant::now() >= until {
                let reply = match (lost, wanted) {
                    (Some(reason), Wanted::Write(_)) => Reply::Unknown(reason),
                    (Some(reason), Wanted::Read(_)) => Reply::Refused(reason),
                    (None, _) => Reply::Refused(waits),
                };
                return (reply, None);
            }
            let wait = if was_sent { pause } else { AGAIN };
            match timeout(wait.min(until - Instant::now()), metrics.changed()).await {
                // Another leads, perhaps.
                Ok(_) => pause = AGAIN,
                Err(_) if was_sent => pause = longer(pause),
                Err(_) => {}
            }
        }
    }

    /// Whether this member serves if it leads Raft.
    fn may_serve(&self) -> bool {
        self.interim_serves || self.election.state().borrow().mandate().is_some()
    }

    /// This member leads, as far as it knows.
    async fn here(&self, wanted: &Wanted, until: Instant) -> Attempt {
        // openraft's leader goes on appending without a quorum.
        if self.driver.report().leads.is_none() {
            return Attempt::NotNow("the leader hears no quorum".into());
        }
        match wanted {
            Wanted::Write(command) => {
                match timeout_at(until, self.batcher.write(command.clone())).await {
                    Ok(Ok(outcome)) => Attempt::Answered(Reply::Written(outcome), None),
                    Ok(Err(NotWritten::Lost(reason))) => Attempt::Lost(reason),
                    Ok(Err(NotWritten::Full)) => Attempt::NotNow(format!(
                        "{UNCOMMITTED} bytes of writes wait for a quorum at the leader"
                    )),
                    Err(_) => Attempt::Lost("not committed in time".into()),
                }
            }
            Wanted::Read(key) => match timeout_at(until, self.raft.ensure_linearizable()).await {
                Ok(Ok(_)) => match timeout_at(until, self.value(key)).await {
                    Ok((value, room)) => Attempt::Answered(Reply::Value(value), room),
                    Err(_) => Attempt::NotNow(no_room()),
                },
                Ok(Err(error)) => read_failed(error),
                Err(_) => Attempt::Lost("a quorum did not answer in time".into()),
            },
        }
    }

    /// What a key has, once there is room for it on its way to a client. While it waits, it does not hold what the key had
    /// before: values that were replaced since would add up.
    async fn value(&self, key: &str) -> (Option<Bytes>, Option<Room>) {
        loop {
            let Some(length) = self.store.length(key) else { return (None, None) };
            let room = self.replies.take(length).await;
            let value = self.store.get(key);
            let has = room.as_ref().map_or(0, |room| room.num_permits());
            if value.as_ref().is_none_or(|value| value.len() <= has) {
                return (value, room);
            }
        }
    }

    /// Another leads, as far as this member knows.
    async fn there(&self, wanted: &Wanted, leader: u64, until: Instant, reserves: bool) -> Attempt {
        let room = match reserves {
            true => match timeout_at(until, self.replies.reserve()).await {
                Ok(room) => room,
                Err(_) => return Attempt::NotNow(no_room()),
            },
            false => None,
        };
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let way = Way { passed_on: true, within_ms: u32::try_from(left).unwrap_or(u32::MAX) };
        let request = match wanted {
            Wanted::Write(command) => Request::Write { command: command.clone(), way },
            Wanted::Read(key) => Request::Read { key: key.clone(), way },
        };
        let call = self.call_while_it_leads(leader, request, room);
        match timeout_at(until, call).await {
            Ok(Ok(Came::NoRoom)) => Attempt::NoRoom,
            Ok(Ok(Came::Reply(Reply::NotLeading { leader }, _))) => Attempt::Elsewhere(leader),
            Ok(Ok(Came::Reply(Reply::Unknown(reason), _))) => Attempt::Lost(reason),
            Ok(Ok(Came::Reply(Reply::Refused(reason), _))) => Attempt::NotNow(reason),
            Ok(Ok(Came::Reply(reply, room))) => Attempt::Answered(reply, room),
            Ok(Err(error)) => Attempt::Lost(format!("the leader does not answer: {error}")),
            Err(_) => Attempt::Lost("the leader did not answer in time".into()),
        }
    }

    /// Asks the leader, and gives up when another does: one that was paused or cut off does not answer.
    async fn call_while_it_leads(
        &self,
        leader: u64,
        request: Request,
        room: Option<Room>,
    ) -> io::Result<Came> {
        let mut metrics = self.raft.server_metrics();
        let another = metrics
            .wait_for(|metrics| metrics.current_leader.is_some_and(|current| current != leader));
        tokio::select! {
            reply = self.peers.pass_on(leader, request, room) => reply,
            _ = another => Err(io::Error::other("another leads now")),
        }
    }

    /// How this member is.
    pub(crate) fn status(&self) -> KvStatus {
        let metrics = self.raft.metrics().borrow().clone();
        let driver = *self.driver.status().borrow();
        let (elected, term) = match &*self.election.state().borrow() {
            ElectionState::Following { leader, term, .. } => (Some(leader.get()), term.get()),
            state => match state.mandate() {
                Some(mandate) => (Some(self.me.get()), mandate.term().get()),
                None => (None, 0),
            },
        };
        let micros = |latency: Duration| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let latency = self.load.latency(Stopwatch::now());
        KvStatus {
            member: self.me.get(),
            leader: metrics.current_leader,
            raft_term: metrics.current_term,
            leads: self.driver.report().leads.is_some(),
            elected,
            term,
            last_index: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            driver: driver
                .ended
                .map_or_else(|| in_words(driver.directs), |ended| ended.to_string()),
            moves: driver.moves,
            own_elections: driver.own_elections,
            requests: self.load.total(),
            failed: metrics.running_state.err().map(|error| error.to_string()),
            latency_us: latency.map(|(median, most)| (micros(median), micros(most))),
        }
    }

    /// Hands the election's leadership over; Raft's follows.
    pub(crate) async fn transfer(&self, to: u32) -> Reply {
        match self.election.transfer(MemberId::new(to)).await {
            Ok(()) => Reply::Transferred,
            Err(reason) => Reply::Refused(reason.to_string()),
        }
    }
}

fn no_room() -> String {
    format!("{REPLIES} bytes of values are on their way to clients")
}

/// The pause after this one, before a request is sent again.
fn longer(pause: Duration) -> Duration {
    (pause * 2).min(SENT_AGAIN)
}

fn in_words(step: Option<Step>) -> String {
    match step {
        None => "follows".into(),
        Some(Step::Settled) => "leads".into(),
        Some(Step::Wait) => "waits".into(),
        Some(Step::CatchUp { interim, behind }) => {
            format!("{interim} leads, {behind} entries behind")
        }
        Some(Step::Elect(who)) => format!("has {who} elected"),
        Some(Step::Move { from }) => format!("takes over from {from}"),
    }
}

fn read_failed(error: RaftError<u64, CheckIsLeaderError<u64, BasicNode>>) -> Attempt {
    match error {
        RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward)) => {
            Attempt::Elsewhere(forward.leader_id)
        }
        error => Attempt::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_not_taken_is_sent_again_less_and_less_often() {
        let mut pause = AGAIN;
        let mut sent = 0;
        let mut waited = Duration::ZERO;
        while waited < Duration::from_secs(2) {
            sent += 1;
            waited += pause;
            pause = longer(pause);
        }
        assert!(sent <= 16, "{sent} megabytes instead of one");
        assert_eq!(pause, SENT_AGAIN);
    }
}
