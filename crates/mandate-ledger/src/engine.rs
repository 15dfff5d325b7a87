//! A member of a group on a ledger, and what it does for its machine.

use std::sync::Arc;
use std::time::Duration;

use mandate_proto::identity::Incarnation;
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::neli::{self, Config, Effect, Event, Input, Layout, Partition, Unfit};
use mandate_proto::value::Value;
use mandate_runtime::driver::{Backend, Carried, Driven, Driver, LAST_WORDS};
use mandate_runtime::{EngineSide, Status};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::elections::{Asked, Elections};
use crate::ledger::{Ledger, LedgerClient, LedgerError};
use crate::roles::{LeaseTable, LedgerRoles};

/// How a member is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// What is wanted of it.
    pub config: Config,
    /// How many roles there are.
    pub roles: u32,
}

/// Why a member cannot start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is wanted does not fit what the ledger grants.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
}

/// Starts a member on this process's tokio runtime.
pub fn start<L: Ledger>(ledger: &L, setup: Setup) -> Result<LedgerRoles, StartError> {
    start_with_value(ledger, setup, None)
}

/// The same; every claim of the member carries this value.
pub fn start_with_value<L: Ledger>(
    ledger: &L,
    setup: Setup,
    value: Option<Value>,
) -> Result<LedgerRoles, StartError> {
    let plan = setup.config.with_roles(setup.roles).resolve(ledger.grants())?;
    let incarnation = Incarnation::new(getrandom::u64().map_err(StartError::Random)?);
    let member = ledger.member(incarnation, &plan)?;
    let layout = Layout::new(plan.grants().partitions, setup.roles);
    let (me, mode, lease) = (plan.me(), plan.mode(), plan.threshold());
    let (handle, side) = EngineSide::open(None);
    // One clock: the machine's deadlines are compared with it when a role is asked for.
    let leases = LeaseTable::new(side.clock(), layout, mode);
    let mut effects = Effects::new();
    let mut machine = neli::Member::start(plan, incarnation, side.now(), &mut effects);
    // Before anything is assigned, and so before any claim.
    machine.handle(Input::Value(value), side.now(), &mut effects);
    let (end, ended) = watch::channel(None);
    let (elections, wanted) = mpsc::unbounded_channel();
    let backend = LedgerBackend {
        leases: Withdrawn(leases.clone()),
        elections: Elections::new(wanted, me),
        member,
        ending: Vec::new(),
        has_left: false,
        failed: None,
        end,
    };
    tokio::spawn(Driver::new(machine, effects, side, backend).run());
    Ok(LedgerRoles { leases, handle, ended, elections, lease })
}

/// What a member on a ledger does for its machine. The handle that drives it is the whole member's; those of single roles
/// are [`Elections`].
struct LedgerBackend<M> {
    /// First, so that nothing is led when the rest is dropped, however it comes about.
    leases: Withdrawn,
    elections: Elections,
    member: M,
    /// Partitions whose work is to end.
    ending: Vec<Partition>,
    has_left: bool,
    failed: Option<LedgerError>,
    /// Told why the member has ended.
    end: watch::Sender<Option<String>>,
}

/// A table that shows nothing held once its driver is gone, however it went.
struct Withdrawn(Arc<LeaseTable>);

impl Withdrawn {
    fn withdraw(&self) {
        for partition in self.partitions() {
            self.publish(partition, None);
        }
    }
}

impl std::ops::Deref for Withdrawn {
    type Target = LeaseTable;

    fn deref(&self) -> &LeaseTable {
        &self.0
    }
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// What a member on a ledger waits for.
enum Arrival {
    /// Of its ledger.
    Ledger(Result<Input, LedgerError>),
    /// Work on a partition whose work is to end has ended, perhaps.
    Idle,
    /// All work on it has.
    Drained(Partition),
    /// Of the handles of single roles.
    Asked(Asked),
}

impl<M: LedgerClient> Backend<neli::Member> for LedgerBackend<M> {
    type Arrival = Arrival;

    /// As long as its machine takes, which gives work that was begun its time. The handle does not wait for that.
    const LEAVES_WITHIN: Duration = Duration::MAX;

    /// What has ended is seen to have ended before the ledger can give it to another.
    fn settle(&mut self, driven: &mut Driven<neli::Member>) {
        let (machine, now) = (&driven.machine, self.leases.clock().now());
        let held = |partition| machine.mandate(partition, now);
        self.elections.settle(held, |partition| machine.drains(partition));
        for partition in self.leases.partitions() {
            self.leases.publish(partition, held(partition));
        }
        let mut noted = self.leases.noted();
        noted.settle(|partition| machine.is_assigned(partition), machine.waiting_since());
        noted.disagrees_with(machine.disagreement(), machine.other_size());
    }

    fn carry_out(&mut self, effect: Effect, driven: &mut Driven<neli::Member>) -> Carried {
        match effect {
            Effect::Ask(request) => self.member.ask(request),
            Effect::Abandon { id } => self.member.abandon(id),
            Effect::Tell(event) => {
                if let Event::Ended { partition, .. } = &event {
                    self.ending.push(*partition);
                }
                let machine = &driven.machine;
                self.has_left |= event == Event::Left && machine.deadline().is_none();
                log(&event);
                let clock = self.leases.clock();
                self.elections.tell(&event, |one| machine.mandate(one, clock.now()));
                self.leases.tell(event);
            }
        }
        Carried::Done
    }

    async fn next(&mut self) -> Arrival {
        let (leases, elections) = (&self.leases, &self.elections);
        let is_over = |one: &Partition| !leases.is_working(*one) && !elections.is_lent(*one);
        if let Some(place) = self.ending.iter().position(is_over) {
            return Arrival::Drained(self.ending.swap_remove(place));
        }
        tokio::select! {
            biased;
            () = leases.idle.notified(), if !self.ending.is_empty() => Arrival::Idle,
            input = self.member.next() => Arrival::Ledger(input),
            asked = self.elections.next() => Arrival::Asked(asked),
        }
    }

    fn arrived(&mut self, arrival: Arrival, driven: &mut Driven<neli::Member>) {
        match arrival {
            Arrival::Ledger(Ok(input)) => driven.handle(input),
            Arrival::Ledger(Err(error)) => self.failed = Some(error),
            Arrival::Drained(partition) => driven.handle(Input::Drained { partition }),
            Arrival::Asked(asked) => {
                let (machine, clock) = (&driven.machine, self.leases.clock());
                let held = |one| machine.mandate(one, clock.now());
                let value = |one| machine.value(one, clock.now()).cloned();
                if self.elections.asked(asked, clock, held, value) {
                    driven.handle(Input::Resign);
                }
            }
            Arrival::Idle => {}
        }
    }

    fn wakes_in(&self) -> Option<Duration> {
        self.elections.wakes_in()
    }

    fn has_ended(&self) -> bool {
        self.has_left || self.failed.is_some()
    }

    fn status(&self, driven: &Driven<neli::Member>) -> Status {
        Status::of(&driven.side)
    }

    async fn close(self) {
        let LedgerBackend { leases, mut elections, member, failed, end, .. } = self;
        leases.withdraw();
        elections.settle(|_| None, |_| None);
        let reason = match failed {
            None => "it has left the group".to_owned(),
            Some(error) => {
                tracing::error!(%error, "a member has ended");
                error.to_string()
            }
        };
        if timeout(LAST_WORDS, member.close()).await.is_err() {
            tracing::warn!("the ledger did not let this member go in time");
        }
        end.send_replace(Some(reason));
    }
}

/// What an operator should look at is a warning.
fn log(event: &Event) {
    match event {
        Event::Dry { partition } => tracing::warn!(
            "{partition} is dry: it is assigned to this member, and nothing came for a threshold and a session by which it \
             could be led; see whether this host reaches the partition's broker, and whether it has one"
        ),
        Event::BarrierStuck { .. } => tracing::warn!(
            "the barrier is stuck: this member waits to be assigned something for longer than any member may hold that up"
        ),
        Event::DrainOverran { partition } => {
            tracing::warn!("work on {partition} took longer than is allowed, and it was released")
        }
        Event::WentBack { partition, from, to } => tracing::warn!(
            "the offsets of {partition} went back, from term {from} to {to}: was the topic made anew?"
        ),
        Event::Disagrees { ours, theirs, leads } => {
            let does = if *leads { "leads" } else { "wants to lead" };
            tracing::warn!(
                "another member of the group goes by another layout and {does}: it has {theirs}; this member has {ours}, \
                 and does not lead. Give all members the same partitions, roles and mode, and restart those that differ"
            );
        }
        Event::Resized { counted, found } if counted == found => {
            tracing::info!("the topic has {found} partitions again, as this member counts");
        }
        Event::Resized { counted, found: 0 } => tracing::warn!(
            "the topic is gone: this member counts {counted} partitions. Make it again with as many, and restart all members"
        ),
        Event::Resized { counted, found } => tracing::warn!(
            "the topic has {found} partitions by now, and this member counts {counted}: the number must not change while a \
             group uses it. Members go on with {counted}; restart all of them at once to use {found}"
        ),
        Event::Agrees => tracing::info!("no member of the group goes by another layout any more"),
        event => tracing::debug!(?event, "told"),
    }
}
