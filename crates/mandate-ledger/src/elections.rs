//! Single roles as elections: the same handle as any other engine's.
//!
//! The driver keeps the engine's side of each ([`Office`]), because what has ended must be seen to have ended before
//! the ledger can give it to another.
//!
//! Work to which a mandate is lent ([`Mandate::lend`](mandate_runtime::Mandate::lend)) is work on the partition, as that
//! of [`Roles::begin`](crate::Roles::begin): if the ledger wants the partition back, it is released when all loans are back.
//! They last no longer than the lease did: if this process does not run any more, the ledger goes on
//! without it, and the next leader waits out a lease, not a drain.

use std::time::Duration;

use futures_util::future::select_all;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::{Event, Holding, Partition};
use mandate_proto::oracle::{Oracle, View};
use mandate_proto::time::Instant;
use mandate_runtime::clock::Clock;
use mandate_runtime::event::{NoTransfer, State};
use mandate_runtime::office::{Command, Held, Office};
use mandate_runtime::{Event as Told, Status};
use tokio::sync::mpsc;

/// An election that is wanted for a partition's role.
pub(crate) type Wanted = (Partition, Office);

#[derive(Debug)]
pub(crate) struct Elections {
    me: MemberId,
    wanted: mpsc::UnboundedReceiver<Wanted>,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    partition: Partition,
    office: Office,
    /// How much more the driver's clock reads than the office's, or a little less than that.
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
    pub(crate) fn new(me: MemberId, wanted: mpsc::UnboundedReceiver<Wanted>) -> Self {
        Elections { me, wanted, open: Vec::new() }
    }

    /// What is asked for next. Dropping this future loses nothing.
    pub(crate) async fn next(&mut self) -> Asked {
        let Elections { wanted, open, .. } = self;
        let command = async {
            if open.is_empty() {
                return std::future::pending().await;
            }
            select_all(open.iter_mut().map(|one| Box::pin(one.office.next_or_returned()))).await
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

    /// A new election, of which the driver holds this.
    pub(crate) fn open(
        &mut self,
        (partition, office): Wanted,
        clock: Clock,
        now_held: Option<Holding>,
    ) {
        // In this order, so that deadlines come out early rather than late.
        let office_reads = office.now();
        let ahead = clock.now().since(office_reads);
        let mut one = Open { partition, office, ahead, began: None };
        if let Some(holding) = now_held {
            one.begin(holding);
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
            let drains = drains(one.partition).and_then(|by| one.by_office(by));
            one.office.settle_or_recall(held, drains);
            one.office.check_jeopardy();
        }
    }

    /// Whether a mandate of the partition's is lent.
    pub(crate) fn is_lent(&self, partition: Partition) -> bool {
        self.open.iter().any(|one| one.partition == partition && one.office.is_lent())
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
                Event::Ended { .. } => one.end(),
                _ => {}
            }
        }
    }

    /// Obeys; true if the member is to give everything up.
    pub(crate) fn obey(
        &mut self,
        index: usize,
        command: Command,
        held: impl Fn(Partition) -> Option<Holding>,
    ) -> bool {
        let me = self.me;
        let one = &mut self.open[index];
        match command {
            Command::Resign { of, done } => {
                let held = held(one.partition).and_then(|holding| one.held(holding));
                let is_meant = held.is_some() && one.office.concerns(of.as_ref(), held);
                // Before whoever asked is told.
                one.office.withdraw(of.as_ref());
                done.map(|done| done.send(()));
                is_meant
            }
            Command::Transfer { done, .. } => {
                let _ = done.send(Err(NoTransfer::Assigned));
                false
            }
            Command::Figures(_) => false,
            Command::Status { done } => {
                let _ = done.send(one.status(me));
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
        each.filter_map(|one| Some(one.office.wakes_at()?.since(one.office.now()))).min()
    }
}

impl Open {
    /// The driver's time on the office's clock.
    fn by_office(&self, at: Instant) -> Option<Instant> {
        at.as_nanos().checked_sub(self.ahead.as_nanos() as u64).map(Instant::from_nanos)
    }

    fn held(&self, holding: Holding) -> Option<Held> {
        let until = Some(self.by_office(holding.until)?);
        // Terms tell reigns apart, where there are any.
        let began = self.began.filter(|_| holding.term.is_none()).unwrap_or(Instant::ORIGIN);
        Some(Held { term: holding.term.unwrap_or(Term::NONE), began, until })
    }

    fn begin(&mut self, holding: Holding) {
        self.began = Some(self.office.now());
        let held = self.held(holding);
        let term = holding.term.unwrap_or(Term::NONE);
        self.office.tell(Told::Changed(State::Leading { term }), held);
    }

    fn tell(&mut self, event: &Event) {
        // Nobody renews or withdraws anything by this.
        self.office.tell(Told::OnLedger(*event), None);
    }

    fn end(&mut self) {
        if self.began.take().is_some() {
            self.office.tell(Told::Changed(State::Electing), None);
        }
    }

    fn status(&self, me: MemberId) -> Status {
        let view = View::new(me, []);
        Status {
            state: self.office.state(),
            suspected: Vec::new(),
            standing: Oracle::constant().measure(&view),
            view,
            has_vote: true,
            no_vote: None,
            detection: Default::default(),
            renewals: self.office.renewals(),
        }
    }
}
