//! The simulation itself: hosts, network, faults, and one queue of what is to happen.
//!
//! [`World`] is the driver of every machine in it. It keeps the driver's contract to the letter
//! (effects in order, nothing past a write that is not durable, what has arrived before what is
//! due) and is as unkind as the contract allows: wake-ups come late, a process that was paused
//! finds its mail in a heap or lost, and a crash may fall into a write.

use core::time::Duration;

use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::Effect;
use mandate_proto::time::Instant;
use mandate_proto::wire;

use crate::clock::HostClocks;
use crate::fault::{DiskFate, Fault};
use crate::host::{Activity, Host, INBOX, Wake, host_of, member};
use crate::link::LinkModel;
use crate::network::{HostIndex, Network};
use crate::queue::Queue;
use crate::random::{Random, Stream};
use crate::storm::Happening;
use crate::subject::{Boot, Moment, Observation, SimulationObserver, Subject};
use crate::time::SimTime;
use crate::verdict::{Outcome, Violation};

/// What the hosts are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machinery {
    /// A wake-up comes up to this much late.
    pub lateness: Duration,
    /// A write takes up to this long to become durable.
    pub write_time: Duration,
}

impl Machinery {
    /// Wake-ups on time, writes at once.
    pub const IDEAL: Machinery = Machinery { lateness: Duration::ZERO, write_time: Duration::ZERO };
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries, wake-ups, writes and faults.
    pub events: u64,
    /// Messages sent, one for each receiver.
    pub messages: u64,
}

enum Due<S: Subject> {
    Deliver { to: HostIndex, from: MemberId, message: S::Message },
    Wake { host: HostIndex, incarnation: u32 },
    Written { host: HostIndex, incarnation: u32 },
    Happening(Happening<S::Input>),
}

/// A simulation.
pub struct World<S: Subject, O: SimulationObserver<S>> {
    now: SimTime,
    queue: Queue<Due<S>>,
    hosts: Vec<Host<S>>,
    network: Network,
    machinery: Machinery,
    /// Disks acknowledge what they have not written: a bug put in on purpose.
    disks_lie: bool,
    /// How long applications take at most to do what they are asked for; `None`: they refuse.
    willing: Option<Duration>,
    chance: Random,
    weather: Random,
    counts: Counts,
    /// Who watches.
    pub observer: O,
}

impl<S: Subject, O: SimulationObserver<S>> World<S, O> {
    /// Hosts with these configurations and clocks, connected by links like `model`. None of them
    /// runs yet: see [`start_all`](Self::start_all).
    pub fn new(
        seed: u64,
        hosts: impl IntoIterator<Item = (S::Config, HostClocks)>,
        model: LinkModel,
        machinery: Machinery,
        observer: O,
    ) -> Self {
        let hosts: Vec<_> =
            hosts.into_iter().map(|(config, clock)| Host::new(config, clock)).collect();
        World {
            now: SimTime::ZERO,
            queue: Queue::default(),
            network: Network::uniform(hosts.len(), model),
            hosts,
            machinery,
            disks_lie: false,
            willing: None,
            chance: Random::new(seed, Stream::Hosts),
            weather: Random::new(seed, Stream::Network),
            counts: Counts::default(),
            observer,
        }
    }

    /// Has all disks acknowledge writes before they are durable, and lose those with a crash: a bug, to see that it is noticed.
    pub(crate) fn acknowledge_early(&mut self) {
        self.disks_lie = true;
    }

    /// From now on applications do what they are asked for, and take up to so long; or refuse.
    pub(crate) fn set_willing(&mut self, within: Option<Duration>) {
        self.willing = within;
    }

    /// Starts every process, now.
    pub fn start_all(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
        }
    }

    /// True time.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What came of a run, by what was counted here and what its scenario found.
    pub(crate) fn outcome(
        &self,
        verdict: Result<(), Violation>,
        reigns: u64,
        agreement: f64,
    ) -> Outcome {
        Outcome {
            verdict,
            events: self.counts.events,
            messages: self.counts.messages,
            simulated: self.now.since_start(),
            reigns,
            agreement,
        }
    }

    /// How many hosts there are.
    pub fn size(&self) -> usize {
        self.hosts.len()
    }

    /// The machine on a host, unless it is down.
    pub fn machine(&self, host: HostIndex) -> Option<&S> {
        self.hosts[host].machine.as_ref()
    }

    /// Whether the process on a host is up and runs.
    pub fn runs(&self, host: HostIndex) -> bool {
        self.hosts[host].machine.is_some() && self.hosts[host].activity == Activity::Runs
    }

    /// Which incarnation of a process this is: another number after each start and each crash.
    pub fn life(&self, host: HostIndex) -> u32 {
        self.hosts[host].incarnation
    }

    /// When a host's monotonic clock, running on as it does, reads `instant`.
    pub fn when(&self, host: HostIndex, instant: Instant) -> SimTime {
        self.hosts[host].clock.when(instant)
    }

    /// What a host's monotonic clock reads.
    pub fn local_time(&self, host: HostIndex) -> Instant {
        self.hosts[host].clock.read(self.now)
    }

    /// Replaces one link.
    pub fn set_link(&mut self, from: HostIndex, to: HostIndex, model: LinkModel) {
        self.network.set(from, to, model);
    }

    /// The links.
    pub(crate) fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// When the last message that is under way will have arrived.
    pub fn last_arrival(&self) -> SimTime {
        let deliveries = self.queue.last_time(|event| matches!(event, Due::Deliver { .. }));
        deliveries.unwrap_or(self.now).max(self.now)
    }

    /// Schedules a fault; one that is due already happens with the next step.
    pub fn schedule(&mut self, at: SimTime, fault: Fault) {
        self.schedule_happening(at, Happening::Fault(fault));
    }

    /// Schedules an input of the application's; lost if the process is down or paused then.
    pub fn schedule_input(&mut self, at: SimTime, host: HostIndex, input: S::Input) {
        self.schedule_happening(at, Happening::Tell(host, input));
    }

    pub(crate) fn schedule_happening(&mut self, at: SimTime, happening: Happening<S::Input>) {
        self.queue.push(at, Due::Happening(happening));
    }

    /// Lets something happen, now.
    pub(crate) fn happen(&mut self, happening: Happening<S::Input>) {
        match happening {
            Happening::Fault(fault) => self.inject(fault),
            Happening::Tell(host, input) => self.tell(host, input),
        }
    }

    /// Injects a fault, now.
    pub fn inject(&mut self, fault: Fault) {
        self.counts.events += 1;
        self.apply(fault);
    }

    /// Gives a machine an input of the application's, now; lost if it is down or paused.
    pub fn tell(&mut self, host: HostIndex, input: S::Input) {
        if self.runs(host) {
            self.counts.events += 1;
            let held = self.held(host);
            self.watch(host, &Observation::Given { input: &input, held });
            self.handle(host, input);
            let held = self.held(host);
            self.watch(host, &Observation::Taken { held });
            self.settle(host);
        }
    }

    fn held(&self, host: HostIndex) -> Option<Term> {
        self.machine(host)?.held(self.local_time(host))
    }

    /// Runs until true time is `until`, or until the observer has seen enough.
    pub fn run_until(&mut self, until: SimTime) {
        while self.step(until) {}
    }

    /// Lets the next thing happen that is due by `until`; false if there is none, or if the
    /// observer has seen enough.
    pub fn step(&mut self, until: SimTime) -> bool {
        if self.observer.is_done() {
            return false;
        }
        if self.queue.next_time().is_none_or(|at| at > until) {
            self.now = self.now.max(until);
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        match event {
            Due::Deliver { to, from, message } => self.deliver(to, from, message),
            Due::Wake { host, incarnation } => self.wake(host, incarnation, at),
            Due::Written { host, incarnation } => self.written(host, incarnation),
            Due::Happening(happening) => self.happen(happening),
        }
        true
    }

    fn deliver(&mut self, to: HostIndex, from: MemberId, message: S::Message) {
        let host = &mut self.hosts[to];
        if host.machine.is_none() {
            return;
        }
        match host.activity {
            Activity::Runs => {
                self.accept(to, from, message);
                self.settle(to);
            }
            Activity::Paused if host.inbox.len() < INBOX => host.inbox.push_back((from, message)),
            Activity::Paused | Activity::Suspended => {}
        }
    }

    fn accept(&mut self, to: HostIndex, from: MemberId, message: S::Message) {
        let link = (host_of(from), to);
        let Some(message) = self.conveyed(link, message) else { return };
        self.counts.events += 1;
        self.watch(to, &Observation::Delivered { from, message: &message });
        self.handle(to, S::received(from, message));
    }

    /// What is left of a message on the link between two hosts, by the versions that those speak whose processes are up.
    fn conveyed(
        &self,
        (from, to): (HostIndex, HostIndex),
        message: S::Message,
    ) -> Option<S::Message> {
        let up = [from, to].into_iter().filter_map(|host| self.hosts[host].machine.as_ref());
        let (mut oldest, mut version) = (wire::OLDEST, wire::VERSION);
        for (since, newest) in up.map(S::speaks) {
            (oldest, version) = (oldest.max(since), version.min(newest));
        }
        match version {
            _ if version < oldest => None,
            wire::VERSION => Some(message),
            version => S::said_in(version, message),
        }
    }

    fn handle(&mut self, to: HostIndex, input: S::Input) {
        let now = self.now;
        let host = &mut self.hosts[to];
        if let Some(machine) = &mut host.machine {
            machine.handle(input, host.clock.read(now), &mut host.effects);
        }
    }

    fn wake(&mut self, index: HostIndex, incarnation: u32, at: SimTime) {
        let host = &mut self.hosts[index];
        if host.incarnation != incarnation || host.wake.is_none_or(|wake| wake.at != at) {
            return;
        }
        host.wake = None;
        if host.activity == Activity::Runs {
            self.time_out(index);
            self.settle(index);
        }
    }

    /// Tells the machine the time, if it asked to be told by now.
    fn time_out(&mut self, index: HostIndex) {
        let host = &mut self.hosts[index];
        let local = host.clock.read(self.now);
        if let Some(machine) = &mut host.machine
            && machine.deadline().is_some_and(|deadline| deadline <= local)
        {
            self.counts.events += 1;
            machine.handle_timeout(local, &mut host.effects);
            let next = machine.deadline();
            assert!(
                next > Some(local) || next.is_none(),
                "a deadline that is not dealt with: {next:?}"
            );
        }
    }

    fn written(&mut self, index: HostIndex, incarnation: u32) {
        let host = &mut self.hosts[index];
        if host.incarnation != incarnation {
            return;
        }
        self.counts.events += 1;
        if let Some(stable) = host.unwritten.take() {
            self.watch(index, &Observation::Durable(&stable));
            self.hosts[index].store(stable);
        } else if let Some(stable) = host.writing.take() {
            self.watch(index, &Observation::Durable(&stable));
            self.hosts[index].store(stable);
            let host = &mut self.hosts[index];
            let local = host.clock.read(self.now);
            if let Some(machine) = &mut host.machine {
                machine.persisted(local);
            }
        }
        self.settle(index);
    }

    /// Carries out what the machine asked for, and schedules its next wake-up.
    fn settle(&mut self, index: HostIndex) {
        if self.hosts[index].activity != Activity::Runs {
            return;
        }
        while self.hosts[index].writing.is_none() {
            let Some(effect) = self.hosts[index].effects.pop() else { break };
            match effect {
                Effect::Persist(stable) => self.begin_write(index, stable),
                Effect::Send { to, message } => {
                    self.watch(index, &Observation::Sent(&message));
                    self.transmit(index, host_of(to), message);
                }
                Effect::Broadcast(message) => {
                    self.watch(index, &Observation::Sent(&message));
                    for to in (0..self.hosts.len()).filter(|to| *to != index) {
                        self.transmit(index, to, message.clone());
                    }
                }
                Effect::Tell(event) => {
                    self.watch(index, &Observation::Told(&event));
                    self.carry_out(index, &event);
                }
            }
        }
        self.arm(index);
    }

    /// The application does something about an event.
    fn carry_out(&mut self, index: HostIndex, event: &S::Event) {
        let inputs = S::carried_out(event, self.willing.is_some());
        if inputs.is_empty() {
            return;
        }
        let takes = self.chance.between(Duration::ZERO, self.willing.unwrap_or_default());
        for input in inputs {
            self.schedule_input(self.now + takes, index, input);
        }
    }

    fn begin_write(&mut self, index: HostIndex, stable: S::Stable) {
        let takes = self.chance.between(Duration::ZERO, self.machinery.write_time);
        let (now, lies) = (self.now, self.disks_lie);
        let host = &mut self.hosts[index];
        if lies {
            host.unwritten = Some(stable);
            if let Some(machine) = &mut host.machine {
                machine.persisted(host.clock.read(now));
            }
        } else {
            host.writing = Some(stable);
        }
        if host.is_stuck {
            return;
        }
        self.queue
            .push(self.now + takes, Due::Written { host: index, incarnation: host.incarnation });
    }

    fn transmit(&mut self, from: HostIndex, to: HostIndex, message: S::Message) {
        self.counts.messages += 1;
        if to >= self.hosts.len() {
            return;
        }
        let Some(message) = self.conveyed((from, to), message) else { return };
        let [first, again] = self.network.transmit(from, to, self.now, &mut self.weather);
        let from = member(from);
        if let Some(at) = again {
            let message = message.clone();
            self.queue.push(at, Due::Deliver { to, from, message });
        }
        if let Some(at) = first {
            self.queue.push(at, Due::Deliver { to, from, message });
        }
    }

    /// Makes sure that a wake-up is scheduled no later than the machine's deadline. One that is
    /// scheduled too early stays: it will find nothing due and ask again. Most deadlines move
    /// away with every heartbeat, and this way that costs nothing.
    fn arm(&mut self, index: HostIndex) {
        let host = &mut self.hosts[index];
        let Some(deadline) = host.machine.as_ref().and_then(|machine| machine.deadline()) else {
            return;
        };
        let due = host.clock.when(deadline);
        if host.wake.is_some_and(|wake| wake.due <= due) {
            return;
        }
        let lateness = self.chance.between(Duration::ZERO, self.machinery.lateness);
        let at = due.max(self.now) + lateness;
        host.wake = Some(Wake { due, at });
        self.queue.push(at, Due::Wake { host: index, incarnation: host.incarnation });
    }

    fn start(&mut self, index: HostIndex) {
        let lifetime = Incarnation::new(self.chance.number());
        let host = &mut self.hosts[index];
        host.clock.restart(self.now);
        host.incarnation += 1;
        host.goes_by_edited = host.is_edited;
        let boot = Boot {
            id: member(index),
            stored: host.stored.clone(),
            is_new: !host.has_written,
            is_edited: host.is_edited,
            is_changed: host.stored.is_some() && host.stored_edited != host.is_edited,
            wall: host.clock.wall(self.now),
            lifetime,
        };
        self.watch(index, &Observation::Started(&boot));
        let host = &mut self.hosts[index];
        let now = host.clock.read(self.now);
        host.machine = Some(S::boot(&host.config, boot, now, &mut host.effects));
        self.settle(index);
    }

    fn apply(&mut self, fault: Fault) {
        if self.is_moot(&fault) {
            return;
        }
        self.watch(fault_host(&fault), &Observation::Faulted(&fault));
        match fault {
            Fault::Crash(index) => {
                let landed = self.chance.chance(0.5);
                let host = &mut self.hosts[index];
                if let Some(stable) = host.writing.take_if(|_| landed) {
                    host.store(stable);
                }
                host.end_incarnation();
            }
            Fault::Recover { host: index, disk } => {
                match disk {
                    DiskFate::Kept => {}
                    DiskFate::Lost => self.hosts[index].stored = None,
                    DiskFate::Restored(writes) => self.hosts[index].put_back(writes),
                }
                self.start(index);
            }
            Fault::Pause(index) => self.hosts[index].activity = Activity::Paused,
            Fault::Suspend { host: index, clock_stops } => {
                let host = &mut self.hosts[index];
                host.activity = Activity::Suspended;
                if clock_stops {
                    host.clock.stop(self.now);
                }
            }
            Fault::Resume(index) => self.resume(index),
            Fault::Cut { from, to } => self.network.set_cut(from, to, true),
            Fault::Mend { from, to } => self.network.set_cut(from, to, false),
            Fault::Partition(side) => {
                let inside = |host: HostIndex| side & (1 << host) != 0;
                for from in 0..self.hosts.len() {
                    for to in 0..self.hosts.len() {
                        if inside(from) != inside(to) {
                            self.network.set_cut(from, to, true);
                        }
                    }
                }
            }
            Fault::Heal => self.network.mend_all(),
            Fault::StepWall { host, by_nanos } => self.hosts[host].clock.step_wall(by_nanos),
            Fault::SetLinks(model) => self.network.set_all(*model),
            Fault::SetLink { from, to, model } => self.network.set(from, to, *model),
            Fault::StickDisk(index) => self.hosts[index].is_stuck = true,
            Fault::FreeDisk(index) => self.free_disk(index),
            Fault::Edit(index) => self.hosts[index].is_edited = true,
        }
    }

    /// What was asked for while the disk was stuck is written now.
    fn free_disk(&mut self, index: HostIndex) {
        let host = &mut self.hosts[index];
        if !core::mem::take(&mut host.is_stuck) {
            return;
        }
        if host.unwritten.is_some() {
            self.queue.push(self.now, Due::Written { host: index, incarnation: host.incarnation });
        } else if let Some(stable) = host.writing.take() {
            self.begin_write(index, stable);
        }
    }

    /// Whether there is nothing for a fault to befall: faults drawn at random overlap.
    fn is_moot(&self, fault: &Fault) -> bool {
        match fault {
            Fault::Recover { host, .. } => self.hosts[*host].machine.is_some(),
            Fault::Crash(host)
            | Fault::Pause(host)
            | Fault::Resume(host)
            | Fault::Suspend { host, .. } => self.hosts[*host].machine.is_none(),
            _ => false,
        }
    }

    fn resume(&mut self, index: HostIndex) {
        let host = &mut self.hosts[index];
        host.clock.go_on(self.now);
        host.activity = Activity::Runs;
        // What was scheduled meanwhile went by unheeded.
        host.wake = None;
        while let Some((from, message)) = self.hosts[index].inbox.pop_front() {
            self.accept(index, from, message);
        }
        self.time_out(index);
        self.settle(index);
    }

    fn watch(&mut self, host: HostIndex, what: &Observation<'_, S>) {
        let local = self.hosts[host].clock.read(self.now);
        self.observer.observe(Moment { now: self.now, host, local }, what);
    }
}

fn fault_host(fault: &Fault) -> HostIndex {
    match fault {
        Fault::Crash(host)
        | Fault::Pause(host)
        | Fault::Resume(host)
        | Fault::Recover { host, .. }
        | Fault::Suspend { host, .. }
        | Fault::StickDisk(host)
        | Fault::FreeDisk(host)
        | Fault::Edit(host)
        | Fault::StepWall { host, .. } => *host,
        Fault::Cut { from, .. } | Fault::Mend { from, .. } | Fault::SetLink { from, .. } => *from,
        Fault::Partition(_) | Fault::Heal | Fault::SetLinks(_) => 0,
    }
}
