//! The handle of a member: who leads what.
//!
//! [`LedgerRoles::is_leader`] is a load and a look at the clock: no lock, no queue, whatever the number of roles. The
//! driver writes, before anything that it does can be seen elsewhere, what its machine holds of each partition.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use mandate_proto::neli::{Event, Holding, Layout, Mode, Partition};
use mandate_proto::time::Instant;
use mandate_runtime::clock::Clock;
use mandate_runtime::{Election, EngineSide};
use tokio::sync::{Notify, broadcast, mpsc, watch};

use crate::elections::Wanted;
use crate::status::{Noted, RolesStatus};

/// Changes that a slow listener may be behind; older ones are lost to it, and it is told so.
const CHANGES: usize = 1024;

/// What is held of one partition. Terms only rise, so that a term that reads the same before and after
/// the deadline belongs to it.
#[derive(Debug, Default)]
struct Slot {
    term: AtomicU64,
    /// Nanoseconds on the clock; 0: not led.
    until: AtomicU64,
    /// How much work is under way.
    working: AtomicUsize,
}

/// What the member holds of each partition, as its driver publishes it.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    clock: Clock,
    layout: Layout,
    slots: Box<[Slot]>,
    /// Told when work on some partition has ended.
    pub(crate) idle: Notify,
    changes: broadcast::Sender<Change>,
    /// For people and for monitoring: nothing is decided by it, and a caller that asks who leads does not wait for it.
    noted: Mutex<Noted>,
}

impl LeaseTable {
    pub(crate) fn new(clock: Clock, layout: Layout, mode: Mode) -> Arc<Self> {
        let slots = (0..layout.partitions()).map(|_| Slot::default()).collect();
        let (changes, _) = broadcast::channel(CHANGES);
        let noted = Mutex::new(Noted::new(layout, mode));
        Arc::new(LeaseTable { clock, layout, slots, idle: Notify::new(), changes, noted })
    }

    /// Where a role is led; nowhere, if there is no such role.
    fn slot_of(&self, role: RoleId) -> Option<&Slot> {
        let is_one = role.get() < self.layout.roles();
        is_one.then(|| self.slot(self.layout.partition_of(role))).flatten()
    }

    fn slot(&self, partition: Partition) -> Option<&Slot> {
        self.slots.get(partition.get() as usize)
    }

    pub(crate) fn publish(&self, partition: Partition, holding: Option<Holding>) {
        let Some(slot) = self.slot(partition) else { return };
        let term = holding.and_then(|holding| holding.term).map_or(0, Term::get);
        if holding.is_none() || slot.term.load(Ordering::Relaxed) != term {
            slot.until.store(0, Ordering::SeqCst);
        }
        if let Some(holding) = holding {
            slot.term.store(term, Ordering::SeqCst);
            slot.until.store(holding.until.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Whether work on the partition is under way.
    pub(crate) fn is_working(&self, partition: Partition) -> bool {
        self.slot(partition).is_some_and(|slot| slot.working.load(Ordering::SeqCst) > 0)
    }

    pub(crate) fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, event: Event) {
        self.noted().tell(&event, self.clock.now());
        // Nobody listens, perhaps.
        let _ = self.changes.send(Change { event, layout: self.layout });
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.layout.partitions()).map(Partition::new)
    }
}

/// Something that happened to a partition, and so to its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The event, for the partition that it names.
    pub event: Event,
    layout: Layout,
}

impl Change {
    /// The roles that it concerns; none, if it concerns the member as a whole.
    pub fn roles(&self) -> impl Iterator<Item = RoleId> + use<> {
        let layout = self.layout;
        self.event.partition().into_iter().flat_map(move |partition| layout.roles_of(partition))
    }
}

/// A member of a group on a ledger. Clones are the same member; it leaves when it is
/// [told](LedgerRoles::shutdown), or when the last clone is gone.
#[derive(Clone, Debug)]
pub struct LedgerRoles {
    pub(crate) leases: Arc<LeaseTable>,
    /// Of the member as a whole.
    pub(crate) handle: Election,
    pub(crate) ended: watch::Receiver<Option<String>>,
    pub(crate) elections: mpsc::UnboundedSender<Wanted>,
    /// What a leader relies on.
    pub(crate) lease: Duration,
}

impl LedgerRoles {
    /// Whether this member leads the role now. In exclusive mode no other's answer is yes at the same
    /// instant, given clocks within the drift allowance. A role beyond the number of roles is led by nobody.
    pub fn is_leader(&self, role: RoleId) -> bool {
        let slot = self.leases.slot_of(role);
        let until = slot.map_or(0, |slot| slot.until.load(Ordering::SeqCst));
        // Read before the clock, so that a later deadline is not compared with an earlier time.
        until > 0 && self.leases.clock.now() < Instant::from_nanos(until)
    }

    /// The term under which this member leads the role now: what is to be sent along with whatever the leader does.
    /// Zero in non-exclusive mode, which has none.
    pub fn term(&self, role: RoleId) -> Option<Term> {
        let slot = self.leases.slot_of(role)?;
        let term = slot.term.load(Ordering::SeqCst);
        let leads = self.is_leader(role);
        let is_same = slot.term.load(Ordering::SeqCst) == term;
        (leads && is_same).then(|| Term::new(term))
    }

    /// The roles that this member leads now.
    pub fn owned(&self) -> Vec<RoleId> {
        let layout = self.leases.layout;
        let roles = (0..layout.roles()).map(RoleId::new);
        roles.filter(|role| self.is_leader(*role)).collect()
    }

    /// Begins work on a role, if this member leads it. Until it is dropped, the role is not given to another
    /// in good order, within the bound on draining.
    pub fn begin(&self, role: RoleId) -> Option<Work> {
        let partition = self.leases.layout.partition_of(role);
        // Counted before it is asked: the code that ends leadership looks in the other order.
        self.leases.slot_of(role)?.working.fetch_add(1, Ordering::SeqCst);
        let work = Work { leases: self.leases.clone(), partition };
        self.is_leader(role).then_some(work)
    }

    /// What this member can say of itself, partition by partition: for people, and for monitoring.
    pub fn standing(&self) -> RolesStatus {
        let held = |partition| {
            let slot = self.leases.slot(partition)?;
            let (term, until) =
                (slot.term.load(Ordering::SeqCst), slot.until.load(Ordering::SeqCst));
            (until > 0).then(|| (Term::new(term), Instant::from_nanos(until)))
        };
        self.leases.noted().standing(self.leases.layout, self.leases.clock.now(), held)
    }

    /// How roles are mapped to partitions, and keys to roles.
    pub fn layout(&self) -> Layout {
        self.leases.layout
    }

    /// Whether the role that a key belongs to is led here: roles as hash slots.
    pub fn owns_key(&self, key: &[u8]) -> bool {
        self.leases.layout.slot_of(key).is_some_and(|slot| self.is_leader(slot))
    }

    /// One role as an election: the handle of every other engine. Resigning gives up all roles of this member for a
    /// while, since a ledger takes back all or none; there is no transfer. Who leads while this member does not, it does
    /// not know. Shutting it down ends this handle only, and the partition stays with this member: to give it up, resign.
    pub fn election(&self, role: RoleId) -> Election {
        let (election, side) = EngineSide::open(Some(self.lease));
        // After its end, the side goes at once, and the handle says so.
        let _ = self.elections.send((self.leases.layout.partition_of(role), side));
        election
    }

    /// What happens from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.leases.changes.subscribe()
    }

    /// Gives up everything for a while, and leaves it to the others.
    pub fn resign(&self) {
        self.handle.resign_soon();
    }

    /// Gives up everything, leaves the group, and ends. Bounded: after two seconds it is let go.
    pub async fn shutdown(&self) {
        self.handle.shutdown().await;
    }

    /// Waits until the member has ended, and says why.
    pub async fn until_ended(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => "its driver is gone".to_owned(),
        }
    }

    /// Why the member has ended, if it has: use after that finds nothing led.
    pub fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }
}

/// Work on a role.
#[derive(Debug)]
pub struct Work {
    leases: Arc<LeaseTable>,
    partition: Partition,
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(slot) = self.leases.slot(self.partition)
            && slot.working.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.leases.idle.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn roles() -> LedgerRoles {
        let layout = Layout::new(NonZeroU32::new(4).unwrap(), 10);
        let (handle, side) = EngineSide::open(None);
        let leases = LeaseTable::new(side.clock(), layout, Mode::Exclusive);
        let (_, ended) = watch::channel(None);
        let (elections, _) = mpsc::unbounded_channel();
        LedgerRoles { leases, handle, ended, elections, lease: Duration::from_secs(1) }
    }

    fn holding(roles: &LedgerRoles, term: u64, lasts: Duration) -> Option<Holding> {
        let until = roles.leases.clock.now() + lasts;
        Some(Holding { term: Some(Term::new(term)), until })
    }

    #[test]
    fn a_role_is_led_with_its_partition_and_until_the_deadline() {
        let roles = roles();
        let partition = Partition::new(1);
        roles.leases.publish(partition, holding(&roles, 7, Duration::from_secs(60)));
        assert_eq!(roles.owned(), [1, 5, 9].map(RoleId::new));
        assert_eq!(roles.term(RoleId::new(5)), Some(Term::new(7)));
        let beyond = RoleId::new(13);
        assert_eq!((roles.is_leader(beyond), roles.term(beyond)), (false, None), "there are 10");
        assert!(roles.begin(beyond).is_none() && !roles.leases.is_working(partition));
        roles.leases.publish(partition, holding(&roles, 7, Duration::ZERO));
        assert!(!roles.is_leader(RoleId::new(5)), "by the clock alone");
        roles.leases.publish(partition, None);
        assert_eq!(roles.term(RoleId::new(5)), None);
    }

    #[test]
    fn work_is_begun_only_where_it_leads_and_counted_until_dropped() {
        let roles = roles();
        let partition = Partition::new(2);
        assert!(roles.begin(RoleId::new(2)).is_none());
        assert!(!roles.leases.is_working(partition));
        roles.leases.publish(partition, holding(&roles, 7, Duration::from_secs(60)));
        let work = roles.begin(RoleId::new(6)).unwrap();
        assert!(roles.leases.is_working(partition));
        drop(work);
        assert!(!roles.leases.is_working(partition));
    }

    #[test]
    fn a_key_is_owned_with_its_slot() {
        let roles = roles();
        let slot = roles.layout().slot_of(b"customer 17").unwrap();
        assert!(!roles.owns_key(b"customer 17"));
        let partition = roles.layout().partition_of(slot);
        roles.leases.publish(partition, holding(&roles, 7, Duration::from_secs(60)));
        assert!(roles.owns_key(b"customer 17"));
    }
}
