//! Who has a place: newcomers, members and clients, each apart.
//!
//! | | places | when there is none left |
//! | --- | --- | --- |
//! | newcomers, who have not said who they are | 256, for 5 s each | the one that came first is dropped |
//! | members | one for each lane of their own; what they pass on for clients has a client's place | a newer connection replaces the older: the caller knows better which one is alive |
//! | clients | 1,024 | the one that has been idle for longest is dropped; if none is idle, the newcomer |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mandate_proto::identity::MemberId;
use tokio::task::AbortHandle;

use crate::wire::Lane;

/// Connections whose caller is not known yet.
const NEWCOMERS: usize = 256;

/// Connections of clients, and of members that pass requests on.
const CLIENTS: usize = 1024;

/// The caller at the other end of a connection.
#[derive(Debug, Default)]
pub(super) struct Callers {
    held: Mutex<Held>,
    /// Rises with everything that happens: who did something last has the highest.
    clock: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    newcomers: BTreeMap<u64, AbortHandle>,
    members: BTreeMap<(MemberId, Lane), (u64, AbortHandle)>,
    clients: BTreeMap<u64, (Arc<Activity>, AbortHandle)>,
}

/// What a connection does.
#[derive(Debug, Default)]
pub(super) struct Activity {
    under_way: AtomicUsize,
    last: AtomicU64,
    clock: Arc<AtomicU64>,
}

/// A request is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    fn touch(&self) {
        self.last.store(self.clock.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.touch();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    callers: &'a Callers,
    number: u64,
    handle: AbortHandle,
}

impl Callers {
    /// Somebody has connected; `handle` ends that connection.
    pub(super) fn arrive(&self, handle: AbortHandle) -> Place<'_> {
        let mut held = self.lock();
        held.next += 1;
        let number = held.next;
        if held.newcomers.len() >= NEWCOMERS
            && let Some((_, first)) = held.newcomers.pop_first()
        {
            first.abort();
        }
        held.newcomers.insert(number, handle.clone());
        Place { callers: self, number, handle }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn activity(&self) -> Arc<Activity> {
        let activity = Activity { clock: self.clock.clone(), ..Activity::default() };
        activity.touch();
        Arc::new(activity)
    }
}

impl Place<'_> {
    /// It is a member's, for a lane of its own.
    pub(super) fn becomes_member(&mut self, member: MemberId, lane: Lane) -> Arc<Activity> {
        let mut held = self.callers.lock();
        held.newcomers.remove(&self.number);
        let before = held.members.insert((member, lane), (self.number, self.handle.clone()));
        if let Some((_, before)) = before {
            before.abort();
        }
        self.callers.activity()
    }

    /// It is a client's; `None` if there is no room, and nobody is idle.
    pub(super) fn becomes_client(&mut self) -> Option<Arc<Activity>> {
        let mut held = self.callers.lock();
        held.newcomers.remove(&self.number);
        if held.clients.len() >= CLIENTS {
            let idle = held.clients.iter().filter(|(_, (activity, _))| activity.is_idle());
            let longest = idle.min_by_key(|(_, (it, _))| it.last.load(Ordering::Relaxed));
            let longest = longest.map(|(number, _)| *number)?;
            if let Some((_, handle)) = held.clients.remove(&longest) {
                handle.abort();
            }
        }
        let activity = self.callers.activity();
        held.clients.insert(self.number, (activity.clone(), self.handle.clone()));
        Some(activity)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut held = self.callers.lock();
        held.newcomers.remove(&self.number);
        held.clients.remove(&self.number);
        held.members.retain(|_, (number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    /// A connection that lasts until it is ended.
    fn connection() -> JoinHandle<()> {
        tokio::spawn(std::future::pending())
    }

    /// They are clients', one after the other.
    fn clients<'a>(
        callers: &'a Callers,
        tasks: &[JoinHandle<()>],
    ) -> (Vec<Place<'a>>, Vec<Arc<Activity>>) {
        let client = |task: &JoinHandle<()>| {
            let mut place = callers.arrive(task.abort_handle());
            let activity = place.becomes_client().unwrap();
            (place, activity)
        };
        tasks.iter().map(client).unzip()
    }

    async fn is_ended(task: JoinHandle<()>) -> bool {
        let ended = tokio::time::timeout(std::time::Duration::from_millis(100), task).await;
        ended.is_ok()
    }

    #[tokio::test]
    async fn a_client_that_is_idle_makes_room_and_one_that_is_busy_does_not() {
        let callers = Callers::default();
        let tasks: Vec<_> = (0..CLIENTS).map(|_| connection()).collect();
        let (_places, activities) = clients(&callers, &tasks);
        let busy: Vec<_> = activities.iter().map(Activity::begin).collect();
        let late = connection();
        let mut late_place = callers.arrive(late.abort_handle());
        assert!(late_place.becomes_client().is_none(), "all are busy");
        // The second ends its request before the first.
        let mut busy = busy.into_iter();
        let (first, second) = (busy.next(), busy.next());
        drop(second);
        drop(first);
        assert!(late_place.becomes_client().is_some());
        let mut tasks = tasks.into_iter();
        let (first, second) = (tasks.next().unwrap(), tasks.next().unwrap());
        assert!(is_ended(second).await, "it has been idle for longest");
        assert!(!is_ended(first).await);
    }

    #[tokio::test]
    async fn clients_take_no_place_of_members() {
        let callers = Callers::default();
        let tasks: Vec<_> = (0..CLIENTS).map(|_| connection()).collect();
        let (_places, activities) = clients(&callers, &tasks);
        let _busy: Vec<_> = activities.iter().map(Activity::begin).collect();
        let (member, again) = (connection(), connection());
        let mut place = callers.arrive(member.abort_handle());
        place.becomes_member(MemberId::new(2), Lane::Raft);
        let mut other_lane = callers.arrive(again.abort_handle());
        other_lane.becomes_member(MemberId::new(2), Lane::Snapshots);
        assert!(!is_ended(member).await && callers.lock().members.len() == 2);
        let newer = connection();
        callers.arrive(newer.abort_handle()).becomes_member(MemberId::new(2), Lane::Snapshots);
        assert!(is_ended(again).await, "the newer connection replaces it");
    }

    #[tokio::test]
    async fn of_too_many_newcomers_the_first_is_dropped() {
        let callers = Callers::default();
        let tasks: Vec<_> = (0..=NEWCOMERS).map(|_| connection()).collect();
        let _places: Vec<_> =
            tasks.iter().map(|task| callers.arrive(task.abort_handle())).collect();
        let mut tasks = tasks.into_iter();
        assert!(is_ended(tasks.next().unwrap()).await);
        assert!(!is_ended(tasks.next().unwrap()).await);
        assert_eq!(callers.lock().newcomers.len(), NEWCOMERS);
    }
}
