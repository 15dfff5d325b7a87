//! Selection and installation together, without leases: one leader per term, whatever the network
//! and the timers do.

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Boot, Promised};
use stateright::{Model, Property};

use crate::group::{Group, Reduction};
use crate::host::{Disk, Host, Writes};
use crate::joined::{Joined, Wire};
use crate::keyed::Keyed;
use crate::memo::{Known, Memo};
use crate::network::Envelope;
use crate::properties;

/// How far the model goes. Messages may be lost, repeated and overtaken without bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How often members crash, in all: such as have promised something, or are about to. (Others
    /// forget their part in the selection only, of which nothing is demanded.)
    pub(crate) crashes: u8,
    /// How often members that take part in no election open one, in all.
    pub(crate) elections: u8,
    /// How often a timer of a selection runs out, in all: T is over, or it is time to try again.
    pub(crate) waits: u8,
    /// How often those of an installation do: a claim is given up, or repeated.
    pub(crate) patience: u8,
}

/// Bugs to put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Promises are not on disk after a crash.
    PromiseNotDurable,
    /// What follows a `Persist` is done before it is durable.
    SentBeforeDurable,
}

/// The model.
pub(crate) struct Fenced {
    bounds: Bounds,
    mutant: Option<Mutant>,
    reduction: Reduction,
    memo: Memo<Joined, Wire>,
}

/// The group, and how much of the bounds is used up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    group: Group<Joined, Wire>,
    elections: u8,
    waits: u8,
    patience: u8,
}

impl State {
    /// What the properties see, unless a member waits for its disk.
    pub(crate) fn at_rest(&self) -> Option<u64> {
        (!self.group.is_writing()).then(|| self.group.visible(&()))
    }
}

/// What may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A member misses its leader.
    Elect(MemberId),
    /// A message arrives.
    Deliver(Keyed<Envelope<Wire>>),
    /// The selection has waited long enough.
    EndWait(MemberId),
    /// The installation has.
    EndPatience(MemberId),
    /// A write is durable.
    Land(MemberId),
    /// A member crashes and starts again.
    Restart(MemberId),
}

impl Fenced {
    pub(crate) fn new(bounds: Bounds, mutant: Option<Mutant>) -> Self {
        Fenced { bounds, mutant, reduction: Reduction::Sound, memo: Memo::default() }
    }

    /// The same with all states.
    pub(crate) fn unreduced(self) -> Self {
        Fenced { reduction: Reduction::None, ..self }
    }

    fn start(&self, id: MemberId, mut boot: Boot) -> Joined {
        if self.mutant == Some(Mutant::PromiseNotDurable) {
            boot.stored = Some(Promised::ADMITTED.into());
        }
        Joined::start(id, boot)
    }

    fn writes(&self, state: &State) -> Writes {
        let can_crash = state.group.crashes() < self.bounds.crashes;
        match (self.mutant, self.reduction) {
            (_, Reduction::Sound) if !can_crash => Writes::AreInstant,
            (Some(Mutant::SentBeforeDurable), _) => Writes::ComeLast,
            _ => Writes::Take,
        }
    }

    fn deliver(
        &self,
        writes: Writes,
        host: &Keyed<Host<Joined, Wire>>,
        envelope: &Keyed<Envelope<Wire>>,
    ) -> Known<Joined, Wire> {
        self.memo.outcome(host, envelope, writes as u64, || {
            let Envelope { from, message, .. } = &**envelope;
            host.step(writes, |process, asked| process.receive(*from, message, asked))
        })
    }

    /// Goes on to a state that can do all that this one can, and of which there are fewer.
    fn reduce(&self, before: &State, state: &mut State) {
        if self.reduction == Reduction::None {
            return;
        }
        let writes = self.writes(state);
        let deliver = |host: &_, envelope: &_| self.deliver(writes, host, envelope);
        state.group.saturate(Some(&before.group), deliver);
        // Who has selected only votes from then on, and has answered all that it was sent.
        let is_settled = state.elections == self.bounds.elections
            && state.group.crashes() == self.bounds.crashes;
        if is_settled {
            state.group.forget(|process, envelope| {
                let is_selection = matches!(envelope.message, Wire::Selection(_));
                !(is_selection && process.has_selected())
            });
        }
    }
}

impl Model for Fenced {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let group = Group::new(|id, boot, _| self.start(id, boot));
        vec![State { group, elections: 0, waits: 0, patience: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let group = &state.group;
        let movers = group.movers(self.reduction);
        let writes = self.writes(state);
        let arrives = |envelope: &&Keyed<Envelope<Wire>>| {
            let to = envelope.to;
            // To deliver what changes nothing is to lose it.
            movers.contains(&to)
                && group.is_changed_by(to, self.deliver(writes, group.host(to), envelope))
        };
        actions.extend(group.sent().iter().filter(arrives).cloned().map(Action::Deliver));
        actions.extend(group.writing().map(Action::Land));
        if group.crashes() < self.bounds.crashes {
            actions.extend(group.fragile(self.reduction).map(Action::Restart));
        }
        for id in movers {
            let process = group.process(id);
            if state.elections < self.bounds.elections && !process.is_selecting() {
                actions.push(Action::Elect(id));
            }
            if state.waits < self.bounds.waits && process.is_selecting() {
                actions.push(Action::EndWait(id));
            }
            if state.patience < self.bounds.patience && process.is_claiming() {
                actions.push(Action::EndPatience(id));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut next = last.clone();
        let writes = self.writes(last);
        let group = &mut next.group;
        match action {
            Action::Elect(id) => {
                next.elections += 1;
                group.step(id, writes, Joined::elect);
            }
            Action::Deliver(envelope) => {
                let outcome = self.deliver(writes, group.host(envelope.to), &envelope)?;
                group.apply(envelope.to, &outcome);
            }
            Action::EndWait(id) => {
                next.waits += 1;
                group.step(id, writes, Joined::end_wait);
            }
            Action::EndPatience(id) => {
                next.patience += 1;
                group.step(id, writes, Joined::end_patience);
            }
            Action::Land(id) => group.land(id),
            Action::Restart(id) => {
                group.restart(id, Disk::Kept, writes, |id, boot, _| self.start(id, boot))
            }
        }
        self.reduce(last, &mut next);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
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
