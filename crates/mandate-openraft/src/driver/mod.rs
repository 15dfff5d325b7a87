//! Drives the leadership of an openraft cluster by the elections of the peer engine.
//!
//! Each member of the service has a driver beside its Raft. The driver of the member that holds the mandate directs
//! ([`direction`](crate::direction)); the others report and obey, if their own election names that member as the
//! leader of that term. A move goes
//! like this: the leader closes its [`Gate`], waits until the writes that have passed are done and the successor has
//! all of its log, and leads no more; all members release their lease; the successor is elected; the gate opens, and
//! the writes that waited find the new leader. Nothing is lost on the way, and nothing fails: writes are late by a
//! few round trips.
//!
//! While a driver directs, Raft's own timeouts elect nobody. They do again when the driver is dropped, stops or
//! panics, and when for [`patience`](DriverConfig::patience) nobody has said that Raft is led
//! ([`watchdog`](crate::watchdog)).
//!
//! A driver whose Raft has ended (a storage error, a panic) gives the mandate back at once, and every later one: who
//! cannot lead Raft must not keep others from it. It answers no request any more, and [`RaftDriver::ended`] returns.

mod authority;
mod config;
mod directing;
mod gate;
mod node;
mod orders;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_runtime::clock::Clock;
use mandate_runtime::{Election, Observer};
use openraft::{Raft, RaftTypeConfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub use config::DriverConfig;
pub use gate::{Gate, Pass};
pub use orders::{Answer, Messenger, Order, Refusal, Request};

use crate::direction::{Report, Step};
use crate::watchdog::Watchdog;
use directing::Directing;
use node::Node;

/// What a driver does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverStatus {
    /// What the holder of the mandate does; `None` at the others.
    pub directs: Option<Step>,
    /// Whether Raft's own timeouts elect.
    pub own_elections: bool,
    /// How often this member has taken over from a leader that stood aside, since the start.
    pub moves: u64,
    /// Why it drives no more; `None` while it does.
    pub ended: Option<Ended>,
}

/// Why a driver drives no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Raft has ended. The member does not lead any more, and cannot: end the process, and mend what ended Raft.
    Raft,
    /// The election was shut down.
    Election,
    /// The driver itself has failed, or was dropped.
    RaftDriver,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Raft => "Raft has ended",
            Ended::Election => "the election was shut down",
            Ended::RaftDriver => "the driver has ended",
        })
    }
}

/// Why a driver was not started. Raft elects by its own timeouts, as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDriven {
    /// The member is not in the list.
    #[error("{0} is not among the members; name all members of the group, this one included")]
    NotAMember(MemberId),
    /// Two members are one node.
    #[error("{0} and {1} have the same node id; each member is a node of its own")]
    SameNode(MemberId, MemberId),
}

/// Drives one member's Raft. When it is dropped, Raft elects by its own timeouts again.
///
/// ```no_run
/// use std::collections::BTreeMap;
/// use std::error::Error;
///
/// use mandate_openraft::{Answer, RaftDriver, DriverConfig, Messenger, Request};
/// use mandate_proto::identity::MemberId;
/// use mandate_runtime::Election;
/// use openraft::{Raft, RaftTypeConfig};
///
/// # async fn send(_: MemberId, _: Request) -> Result<Answer, Box<dyn Error + Send + Sync>> {
/// #     Err("nobody is connected in an example".into())
/// # }
/// /// Whatever the service speaks with its members already.
/// struct MyRpc;
///
/// impl Messenger for MyRpc {
///     async fn ask(
///         &self,
///         to: MemberId,
///         request: Request,
///     ) -> Result<Answer, Box<dyn Error + Send + Sync>> {
///         // As one more message of its own; the other side calls `RaftDriver::answer` with the member that asks.
///         send(to, request).await
///     }
/// }
///
/// fn adopt<C: RaftTypeConfig<NodeId = u64>>(raft: Raft<C>, election: &Election) -> RaftDriver<C> {
///     let members: BTreeMap<_, _> = (1..=5).map(|id| (MemberId::new(id), u64::from(id))).collect();
///     let me = MemberId::new(1);
///     RaftDriver::start(raft, election, me, members, MyRpc, DriverConfig::default()).unwrap()
/// }
///
/// async fn write<C>(raft: &Raft<C>, driver: &RaftDriver<C>, command: C::D)
/// where
///     C: RaftTypeConfig<Responder = openraft::impls::OneshotResponder<C>>,
/// {
///     let pass = driver.gate().enter().await;
///     let written = raft.client_write(command).await;
///     drop(pass);
///     // If another leads by now, `written` says who (ForwardToLeader): send it there.
///     # let _ = written;
/// }
/// ```
pub struct RaftDriver<C: RaftTypeConfig> {
    shared: Arc<Shared<C>>,
    task: JoinHandle<()>,
}

impl<C: RaftTypeConfig> RaftDriver<C> {
    /// Starts to drive, on the current tokio runtime. `members` are all members of the election's group, each with
    /// its node id in Raft; members that Raft does not know (yet) do no harm.
    pub fn start<M: Messenger>(
        raft: Raft<C>,
        election: &Election,
        me: MemberId,
        members: BTreeMap<MemberId, C::NodeId>,
        messenger: M,
        config: DriverConfig,
    ) -> Result<Self, NotDriven> {
        if !members.contains_key(&me) {
            return Err(NotDriven::NotAMember(me));
        }
        for (member, node) in &members {
            if let Some((other, _)) =
                members.iter().find(|(id, other)| *id > member && *other == node)
            {
                return Err(NotDriven::SameNode(*member, *other));
            }
        }
        let clock = Clock::start();
        let shared = Arc::new(Shared {
            node: Node::new(raft, me, members, clock),
            gate: Gate::default(),
            config,
            clock,
            watchdog: Mutex::new(Watchdog::new(config.patience, clock.now())),
            latest: AtomicU64::new(0),
            observer: election.observer(),
            status: watch::Sender::new(DriverStatus::default()),
        });
        let task = tokio::spawn(Directing::new(shared.clone(), election, messenger).run());
        Ok(RaftDriver { shared, task })
    }

    /// Where writes pass before they are given to Raft.
    pub fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Answers what another member's driver asks. `from` is the member that asks, and the service's RPC must have made
    /// sure of that. What it asks is done only if this member's own election names it as the leader of that term; a
    /// term that the election has not heard of is waited for, for half of
    /// [`answer_within`](DriverConfig::answer_within), and then refused.
    pub async fn answer(&self, from: MemberId, request: Request) -> Answer {
        self.shared.answer(from, request).await
    }

    /// Waits until it drives no more, and says why.
    pub async fn ended(&self) -> Ended {
        let mut status = self.status();
        let ended = status.wait_for(|status| status.ended.is_some()).await;
        ended.ok().and_then(|status| status.ended).unwrap_or(Ended::RaftDriver)
    }

    /// What it does, to watch.
    pub fn status(&self) -> watch::Receiver<DriverStatus> {
        self.shared.status.subscribe()
    }

    /// How far this member is, as it would tell another.
    pub fn report(&self) -> Report {
        self.shared.node.report()
    }
}

impl<C: RaftTypeConfig> Drop for RaftDriver<C> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the driver's task shares with the handles that answer for it.
struct Shared<C: RaftTypeConfig> {
    node: Node<C>,
    gate: Gate,
    config: DriverConfig,
    clock: Clock,
    watchdog: Mutex<Watchdog>,
    /// The highest term of a mandate that anything was asked under.
    latest: AtomicU64,
    observer: Observer,
    status: watch::Sender<DriverStatus>,
}

impl<C: RaftTypeConfig> Shared<C> {
    async fn answer(self: &Arc<Self>, from: MemberId, request: Request) -> Answer {
        if self.node.failure().is_some() {
            return Answer::Refused(Refusal::Stopped);
        }
        let wait = self.config.answer_within / 2;
        if let Err(refusal) = authority::of(&self.observer, from, request.term, wait).await {
            return Answer::Refused(refusal);
        }
        let latest = self.latest.fetch_max(request.term, Ordering::AcqRel);
        if request.term < latest {
            return Answer::Refused(Refusal::Superseded { term: latest });
        }
        match request.order {
            Order::Report { led } => {
                if led {
                    self.led();
                }
                Answer::Report(self.node.report())
            }
            Order::Release { to } => done(self.node.release(to).await),
            Order::Elect => done(self.node.elect().await),
            Order::StandAside { to } => self.stand_aside(to).await,
        }
    }

    /// Raft is led, says who directs it.
    fn led(&self) {
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner).led(self.clock.now());
    }

    fn watchdog(&self) -> Watchdog {
        *self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stand_aside(self: &Arc<Self>, to: MemberId) -> Answer {
        if to == self.node.me || self.node.node_of(to).is_none() {
            return Answer::Refused(Refusal::NoSuchMember);
        }
        let Some(led) = self.node.leading_term() else {
            return Answer::Refused(Refusal::NotLeading);
        };
        if self.node.progress(to).is_none() {
            return Answer::Refused(Refusal::NotLeading);
        }
        let wait = self.config.hold / 4;
        let Some(closed) = self.gate.close(wait).await else {
            return Answer::Refused(Refusal::Busy);
        };
        if !self.is_caught_up(to, wait).await {
            return Answer::Refused(Refusal::Busy);
        }
        let released = self.node.release(to).await;
        let shared = self.clone();
        tokio::spawn(async move {
            shared.wait_for(shared.config.hold, || shared.node.is_led_after(led)).await;
            drop(closed);
        });
        done(released)
    }

    /// Waits until a follower has all of this leader's log.
    async fn is_caught_up(&self, follower: MemberId, within: Duration) -> bool {
        let is_there = || self.node.progress(follower).is_none_or(|(theirs, ours)| theirs >= ours);
        self.wait_for(within, is_there).await && self.node.progress(follower).is_some()
    }

    /// Waits until something holds of Raft, by looking whenever Raft has something new.
    async fn wait_for(&self, within: Duration, holds: impl Fn() -> bool) -> bool {
        let mut metrics = self.node.raft.metrics();
        let waiting = async {
            while !holds() {
                if metrics.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        timeout(within, waiting).await.unwrap_or(false)
    }
}

fn done<E>(result: Result<(), E>) -> Answer {
    match result {
        Ok(()) => Answer::Done,
        Err(_) => Answer::Refused(Refusal::Stopped),
    }
}
