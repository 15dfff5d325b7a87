//! The thread that carries packets.
//!
//! It owns all devices and links, so no packet waits for a lock. It sleeps in `epoll_pwait2` until a device has a
//! packet, an order comes, or the earliest packet of all links is due: nothing spins, and an idle network costs
//! nothing. A heap has the heads of the links' queues only, one entry a link.
//!
//! Real-time priority decides precision. A thread of the ordinary kind is woken late whenever others are busy, by
//! milliseconds; with `SCHED_FIFO` it is woken at once. It uses little of its core, and the kernel keeps a
//! twentieth of the time for others whatever happens; still, the programs that are tested should not be real-time as
//! well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mandate_sim::random::{Random, Stream};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tun_rs::SyncDevice;

use crate::wan::fault::Change;
use crate::wan::link::{EmulatedLink, Impairment, PacketCounts};
use crate::wan::plan::NetworkPlan;

/// Packets taken from one device before others have their turn.
const BATCH: usize = 64;

/// Larger than any packet of [`MTU`](crate::wan::plan::MTU).
const BUFFER: usize = 2048;

/// Low among real-time priorities: the kernel's own threads come first.
pub(crate) const PRIORITY: u8 = 10;

/// What is taken off each delay: the time that a packet needs through two devices and one wake-up. Measured with
/// `mandate lab wan check`.
const COST: Duration = Duration::from_micros(80);

/// What went over the network so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TrafficTotals {
    /// Each directed link that carried something or is impaired.
    pub links: Vec<LinkFigures>,
    /// Packets for none of the hosts: multicast, and addresses that do not exist.
    pub strays: u64,
    /// Packets that a device did not take.
    pub refused: u64,
}

/// One directed link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkFigures {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// What became of packets.
    pub counts: PacketCounts,
    /// What is wrong with it.
    pub impairment: Impairment,
}

/// Gives the calling thread a real-time priority, below 100; whether that was allowed. Called from inside: a
/// priority that is inherited may be dropped on the way.
pub(crate) fn become_real_time(priority: u8) -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let Ok(priority) = priority.try_into() else { return false };
    let priority = ThreadPriority::Crossplatform(priority);
    set_thread_priority_and_policy(thread_native_id(), priority, policy).is_ok()
}

enum Order {
    Impair { pairs: Vec<(usize, usize)>, change: Change, done: Sender<()> },
    Heal { done: Sender<()> },
    Count { answer: Sender<TrafficTotals> },
    Stop,
}

/// The thread, from outside.
#[derive(Debug)]
pub struct Switch {
    orders: Sender<Order>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    thread_id: i32,
    is_real_time: bool,
}

impl Switch {
    /// Starts it. Devices are in the order of the plan's hosts, and do not block.
    pub fn start(plan: &NetworkPlan, devices: Vec<SyncDevice>, seed: u64) -> io::Result<Self> {
        let (orders, received) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let carrier = Carrier::new(plan.clone(), devices, bell.clone(), received, seed)?;
        let (started, start) = channel();
        let thread = std::thread::Builder::new().name("wan".into()).spawn(move || {
            let is_real_time = become_real_time(PRIORITY);
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            let _ = started.send((id, is_real_time));
            carrier.run();
        })?;
        let (thread_id, is_real_time) =
            start.recv().map_err(|_| io::Error::other("it ended at once"))?;
        Ok(Switch { orders, bell, thread: Some(thread), thread_id, is_real_time })
    }

    fn order(&self, order: Order) {
        // It ends only when told to, by the one who could also give this order.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    /// Changes what is wrong with links; when this returns, it has happened.
    pub(crate) fn impair(&self, pairs: Vec<(usize, usize)>, change: Change) {
        let (done, wait) = channel();
        self.order(Order::Impair { pairs, change, done });
        let _ = wait.recv();
    }

    /// Ends all faults; when this returns, it has happened.
    pub fn heal(&self) {
        let (done, wait) = channel();
        self.order(Order::Heal { done });
        let _ = wait.recv();
    }

    /// What went over the network so far.
    pub fn figures(&self) -> TrafficTotals {
        let (answer, wait) = channel();
        self.order(Order::Count { answer });
        wait.recv().unwrap_or_default()
    }

    /// Processor time of the thread.
    pub fn processor_time(&self) -> Duration {
        let path = format!("/proc/self/task/{}/schedstat", self.thread_id);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let nanos = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        Duration::from_nanos(nanos.unwrap_or_default())
    }

    /// Whether the thread runs with real-time priority.
    pub fn is_real_time(&self) -> bool {
        self.is_real_time
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Carrier {
    plan: NetworkPlan,
    devices: Vec<SyncDevice>,
    links: Vec<EmulatedLink>,
    /// Links that have something under way, by when its first is due, or was before a cut.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Which links are among the heads: each at most once.
    is_head: Vec<bool>,
    epoll: OwnedFd,
    bell: Arc<OwnedFd>,
    orders: Receiver<Order>,
    random: Random,
    origin: Instant,
    strays: u64,
    refused: u64,
}

/// What the bell is registered as; devices are registered by their place.
const BELL: u64 = u64::MAX;

impl Carrier {
    fn new(
        plan: NetworkPlan,
        devices: Vec<SyncDevice>,
        bell: Arc<OwnedFd>,
        orders: Receiver<Order>,
        seed: u64,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (place, device) in (0..).zip(&devices) {
            epoll::add(&epoll, device, EventData::new_u64(place), EventFlags::IN)?;
        }
        epoll::add(&epoll, &*bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let size = devices.len();
        let pairs = (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
        let links: Vec<_> = pairs
            .map(|(from, to)| {
                let mut quality = plan.quality(from, to);
                quality.delay = quality.delay.saturating_sub(COST);
                EmulatedLink::new(quality)
            })
            .collect();
        Ok(Carrier {
            plan,
            devices,
            is_head: vec![false; links.len()],
            links,
            heads: BinaryHeap::new(),
            epoll,
            bell,
            orders,
            random: Random::new(seed, Stream::Network),
            origin: Instant::now(),
            strays: 0,
            refused: 0,
        })
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(self.devices.len() + 1);
        loop {
            events.clear();
            let wait = self.until_due();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                wait.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The descriptor is our own: this cannot happen, and must not become a busy loop.
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    BELL => {
                        if !self.obey() {
                            return;
                        }
                    }
                    place => self.collect(place as usize),
                }
            }
            self.deliver();
        }
    }

    fn until_due(&self) -> Option<Timespec> {
        let Reverse((due, _)) = self.heads.peek()?;
        let wait = Duration::from_nanos(due.saturating_sub(self.now()));
        Some(Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) })
    }

    /// Takes packets from a device.
    fn collect(&mut self, from: usize) {
        let now = self.now();
        let mut buffer = [0; BUFFER];
        for _ in 0..BATCH {
            // Empty, or gone with its namespace: there is nothing to take.
            let Ok(length) = self.devices[from].recv(&mut buffer) else { return };
            let packet = &buffer[..length];
            let Some(to) = self.plan.destination(packet) else {
                self.strays += 1;
                continue;
            };
            let index = from * self.devices.len() + to;
            self.links[index].send(packet, now, &mut self.random);
            self.line_up(index);
        }
    }

    /// Puts a link among the heads if something is under way on it.
    fn line_up(&mut self, index: usize) {
        if let Some(due) = self.links[index].next_due()
            && !self.is_head[index]
        {
            self.is_head[index] = true;
            self.heads.push(Reverse((due, index)));
        }
    }

    /// Hands over what is due.
    fn deliver(&mut self) {
        let now = self.now();
        while let Some(Reverse((due, index))) = self.heads.peek().copied()
            && due <= now
        {
            self.heads.pop();
            self.is_head[index] = false;
            let to = index % self.devices.len();
            let link = &mut self.links[index];
            // After a cut its entry is older than its queue; then nothing, or something later, comes out.
            while let Some(packet) = link.receive(now) {
                if self.devices[to].send(&packet).is_err() {
                    self.refused += 1;
                }
            }
            self.line_up(index);
        }
    }

    /// Carries out orders; whether to go on.
    fn obey(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut count);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Impair { pairs, change, done } => {
                    for (from, to) in pairs {
                        let link = &mut self.links[from * self.devices.len() + to];
                        link.impair(change(link.impairment()));
                    }
                    let _ = done.send(());
                }
                Order::Heal { done } => {
                    self.links.iter_mut().for_each(|link| link.impair(Impairment::default()));
                    let _ = done.send(());
                }
                Order::Count { answer } => {
                    let _ = answer.send(self.figures());
                }
                Order::Stop => return false,
            }
        }
        true
    }

    fn figures(&self) -> TrafficTotals {
        let hosts = self.plan.hosts();
        let links = self.links.iter().enumerate().map(|(index, link)| LinkFigures {
            from: hosts[index / hosts.len()].name.clone(),
            to: hosts[index % hosts.len()].name.clone(),
            counts: link.counts(),
            impairment: link.impairment(),
        });
        let is_worth_it = |link: &LinkFigures| {
            link.counts != PacketCounts::default() || link.impairment != Impairment::default()
        };
        TrafficTotals {
            links: links.filter(is_worth_it).collect(),
            strays: self.strays,
            refused: self.refused,
        }
    }
}
