//! Many roles over many processes, on a ledger that assigns partitions: NELI.
//!
//! After E. Koutanov, *Non-Exclusive Leader Induction in Highly Available Systems*. A ledger (Kafka, say) has
//! partitions and gives each to one member of a group. Roles are mapped to partitions ([`Layout`]); the member that
//! can be sure of a partition leads its roles. How sure one must be is the [`Mode`].
//!
//! Kept: the mapping of roles, everyone publishing to every partition, the threshold T above the session
//! (non-exclusive) or below it (exclusive), the grace period, several groups over one ledger, disjoint groups.
//! Replaced: what proves ownership in exclusive mode, and how old a record is.
//!
//! # The rules, and why
//!
//! For both modes:
//!
//! 1. **Leadership is a deadline, compared at the call** ([`Member::mandate`]). A flag that somebody has to
//!    clear stays up in a process that does not run.
//! 2. **A record that waited counts as old.** Its age is worked out on the ledger's own clock, which
//!    acknowledgements of this member's publications tell. Counted from when it is read, a heap of old records
//!    would revive a leader that was paused (the paper's five steps in "Exclusivity of role assignment").
//!    The paper compares the ledger's clock with the reader's, and so needs them synchronised; this needs
//!    no more than clocks of bounded rate.
//! 3. **A partition that stays dry is given back**: a member may be cut off from a partition and not from
//!    its assigner, and would keep its roles without a leader for as long as that lasts. A ledger takes back
//!    everything or nothing, so this is for members that lead nothing: one partition without a broker must not
//!    cost the others their leader.
//!
//! Non-exclusive:
//!
//! 4. **Leadership lapses by time, not by revocation**, and T is longer than the session: the next leader has
//!    begun by then.
//!
//! Exclusive:
//!
//! 5. **Receiving records proves nothing** on a ledger that hands them to every process that asks. Ownership is
//!    *renewed*: the ledger refuses members that it has replaced. (As printed, two lead:
//!    `mandate_sim::neli` shows it.)
//! 6. **T counts from before the renewal was sent**, and the ledger accepts it later. An answer that comes when T is
//!    over proves nothing.
//! 7. **The next leader waits for T from its assignment on**, and for what two clocks may drift: every renewal of an earlier owner
//!    was accepted before that. How long the ledger holds a partition for anyone does not matter.
//! 8. **A renewal proves something of the assignment in which it was sent only.** A partition that was revoked and
//!    assigned again meanwhile is another matter, though the ledger, which checks members and not
//!    partitions, accepts it.
//! 9. **An unknown outcome proves nothing.** The next renewal will tell.
//! 10. **Revoked, lost, refused: led no more, at once**; then work ends, within a bound; then the partition is
//!     released, and only then may another have it.
//! 11. **The term is the offset of a claim** that was published in this assignment and *then* confirmed by a
//!     renewal. The confirmation says that nobody else had the partition when the claim was written; so
//!     the next owner writes behind it. A claim of a member that has been replaced cannot be
//!     confirmed. A group's generation is no term: it begins anew when the group was empty.
//! 12. **What has lapsed or was refused stays lost**: the next claim has a higher term. No member leads under a
//!     lower term than it has seen.
//! 13. **It does not wait if the term just before its own is over**: by its own doing, or because the leader of that term has said so,
//!     after it had ended and before it gave the partition back. The reasons are in `succession.rs`.
//! 14. **Members that go by different layouts do not lead beside each other**: what roles a partition stands for, and what
//!     "leader" means, stands in every mark, and a member looks at all of them before it leads. The rules are in `agreement.rs`.
//! 15. **On a ledger that does not fence but hands records to the owner only**, a record of the member's own is the
//!     proof, dated from its sending. Only those: no other clock has to be trusted. Everyone waits, because nothing tells
//!     who had it before.
//! 16. **A renewal proves that the ledger has kept the member since the one before, if that is less than a session ago.**
//!     After a longer silence, or a refusal, others may have had the partition: the assignment counts from then on anew,
//!     and so does what earlier owners are waited for. Clients come back by themselves, and not all of them say so.
//!
//! The simulator removes these one by one and sees what they are for (`docs/ledger.md` has the counts).
//!
//! # Guarantees
//!
//! - [`Mode::NonExclusive`]: every role has a leader but for [`LedgerPlan::gap_within`] after one failure, as long
//!   as the ledger works; several, for T less the session, when it changes hands. With two disjoint groups over
//!   the same roles, one failure leaves no instant without a leader.
//! - [`Mode::Exclusive`]: at any instant at most one [`mandate`](Member::mandate) holds for a partition; its term
//!   rises, and one that checks terms is safe whatever clocks do. Assumed: the ledger keeps what it has
//!   acknowledged, and refuses renewals of generations that it has replaced ([`Grants::fenced`]); clocks that count
//!   suspension, and whose rates are off by less than the allowance.
//!
//! # Bounds
//!
//! A member remembers a few hundred bytes a partition. In exclusive mode one renewal is under way at a time,
//! whatever the number of partitions and roles: `1 / interval` messages a second for each member, and none
//! else; it writes what has changed, and one partition's mark in turn. In non-exclusive mode each member publishes `partitions / interval` records a second, one under way
//! to each partition.

mod agreement;
mod config;
mod interface;
mod layout;
mod ledger_clock;
mod membership;
pub mod memory;
mod proving;
mod publishing;
mod seat;
mod succession;

use alloc::vec;
use alloc::vec::Vec;

pub use config::{Config, Grants, LedgerPlan, Mode, RecordDelivery, Unfit};
pub use interface::{
    BarrierId, Effect, Event, Input, LedgerRecord, LedgerRequest, Mark, PROTOCOL, Partition,
    PartitionHolder, PublishOutcome, RecordKind, Renewed, RequestId, RoleLoss, Undertaking,
};
pub use layout::{Agreement, Layout};

use agreement::Agreeing;
use membership::Stay;
use proving::Renewal;
use seat::Seat;
use succession::Inspection;

use crate::election::{Elector, Lease, NoTransfer};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::time::Instant;
use crate::value::{NoPublish, Value};

type Fx = Effects<Effect>;

/// What a member holds of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The fencing token; only in exclusive mode is there one.
    pub term: Option<Term>,
    /// Until when it can be sure.
    pub until: Instant,
}

/// One member's part in a group on a ledger.
#[derive(Clone, Debug)]
pub struct Member {
    plan: LedgerPlan,
    incarnation: Incarnation,
    requests: u64,
    epochs: u64,
    seats: Vec<Seat>,
    stay: Stay,
    /// Since when it waits for an assignment, and when it says so.
    waiting: Option<(Instant, Instant)>,
    renewal: Option<Renewal>,
    next_renewal: Instant,
    /// Whose mark was written last in turn.
    last_marked: Option<Partition>,
    inspection: Option<Inspection>,
    next_inspection: Instant,
    next_beat: Instant,
    publish_failures: u32,
    renew_failures: u32,
    inspect_failures: u32,
    /// How many rests in succession were for dry partitions, and when the last began.
    dry_rests: (u32, Instant),
    agreeing: Agreeing,
    /// What every claim carries.
    value: Option<Value>,
}

impl Member {
    /// Starts a member. `incarnation` is a random number that no other incarnation of any member has: by it a member
    /// knows its own records again.
    pub fn start(
        plan: LedgerPlan,
        incarnation: Incarnation,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let mut member = Member {
            incarnation,
            requests: 0,
            epochs: 0,
            seats: vec![Seat::default(); plan.grants.partitions.get() as usize],
            stay: if plan.marks() { Stay::Arriving } else { Stay::Member },
            waiting: None,
            renewal: None,
            next_renewal: now,
            last_marked: None,
            inspection: None,
            next_inspection: now,
            next_beat: now,
            publish_failures: 0,
            renew_failures: 0,
            inspect_failures: 0,
            dry_rests: (0, now),
            agreeing: Agreeing::new(now),
            value: None,
            plan,
        };
        match member.takes_part() {
            true => member.join(now, effects),
            false => member.waits_since(now),
        }
        member.advance(now, effects);
        member
    }

    /// What it holds of this partition at `now`.
    pub fn mandate(&self, partition: Partition, now: Instant) -> Option<Holding> {
        let seat = self.seats.get(partition.get() as usize)?;
        let until = seat.until.filter(|until| seat.leads() && now < *until)?;
        Some(Holding { term: seat.claim, until })
    }

    /// What it has published with the term that it holds of this partition at `now`.
    pub fn value(&self, partition: Partition, now: Instant) -> Option<&Value> {
        self.mandate(partition, now)?;
        self.seats.get(partition.get() as usize)?.value.as_ref()
    }

    /// Until when work on a partition may take that is led no more and is to move: it is not released before
    /// [`Input::Drained`] or then. `None` if nothing waits for the work.
    pub fn drains(&self, partition: Partition) -> Option<Instant> {
        let seat = self.seats.get(partition.get() as usize)?;
        let by = match (seat.wanted, self.stay) {
            (Some((_, by)), _) => by,
            (None, Stay::Going { by, .. }) => by,
            _ => return None,
        };
        (seat.work == seat::Work::Ending && seat.assigned.is_some()).then_some(by)
    }

    /// Whether the ledger has assigned it this partition, as far as it knows.
    pub fn is_assigned(&self, partition: Partition) -> bool {
        self.seats.get(partition.get() as usize).is_some_and(|seat| seat.assigned.is_some())
    }

    /// What it goes by.
    pub fn plan(&self) -> &LedgerPlan {
        &self.plan
    }

    /// Whether it leaves the group, rests, or has left.
    pub fn is_leaving(&self) -> bool {
        !self.takes_part()
    }

    /// Since when it waits for an assignment, if it does.
    pub fn waiting_since(&self) -> Option<Instant> {
        self.waiting.map(|(since, _)| since)
    }

    fn next_id(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn each(&self) -> impl Iterator<Item = (Partition, &Seat)> {
        self.seats.iter().enumerate().map(|(index, seat)| (Partition::new(index as u32), seat))
    }

    fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.seats.len() as u32).map(Partition::new)
    }

    /// Of a partition that exists.
    fn seat_mut(&mut self, partition: Partition) -> &mut Seat {
        &mut self.seats[partition.get() as usize]
    }

    /// Everything that is due.
    fn advance(&mut self, now: Instant, effects: &mut Fx) {
        self.expire(now, effects);
        self.unsettle();
        self.begin(now, effects);
        self.release_overrun(now, effects);
        self.give_way(now, effects);
        self.come_and_go(now, effects);
        self.give_publications_up(now, effects);
        self.give_renewal_up(now, effects);
        self.give_inspection_up(now, effects);
        if self.is_inspection_due().is_some_and(|due| due <= now) {
            self.inspect(now, effects);
        }
        if self.is_renewal_due().is_some_and(|due| due <= now) {
            self.renew(now, effects);
        }
        self.claim_due(now, effects);
        if self.is_beat_due().is_some_and(|due| due <= now) {
            self.beat(now, effects);
        }
        self.complain(now, effects);
    }

    fn due_at(&self, partition: Partition, seat: &Seat) -> Option<Instant> {
        let grace = seat.kept().filter(|_| !seat.leads() && seat.claim.is_some());
        let grace = grace.filter(|_| seat.until.is_some() && self.takes_part());
        let grace = grace.filter(|_| self.is_agreed(seat));
        let grace = grace.and_then(|assignment| self.alone_from(seat, assignment));
        let released_by = seat.wanted.map(|(_, by)| by);
        let flight = seat.flight.as_ref().map(|flight| flight.gives_up);
        let claim = self.is_claim_due(partition);
        [seat.until, grace, released_by, flight, claim, seat.dry_at].into_iter().flatten().min()
    }
}

impl Elector for Member {
    fn resign() -> Input {
        Input::Resign
    }

    fn stop() -> Input {
        Input::Leave
    }

    fn transfer(_: MemberId) -> Result<Input, NoTransfer> {
        Err(NoTransfer::Assigned)
    }

    fn publish(_: Value) -> Result<Input, NoPublish> {
        Err(NoPublish::WithClaim)
    }

    /// What it leads is partition by partition: see [`Member::mandate`].
    fn held(&self, _: Instant) -> Option<Lease> {
        None
    }
}

impl Machine for Member {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        // What has ended by now has ended, whatever the input says.
        self.expire(now, effects);
        if self.stay == Stay::Left {
            return;
        }
        match input {
            Input::Assigned { partitions } => self.assigned(&partitions, now),
            Input::Revoking { barrier, partitions } => {
                self.revoking(barrier, &partitions, now, effects);
            }
            Input::Lost { partitions } => self.lost(&partitions, now, effects),
            Input::Record { partition, offset, stamp, record } => {
                self.received(partition, offset, stamp, record, now);
            }
            Input::Published { id, outcome } => self.published(id, outcome, now, effects),
            Input::Renewed { id, outcome } => self.renewed(id, outcome, now, effects),
            Input::Inspected { id, marks } => {
                self.inspected(id, marks.as_deref(), now, effects);
            }
            Input::Sized { partitions } => self.sized(partitions, effects),
            Input::Unserved { partitions } => self.unserved(&partitions),
            Input::Drained { partition } => self.drained(partition, now, effects),
            Input::Value(value) => self.value = value,
            Input::Resign => self.go(false, now, effects),
            Input::Leave => self.go(true, now, effects),
        }
        self.advance(now, effects);
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.advance(now, effects);
    }

    fn deadline(&self) -> Option<Instant> {
        let stay = match self.stay {
            Stay::Left => return None,
            Stay::Arriving | Stay::Member => None,
            Stay::Going { by, .. } => Some(by),
            Stay::Resting { until } => Some(until),
        };
        let waiting = self.waiting.map(|(_, at)| at);
        let renewal = self.renewal.as_ref().map(|renewal| renewal.gives_up);
        let inspection = self.inspection.as_ref().map(|inspection| inspection.gives_up);
        let under_way = [stay, waiting, renewal, inspection, self.gives_way_at()];
        let due = [self.is_renewal_due(), self.is_inspection_due(), self.is_beat_due()];
        let seats = self.each().filter_map(|(partition, seat)| self.due_at(partition, seat));
        under_way.into_iter().chain(due).flatten().chain(seats).min()
    }
}

#[cfg(test)]
mod paper_tests;
#[cfg(test)]
mod succession_tests;
#[cfg(test)]
mod tests;
