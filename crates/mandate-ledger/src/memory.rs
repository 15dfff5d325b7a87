//! The ledger in memory as a service of this process: its members share it directly, or as badly as a test
//! wants. The machines are [`mandate_proto::neli::memory`]; this drives them in real time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mandate_proto::identity::Incarnation;
use mandate_proto::neli::memory::{Broker, Call, ClientId, MemoryClient, Outgoing, Reply};
use mandate_proto::neli::{Grants, Input, LedgerPlan, LedgerRequest, RequestId};
use mandate_proto::time::{Instant, WallTime};
use mandate_runtime::clock::Clock;
use tokio::sync::Notify;
use tokio::time::sleep;

pub use mandate_proto::neli::memory::{
    AssignmentRule, BrokerConfig, ClientConfig, Coordination, GroupId, InstanceId, Renewals, Side,
};

use crate::ledger::{Ledger, LedgerClient, LedgerError};

/// A ledger in this process. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct MemoryLedger {
    shared: Arc<Shared>,
    client: ClientConfig,
    group: GroupId,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    broker: Broker,
    mailboxes: BTreeMap<Incarnation, Mailbox>,
    /// Nobody is answered until then.
    down_until: Instant,
    /// By how much the ledger's wall clock is off, in nanoseconds.
    skew_nanos: i64,
}

#[derive(Debug)]
struct Mailbox {
    replies: VecDeque<(ClientId, Reply)>,
    wakes: Arc<Notify>,
    is_cut: [bool; 2],
}

impl MemoryLedger {
    /// A new ledger, as members of this group see it.
    pub fn new(broker: BrokerConfig, client: ClientConfig, group: GroupId) -> Self {
        let state = State {
            broker: Broker::new(broker),
            mailboxes: BTreeMap::new(),
            down_until: Instant::ORIGIN,
            skew_nanos: 0,
        };
        let shared = Shared { clock: Clock::start(), state: Mutex::new(state) };
        MemoryLedger { shared: Arc::new(shared), client, group }
    }

    /// The same ledger, as members of another group see it.
    pub fn with_group(&self, group: GroupId) -> Self {
        MemoryLedger { group, ..self.clone() }
    }

    /// From now on a member hears nothing of one side of the ledger, nor is it heard; or it does again.
    pub fn cut(&self, incarnation: Incarnation, side: Side, is_cut: bool) {
        if let Some(mailbox) = self.shared.state().mailboxes.get_mut(&incarnation) {
            mailbox.is_cut[side as usize] = is_cut;
            mailbox.replies.retain(|(_, reply)| !is_cut || reply.side() != side);
        }
    }

    /// The ledger is down for this long, and then as it was.
    pub fn restart(&self, down: Duration) {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state.down_until = now + down;
        state.broker.restart(now + down);
        state.mailboxes.values_mut().for_each(|mailbox| mailbox.replies.clear());
    }

    /// Somebody sets the ledger's wall clock.
    pub fn step_clock(&self, by_nanos: i64) {
        let mut state = self.shared.state();
        state.skew_nanos = state.skew_nanos.saturating_add(by_nanos);
    }

    /// The members that there are, in the order of their incarnations.
    pub fn members(&self) -> Vec<Incarnation> {
        self.shared.state().mailboxes.keys().copied().collect()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        WallTime::from_unix_nanos(nanos.saturating_add_signed(self.skew_nanos))
    }

    fn call(&mut self, group: GroupId, id: ClientId, call: Call, now: Instant) {
        let is_cut = |mailbox: &Mailbox| mailbox.is_cut[call.side() as usize];
        if now < self.down_until || self.mailboxes.get(&id.life).is_none_or(is_cut) {
            return;
        }
        let wall = self.wall();
        self.broker.call(group, id, call, (now, wall));
    }

    /// Does what is due, and hands answers to whom they are for.
    fn advance(&mut self, now: Instant) {
        if now >= self.down_until {
            self.broker.advance(now);
        }
        while let Some((id, reply)) = self.broker.reply() {
            if let Some(mailbox) = self.mailboxes.get_mut(&id.life)
                && !mailbox.is_cut[reply.side() as usize]
            {
                mailbox.replies.push_back((id, reply));
                mailbox.wakes.notify_one();
            }
        }
    }
}

impl Ledger for MemoryLedger {
    type Member = MemoryMember;

    fn grants(&self) -> Grants {
        let ClientConfig { session, heartbeat, barrier, .. } = self.client;
        self.shared.state().broker.grants(session, heartbeat, barrier)
    }

    fn member(
        &self,
        incarnation: Incarnation,
        _: &LedgerPlan,
    ) -> Result<MemoryMember, LedgerError> {
        let wakes = Arc::new(Notify::new());
        let mailbox =
            Mailbox { replies: VecDeque::new(), wakes: wakes.clone(), is_cut: [false; 2] };
        self.shared.state().mailboxes.insert(incarnation, mailbox);
        Ok(MemoryMember {
            client: MemoryClient::new(self.client, incarnation),
            ledger: self.clone(),
            incarnation,
            wakes,
            inputs: VecDeque::new(),
        })
    }
}

/// A member's side of a ledger in memory.
#[derive(Debug)]
pub struct MemoryMember {
    client: MemoryClient,
    ledger: MemoryLedger,
    incarnation: Incarnation,
    wakes: Arc<Notify>,
    inputs: VecDeque<Input>,
}

impl MemoryMember {
    fn pass_on(&mut self, out: Vec<Outgoing>, now: Instant) {
        let mut state = self.ledger.shared.state();
        for outgoing in out {
            match outgoing {
                Outgoing::Call(id, call) => state.call(self.ledger.group, id, call, now),
                Outgoing::Tell(input) => self.inputs.push_back(input),
            }
        }
        state.advance(now);
    }

    /// Lets everything happen that is due; when something is due next.
    fn advance(&mut self) -> Option<Instant> {
        let shared = self.ledger.shared.clone();
        let now = shared.clock.now();
        let mut out = Vec::new();
        let replies = {
            let mut state = shared.state();
            state.advance(now);
            let mailbox = state.mailboxes.get_mut(&self.incarnation);
            mailbox.map(|mailbox| std::mem::take(&mut mailbox.replies)).unwrap_or_default()
        };
        self.client.polled(now, &mut out);
        for (id, reply) in replies {
            self.client.replied(id, reply, now, &mut out);
        }
        self.client.advance(now, &mut out);
        self.pass_on(out, now);
        let broker = shared.state().broker.deadline();
        self.client.deadline().into_iter().chain(broker).min()
    }
}

impl LedgerClient for MemoryMember {
    fn ask(&mut self, request: LedgerRequest) {
        let now = self.ledger.shared.clock.now();
        let mut out = Vec::new();
        self.client.ask(request, now, &mut out);
        self.pass_on(out, now);
    }

    fn abandon(&mut self, _id: RequestId) {}

    async fn close(self) {}

    async fn next(&mut self) -> Result<Input, LedgerError> {
        loop {
            let due = self.advance();
            if let Some(input) = self.inputs.pop_front() {
                return Ok(input);
            }
            let now = self.ledger.shared.clock.now();
            let longest = Duration::from_secs(1);
            let pause = due.map_or(longest, |due| (due - now).min(longest));
            tokio::select! {
                () = self.wakes.notified() => {}
                () = sleep(pause.max(Duration::from_micros(100))) => {}
            }
        }
    }
}

impl Drop for MemoryMember {
    /// As if its process had died: it says nothing.
    fn drop(&mut self) {
        self.ledger.shared.state().mailboxes.remove(&self.incarnation);
    }
}
