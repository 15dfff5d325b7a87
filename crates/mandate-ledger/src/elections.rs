//! Single roles as elections: the same handle as any other engine's.
//!
//! The driver keeps the engine's side of each ([`EngineSide`]), because what has ended must be seen to have ended before
//! the ledger can give it to another.
//!
//! Work to which a mandate is lent ([`Mandate::lend`](mandate_runtime::Mandate::lend)) is work on the partition, as that
//! of [`LedgerRoles::begin`](crate::LedgerRoles::begin): if the ledger wants the partition back, it is released when all loans are back.
//! They last no longer than the lease did: if this process does not run any more, the ledger goes on
//! without it, and the next leader waits out a lease, not a drain.

use std::time::Duration;

use futures_util::future::select_all;
use mandate_proto::election::{Lease, NoTransfer, State};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::{Event, Holding, Partition};
use mandate_proto::pole::installation::NoChange;
use mandate_proto::time::Instant;
use mandate_proto::value::{NoPublish, Value};
use mandate_runtime::clock::Clock;
use mandate_runtime::engine_side::{Command, EngineSide};
use mandate_runtime::{LeaderRequestError, Status};
use tokio::sync::mpsc;

/// An election that is wanted for a partition's role.
pub(crate) type Wanted = (Partition, EngineSide);

#[derive(Debug)]
pub(crate) struct Elections {
    wanted: mpsc::UnboundedReceiver<Wanted>,
    open: Vec<Open>,
    /// Whose they are.
    me: MemberId,
}

#[derive(Debug)]
struct Open {
    partition: Partition,
    side: EngineSide,
    /// How much more the driver's clock reads than the side's, or a little less than that.
    ahead: Duration,
    /// When it began to lead, if it does.
    began: Option<Instant>,
}

/// What an election's handle asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A new election.
    Open(Wanted),
    /// Something of one that there is.
    Command(usize, Command),
    /// Nothing, but the last loan of one has come back.
    Returned,
}

impl Elections {
    pub(crate) fn new(wanted: mpsc::UnboundedReceiver<Wanted>, me: MemberId) -> Self {
        Elections { wanted, open: Vec::new(), me }
    }

    /// What is asked for next. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Asked {
        let Elections { wanted, open, .. } = self;
        let command = async {
            if open.is_empty() {
                return std::future::pending().await;
            }
            select_all(open.iter_mut().map(|one| Box::pin(one.side.next_or_returned()))).await
        };
        tokio::select! {
            biased;
            Some(wanted) = wanted.recv() => Asked::Open(wanted),
            (command, index, _) = command => match command {
                Some(command) => Asked::Command(index, command),
                None => Asked::Returned,
            },
        }
    }

    /// Does what is asked for; true if the member is to give everything up. `held` is by `clock`.
    pub(crate) fn asked(
        &mut self,
        asked: Asked,
        clock: Clock,
        held: impl Fn(Partition) -> Option<Holding>,
        value: impl Fn(Partition) -> Option<Value>,
    ) -> bool {
        match asked {
            Asked::Open(wanted) => {
                let (now_held, published) = (held(wanted.0), value(wanted.0));
                self.open(wanted, clock, now_held, published);
                false
            }
            Asked::Command(index, command) => self.obey(index, command, held),
            Asked::Returned => false,
        }
    }

    /// A new election, of which the driver holds this.
    fn open(
        &mut self,
        (partition, side): Wanted,
        clock: Clock,
        now_held: Option<Holding>,
        published: Option<Value>,
    ) {
        // In this order, so that deadlines come out early rather than late.
        let side_reads = side.now();
        let ahead = clock.now().since(side_reads);
        let mut one = Open { partition, side, ahead, began: None };
        if let Some(holding) = now_held {
            one.begin(holding);
            if let (Some(term), Some(value)) = (holding.term, published) {
                one.publish(self.me, term, &value);
            }
        }
        self.open.push(one);
    }

    /// Shows what is held before anything is asked of anyone, and until when work on what is to move may take.
    pub(crate) fn settle(
        &mut self,
        held: impl Fn(Partition) -> Option<Holding>,
        drains: impl Fn(Partition) -> Option<Instant>,
    ) {
        for one in &mut self.open {
            let held = held(one.partition).and_then(|holding| one.held(holding));
            let drains = drains(one.partition).and_then(|by| one.by_side(by));
            one.side.settle_or_recall(held, drains);
            one.side.check_jeopardy();
        }
    }

    /// Whether a mandate of the partition's is lent.
    pub(crate) fn is_lent(&self, partition: Partition) -> bool {
        self.open.iter().any(|one| one.partition == partition && one.side.is_lent())
    }

    pub(crate) fn tell(&mut self, event: &Event, held: impl Fn(Partition) -> Option<Holding>) {
        let concerns =
            |one: &&mut Open| event.partition().is_none_or(|about| about == one.partition);
        for one in self.open.iter_mut().filter(concerns) {
            // Why, before what follows from it.
            one.tell(event);
            match event {
                Event::Acquired { partition, .. } => match held(*partition) {
                    Some(holding) => one.begin(holding),
                    None => one.end(),
                },
                Event::Published { term, value, .. } => one.publish(self.me, *term, value),
                Event::Ended { .. } => one.end(),
                _ => {}
            }
        }
    }

    /// Obeys; true if the member is to give everything up.
    fn obey(
        &mut self,
        index: usize,
        command: Command,
        held: impl Fn(Partition) -> Option<Holding>,
    ) -> bool {
        let one = &mut self.open[index];
        match command {
            Command::Resign { of, done } => {
                let held = held(one.partition).and_then(|holding| one.held(holding));
                let is_meant = held.is_some() && one.side.concerns(of.as_ref(), held);
                // Before the caller is told.
                one.side.withdraw(of.as_ref());
                done.map(|done| done.send(()));
                is_meant
            }
            Command::Transfer { done, .. } => {
                let _ = done.send(Err(NoTransfer::Assigned));
                false
            }
            Command::Publish { done, .. } => {
                let _ = done.send(Err(NoPublish::WithClaim));
                false
            }
            Command::Change { done, .. } => {
                let _ = done.send(Err(NoChange::Unsupported.into()));
                false
            }
            Command::Ask { done, .. } => {
                let _ = done.send(Err(LeaderRequestError::Unsupported));
                false
            }
            // Of members that send each other requests.
            Command::ResignFrom { .. } | Command::Answer { .. } => false,
            Command::Figures(_) => false,
            Command::Status { done } => {
                let _ = done.send(Status::of(&one.side));
                false
            }
            Command::Stop => {
                self.open.remove(index);
                false
            }
        }
    }

    /// When a lease comes near its end.
    pub(crate) fn wakes_in(&self) -> Option<Duration> {
        let each = self.open.iter();
        each.filter_map(|one| Some(one.side.wakes_at()?.since(one.side.now()))).min()
    }
}

impl Open {
    /// The driver's time on the side's clock.
    fn by_side(&self, at: Instant) -> Option<Instant> {
        at.as_nanos().checked_sub(self.ahead.as_nanos() as u64).map(Instant::from_nanos)
    }

    fn held(&self, holding: Holding) -> Option<Lease> {
        let until = Some(self.by_side(holding.until)?);
        // Terms tell reigns apart, where there are any.
        let began = self.began.filter(|_| holding.term.is_none()).unwrap_or(Instant::ORIGIN);
        Some(Lease { term: holding.term.unwrap_or(Term::NONE), began, until })
    }

    fn begin(&mut self, holding: Holding) {
        self.began = Some(self.side.now());
        let held = self.held(holding);
        let term = holding.term.unwrap_or(Term::NONE);
        self.side.tell(mandate_runtime::Event::Changed(State::Leading { term }), held);
    }

    /// Its claim carries this.
    fn publish(&mut self, leader: MemberId, term: Term, value: &Value) {
        let value = value.clone();
        let event = mandate_runtime::Event::Published { leader, term, value };
        self.side.tell(event, None);
    }

    fn tell(&mut self, event: &Event) {
        // Nobody renews or withdraws anything by this.
        self.side.tell(mandate_runtime::Event::OnLedger(event.clone()), None);
    }

    fn end(&mut self) {
        if self.began.take().is_some() {
            self.side.tell(mandate_runtime::Event::Changed(State::Electing), None);
        }
    }
}
