//! The engine's side of an [`Election`]: what the handle asks for comes in here, and what happens is told here.
//!
//! An engine opens one, gives the [`Election`] away, and then, in a loop: obeys the [commands](EngineSide::next),
//! [settles](EngineSide::settle) what it holds before anything that it says reaches another, and
//! [tells](EngineSide::tell) what happened. Engines that are a machine leave the loop to the [driver](crate::driver).
//! The rules that make a [`Mandate`] what it is are kept here:
//!
//! - What has ended is seen to have ended before anyone else can hear of it.
//! - What has begun is seen when the engine says so, and not before.
//! - However the engine ends, its mandate ends with it, and everyone who waits is told.

use std::sync::Arc;
use std::time::Duration;

use mandate_proto::election::{Lease, NoTransfer, State};
use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{MemberChange, NoChange, Roster, RosterId};
use mandate_proto::time::Instant;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::election::{ChangeError, Election, ElectionState};
pub use crate::ends::Command;
use crate::ends::{self, EngineEnd};
use crate::event::Event;
use crate::mandate::{LeaseCell, Mandate};
use crate::requests::Asked;

/// The engine's side of one handle.
#[derive(Debug)]
pub struct EngineSide {
    cell: Arc<LeaseCell>,
    end: EngineEnd,
    /// Zero without leases.
    lease: Duration,
    renewals: u64,
    change: Option<Pending>,
    pub(crate) asked: Asked,
    /// The last list of this member, as the leader, that a quorum had on disk.
    settled: RosterId,
}

/// A change of members that somebody waits for.
#[derive(Debug)]
struct Pending {
    change: MemberChange,
    /// The term in which it was asked for, if this member led.
    term: Option<Term>,
    done: oneshot::Sender<Result<Roster, ChangeError>>,
}

impl EngineSide {
    /// The engine's side, and the handle to give away. With a lease, if leaders rely on one.
    pub fn open(lease: Option<Duration>) -> (Election, EngineSide) {
        let (handle, end) = ends::pair();
        let cell = LeaseCell::new(Clock::start());
        let lease = lease.unwrap_or_default();
        let side = EngineSide {
            cell,
            end,
            lease,
            renewals: 0,
            change: None,
            asked: Asked::default(),
            settled: RosterId::NONE,
        };
        (Election::new(handle), side)
    }

    /// The clock that mandates are checked against.
    pub fn clock(&self) -> Clock {
        self.cell.clock()
    }

    /// What it reads.
    pub fn now(&self) -> Instant {
        self.clock().now()
    }

    /// What is asked for next; to stop, when the last handle is gone. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Command {
        self.end.next().await
    }

    /// What is asked for next, where there is room for it; without, only to stop.
    pub(crate) async fn next_if(&mut self, has_room: bool) -> Command {
        self.end.next_if(has_room).await
    }

    /// Who leads, as it was told last.
    pub fn state(&self) -> ElectionState {
        self.end.state.borrow().clone()
    }

    /// Where writes of the member's state are counted.
    pub(crate) fn disk(&self) -> Disk {
        self.end.disk.clone()
    }

    /// How often a lease was renewed.
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    /// From now on leases last this long: what counts as near the end of one follows from it.
    pub fn set_lease(&mut self, lease: Duration) {
        self.lease = lease;
    }

    /// To be called with what the member holds before anything of what it asks for is carried out: what has
    /// ended is withdrawn, what was renewed lasts longer, and what is new waits until it is told.
    pub fn settle(&mut self, held: Option<Lease>) {
        let same = |one: Lease, other: Lease| (one.term, one.began) == (other.term, other.began);
        match (self.cell.held(), held) {
            (Some(shown), Some(held)) if same(shown, held) => {
                self.renewals += u64::from(held.until > shown.until && !self.lease.is_zero());
                self.cell.publish(Some(held));
            }
            _ => self.cell.publish(None),
        }
    }

    /// The same for an engine that is told in time that leadership is to move: if nothing is held any more, what was
    /// [lent](Mandate::lend) may be used until `drains`, or to the end of its lease if that comes first.
    pub fn settle_or_recall(&mut self, held: Option<Lease>, drains: Option<Instant>) {
        match (held, drains) {
            (None, Some(by)) => self.cell.recall(by),
            (held, _) => self.settle(held),
        }
    }

    /// Whether a mandate of this side is lent, of whatever term.
    pub fn is_lent(&self) -> bool {
        self.cell.is_lent()
    }

    /// What is asked for next; `None` if the last loan has come back. Dropping this future loses nothing.
    pub async fn next_or_returned(&mut self) -> Option<Command> {
        let cell = self.cell.clone();
        tokio::select! {
            command = self.end.next() => Some(command),
            () = cell.returned() => None,
        }
    }

    /// Tells everyone who listens. `held` is what the member holds now: a change to leading publishes it.
    pub fn tell(&mut self, event: Event, held: Option<Lease>) {
        if let Event::Changed(state) = &event {
            let state = self.shown(*state, held);
            self.end.state.send_replace(state);
        }
        if let Event::Published { leader, term, value } = &event {
            self.end.state.send_if_modified(|state| state.take_value(*leader, *term, value));
        }
        match &event {
            Event::RosterChanged(roster) => self.go_by(roster.clone()),
            Event::RosterSettled(settled) => self.settled = *settled,
            _ => {}
        }
        match &event {
            Event::RosterChanged(_) | Event::RosterSettled(_) => self.check_made(),
            Event::NotChanged { change, reason } => {
                if let Some(pending) = self.change.take_if(|pending| pending.change == *change) {
                    let _ = pending.done.send(Err(ChangeError::Refused(*reason)));
                }
            }
            _ => {}
        }
        self.end.tell(event);
    }

    /// The list that the member goes by from now on, for those who watch it.
    pub fn go_by(&mut self, roster: Roster) {
        self.end.members.send_replace(Some(roster));
    }

    /// A change of members was asked for, and this is what the machine is to be told; `None` if the caller has been told why not.
    pub fn begin_change<I>(
        &mut self,
        change: MemberChange,
        input: Result<I, NoChange>,
        done: oneshot::Sender<Result<Roster, ChangeError>>,
    ) -> Option<I> {
        let is_free = self.change.as_ref().is_none_or(|pending| pending.done.is_closed());
        match input {
            Ok(input) if is_free => {
                let term = self.cell.held().map(|held| held.term);
                self.change = Some(Pending { change, term, done });
                Some(input)
            }
            refused => {
                let reason = refused.err().unwrap_or(NoChange::UnderWay);
                let _ = done.send(Err(ChangeError::Refused(reason)));
                None
            }
        }
    }

    /// Tells who waits for a change of members, if it is made: the present list is the one that a quorum has.
    fn check_made(&mut self) {
        let Some(roster) = self.end.members.borrow().clone() else { return };
        let is_settled = roster.id() == self.settled;
        let made = |pending: &mut Pending| is_settled && pending.change.is_made_in(&roster);
        if let Some(pending) = self.change.take_if(made) {
            let _ = pending.done.send(Ok(roster));
        }
    }

    /// Tells who waits for a change of members, if the term is over in which it was asked for.
    pub fn check_change(&mut self, held: Option<Lease>) {
        let is_over = |pending: &mut Pending| {
            pending.term.is_some_and(|term| held.is_none_or(|held| held.term != term))
        };
        if let Some(pending) = self.change.take_if(is_over) {
            let _ = pending.done.send(Err(ChangeError::LeadershipLost));
        }
    }

    fn shown(&self, state: State, held: Option<Lease>) -> ElectionState {
        match state {
            State::Electing => ElectionState::Electing,
            State::Following { leader, term } => {
                ElectionState::Following { leader, term, value: None }
            }
            State::Leading { term } => {
                let held = held.filter(|held| held.term == term);
                self.cell.publish(held);
                // What has ended meanwhile is shown as led until the next event says so; it does not hold.
                let held = held.unwrap_or(Lease { term, began: self.now(), until: None });
                ElectionState::Leading(Mandate::new(held, self.cell.clone()))
            }
        }
    }

    /// Whether a [`Command::Resign`] is about what the member holds.
    pub fn concerns(&self, of: Option<&Mandate>, held: Option<Lease>) -> bool {
        of.is_none_or(|of| held.is_some_and(|held| of.is_of(held)))
    }

    /// Withdraws the mandate here and now, if it is that one: when the engine cannot say so to others yet.
    pub fn withdraw(&self, of: Option<&Mandate>) {
        if let Some(held) = self.cell.held()
            && self.concerns(of, Some(held))
        {
            self.cell.publish(None);
        }
    }

    /// A transfer was refused, before it was said in an event.
    pub fn refuse(&mut self, reason: NoTransfer) {
        self.end.refused = Some(reason);
    }

    /// Whether the last transfer was refused, and why; asked once.
    pub fn refusal(&mut self) -> Option<NoTransfer> {
        self.end.refused.take()
    }

    /// When to [look](EngineSide::check_jeopardy) whether the lease is near its end.
    pub fn wakes_at(&self) -> Option<Instant> {
        match &*self.end.state.borrow() {
            ElectionState::Leading(_) => self.jeopardy_at(),
            _ => None,
        }
    }

    fn jeopardy_at(&self) -> Option<Instant> {
        let until = self.cell.held()?.until.filter(|_| !self.lease.is_zero())?;
        let third = u64::try_from((self.lease / 3).as_nanos()).unwrap_or(u64::MAX);
        Some(Instant::from_nanos(until.as_nanos().saturating_sub(third)))
    }

    /// Whether the lease is near its end, or is not any more.
    pub fn check_jeopardy(&self) {
        let in_jeopardy = self.jeopardy_at().is_some_and(|at| at <= self.now());
        self.end.state.send_if_modified(|state| match state {
            ElectionState::Leading(mandate) if in_jeopardy => {
                tracing::warn!(term = %mandate.term(), "renewals fail: the lease is near its end");
                *state = ElectionState::Jeopardy(mandate.clone());
                true
            }
            ElectionState::Jeopardy(mandate) if !in_jeopardy => {
                *state = ElectionState::Leading(mandate.clone());
                true
            }
            _ => false,
        });
    }
}

impl Drop for EngineSide {
    fn drop(&mut self) {
        self.cell.publish(None);
        // Last: who waits for it finds everything ended.
        self.end.state.send_replace(ElectionState::Stopped);
    }
}
