//! The installation with leases, and a clock that all members read: at no instant do the mandates
//! of two members hold.

use core::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{Boot, Input, Message, Promised, Stored};
use mandate_proto::time::Instant;
use stateright::{Model, Property};

use crate::group::{Group, Reduction};
use crate::host::{Asked, Disk, Host, Writes, ids, lifetime};
use crate::keyed::Keyed;
use crate::memo::{Known, Memo};
use crate::network::Envelope;
use crate::properties;
use crate::timed::{TICK, Timed};

/// How far the model goes. Messages may be lost, repeated and overtaken without bound, and timers
/// may be late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How often the clock ticks.
    pub(crate) ticks: u32,
    /// How often a member is told to claim, in all: the first two members only.
    pub(crate) claims: u8,
    /// How often members crash, in all: such as have promised something, or are about to.
    pub(crate) crashes: u8,
    /// How many of these crashes take the disk along.
    pub(crate) losses: u8,
    /// How often a member resigns, or hands over.
    pub(crate) resignations: u8,
    /// How often a timer is noticed.
    pub(crate) timeouts: u8,
}

/// Bugs to put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A restarted member promises at once.
    LeaseNotWaitedOut,
    /// A leader counts its deadline from the answer, and not from when it asked.
    DeadlineFromReply,
    /// A member that has lost its disk votes at once.
    VoteWithoutDisk,
    /// Who gives a term back frees those who have promised it to another.
    ReleaseFreesAnyone,
    /// A restarted leader does not wait for what it promised itself.
    OwnPromiseForgotten,
}

/// What members make of an empty disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disks {
    /// That it was lost.
    Lost,
    /// They find out by themselves whether it was lost, in a group that runs.
    Unsure,
}

/// The model.
pub(crate) struct Leased {
    bounds: Bounds,
    disks: Disks,
    mutant: Option<Mutant>,
    reduction: Reduction,
    memo: Memo<Timed, Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    group: Group<Timed, Message>,
    tick: u32,
    claims: u8,
    resignations: u8,
    timeouts: u8,
    /// What acts on mandates of former incarnations, and until when.
    orphans: Vec<(MemberId, Instant)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time passes.
    Tick,
    /// A member was selected.
    Claim(MemberId),
    /// It gives back what it holds or claims.
    Resign(MemberId),
    /// It hands over.
    Transfer(MemberId, MemberId),
    /// A message arrives.
    Deliver(Keyed<Envelope<Message>>),
    /// A member notices what is due.
    TimeOut(MemberId),
    /// A write is durable.
    Land(MemberId),
    /// A member crashes and starts again.
    Restart(MemberId, Disk),
}

impl State {
    fn now(&self) -> Instant {
        at(self.tick)
    }

    /// What the properties see, unless a member waits for its disk.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        (!self.group.is_writing()).then(|| self.group.visible(&(self.tick, &self.orphans)))
    }

    fn one_mandate_at_a_time(&self) -> bool {
        let holders = ids().into_iter().filter(|id| self.group.process(*id).holds(self.now()));
        holders.count() + self.orphans.len() <= 1
    }

    /// A member crashes: what acts on its mandate does so until the deadline.
    fn orphan(&mut self, id: MemberId) {
        let now = self.now();
        self.orphans.extend(self.group.process(id).acts_until(now).map(|until| (id, until)));
    }
}

impl Leased {
    pub(crate) fn new(bounds: Bounds, mutant: Option<Mutant>) -> Self {
        let (disks, reduction) = (Disks::Lost, Reduction::Sound);
        Leased { bounds, disks, mutant, reduction, memo: Memo::default() }
    }

    /// The same with members that make this of an empty disk.
    pub(crate) fn with_disks(self, disks: Disks) -> Self {
        Leased { disks, ..self }
    }

    /// The same with all states.
    pub(crate) fn unreduced(self) -> Self {
        Leased { reduction: Reduction::None, ..self }
    }

    fn start(
        &self,
        id: MemberId,
        mut boot: Boot,
        now: Instant,
        asked: &mut Asked<Message>,
    ) -> Timed {
        // Clocks say nothing of terms: that nothing needs them unless a quorum of disks is lost is what is shown.
        boot.auto = (self.disks != Disks::Lost).then_some(Term::NONE);
        let forget = |stored: &mut Stored| stored.promised.lease = Duration::ZERO;
        match self.mutant {
            Some(Mutant::LeaseNotWaitedOut) => {
                boot.stored.as_mut().map(forget);
            }
            Some(Mutant::VoteWithoutDisk) => {
                boot.stored = boot.stored.or(Some(Promised::ADMITTED.into()));
            }
            Some(Mutant::OwnPromiseForgotten) => {
                boot.stored.as_mut().filter(|stored| stored.promised.to == Some(id)).map(forget);
            }
            _ => {}
        }
        Timed::start(id, boot, self.mutant == Some(Mutant::DeadlineFromReply), now, asked)
    }

    fn writes(&self, state: &State) -> Writes {
        let can_crash = state.group.crashes() < self.bounds.crashes;
        match self.reduction {
            Reduction::Sound if !can_crash => Writes::AreInstant,
            _ => Writes::Take,
        }
    }

    /// What a member may do that no message asks for.
    fn moves_of(&self, id: MemberId, state: &State, actions: &mut Vec<Action>) {
        let (process, [first, second, _]) = (state.group.process(id), ids());
        let is_claiming = process.is_claiming();
        if state.timeouts < self.bounds.timeouts && process.is_due(state.now()) {
            actions.push(Action::TimeOut(id));
        }
        let is_claimant = [first, second].contains(&id);
        if state.claims < self.bounds.claims && is_claimant && !is_claiming {
            actions.push(Action::Claim(id));
        }
        if state.resignations < self.bounds.resignations && is_claiming {
            actions.push(Action::Resign(id));
            if process.holds(state.now()) {
                let others = ids().into_iter().filter(|to| *to != id);
                actions.extend(others.map(|to| Action::Transfer(id, to)));
            }
        }
    }

    fn deliver(
        &self,
        (tick, writes): (u32, Writes),
        host: &Keyed<Host<Timed, Message>>,
        envelope: &Keyed<Envelope<Message>>,
    ) -> Known<Timed, Message> {
        let when = u64::from(tick) << 8 | writes as u64;
        self.memo.outcome(host, envelope, when, || {
            let Envelope { mut from, mut message, .. } = (**envelope).clone();
            if self.mutant == Some(Mutant::ReleaseFreesAnyone) {
                (from, message) = disguise(&host.process, from, message);
            }
            let input = Input::Received { from, message };
            host.step(writes, |process, asked| process.handle(input, at(tick), asked))
        })
    }
}

/// Has a release look as if the member that was promised the term had sent it (in its first incarnation: that
/// mutant is run without crashes).
fn disguise(process: &Timed, from: MemberId, message: Message) -> (MemberId, Message) {
    match message {
        Message::Release { term, next, .. } => {
            process.promised(term).map_or((from, message), |to| {
                (to, Message::Release { term, life: lifetime(to, 0), next })
            })
        }
        _ => (from, message),
    }
}

fn at(tick: u32) -> Instant {
    Instant::ORIGIN + TICK.saturating_mul(tick)
}

impl Model for Leased {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let group = Group::new(|id, boot, asked| self.start(id, boot, Instant::ORIGIN, asked));
        let orphans = Vec::new();
        vec![State { group, tick: 0, claims: 0, resignations: 0, timeouts: 0, orphans }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let group = &state.group;
        let movers = group.movers(self.reduction);
        let when = (state.tick, self.writes(state));
        let arrives = |envelope: &&Keyed<Envelope<Message>>| {
            let to = envelope.to;
            // To deliver what changes nothing is to lose it.
            movers.contains(&to)
                && group.is_changed_by(to, self.deliver(when, group.host(to), envelope))
        };
        actions.extend(group.sent().iter().filter(arrives).cloned().map(Action::Deliver));
        actions.extend(group.writing().map(Action::Land));
        if group.crashes() < self.bounds.crashes {
            let crash = |disk| move |id| Action::Restart(id, disk);
            actions.extend(group.fragile(self.reduction).map(crash(Disk::Kept)));
            if group.losses() < self.bounds.losses {
                actions.extend(group.fragile(self.reduction).map(crash(Disk::Lost)));
            }
        }
        let waits = self.reduction == Reduction::Sound && group.is_writing();
        if state.tick < self.bounds.ticks && !waits {
            actions.push(Action::Tick);
        }
        for id in movers {
            self.moves_of(id, state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let (writes, now) = (self.writes(last), last.now());
        let tell = |group: &mut Group<Timed, Message>, id, input| {
            group.step(id, writes, |process, asked| process.handle(input, now, asked));
        };
        match action {
            Action::Tick => {
                next.tick += 1;
                let now = next.now();
                next.orphans.retain(|(_, until)| now < *until);
            }
            Action::Claim(id) => {
                next.claims += 1;
                tell(&mut next.group, id, Input::Claim { epoch: Term::new(1) });
            }
            Action::Resign(id) => {
                next.resignations += 1;
                tell(&mut next.group, id, Input::Resign);
            }
            Action::Transfer(id, to) => {
                next.resignations += 1;
                tell(&mut next.group, id, Input::Transfer { to });
            }
            Action::Deliver(envelope) => {
                let outcome =
                    self.deliver((last.tick, writes), last.group.host(envelope.to), &envelope)?;
                next.group.apply(envelope.to, &outcome);
            }
            Action::TimeOut(id) => {
                next.timeouts += 1;
                next.group.step(id, writes, |process, asked| process.time_out(now, asked));
            }
            Action::Land(id) => next.group.land(id),
            Action::Restart(id, disk) => {
                next.orphan(id);
                let start = |id, boot, asked: &mut _| self.start(id, boot, now, asked);
                next.group.restart(id, disk, writes, start);
            }
        }
        if self.reduction == Reduction::Sound {
            let when = (next.tick, self.writes(&next));
            let before = (next.tick == last.tick).then_some(&last.group);
            next.group.saturate(before, |host, envelope| self.deliver(when, host, envelope));
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(properties::ONE_MANDATE, |_, state: &State| {
                state.one_mandate_at_a_time()
            }),
            Property::always(properties::ONE_LEADER, |_, state: &State| {
                state.group.one_leader_per_term()
            }),
            Property::always(properties::TERMS_RISE, |_, state: &State| state.group.terms_rise()),
            Property::sometimes(properties::LED, |_, state: &State| state.group.has_led()),
            Property::sometimes(properties::SUCCEEDED, |_, state: &State| {
                state.group.has_been_succeeded()
            }),
        ]
    }
}
