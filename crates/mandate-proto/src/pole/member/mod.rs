//! A member of a group that elects by score: detection, selection and installation as one machine.
//!
//! - *Detection.* The leader sends heartbeats, and everyone watches them with
//!   [NFD-E](crate::detector::nfd_e). A broken connection, or another member that has lost the
//!   leader, is a hint: it starts a probe, so that the crash of a process on a live host is noticed
//!   in a few round trips. Everyone pings everyone, for round trips and for who answers.
//! - *[Selection](super::selection)*, when the leader is lost: the best score among those that
//!   answer. Terms and epochs are one count.
//! - *[Installation](super::installation)* of the one selected: promises of a quorum. A member
//!   follows a leader whose heartbeats it hears when that term is the highest on its own disk; so
//!   the terms that it sees only rise, also across restarts.
//! - *[Moves]*, where wanted: a leader that is well hands over to one that would serve better.
//!
//! # Guarantees
//!
//! Those of [installation](super::installation#guarantees), by [`Member::mandate`].
//!
//! # When there is a leader
//!
//! If some member exchanges messages with a quorum, in both directions and within the timeout, and
//! processes neither crash nor stall, then a member holds a mandate within [`Config::recovers_within`].
//! That is so under any partial connectivity (chains, one-way cuts): who does not hear a quorum is
//! no candidate, who hears a leader does not take part in elections against it, and a leader that a
//! quorum does not answer gives up. Members that cannot hear the leader stay without one, and
//! disturb nobody. The simulator demands all of this.
//!
//! # The first election
//!
//! A member that starts listens for an existing leader, and waits until it has measured its round
//! trips: until all others have answered a ping, or some time has passed and a score can be
//! computed, or at most [`Config::with_first_wait`]. One that is new waits until all others have answered it, however long that
//! takes. An invitation to an election waits as long as it takes to measure. After that time a
//! figure that the oracle asks for and nobody has told counts as worse than any that is known, instead of keeping
//! the member from being a candidate.
//!
//! # Example
//!
//! A group of one, which is a quorum of itself. A driver sends what is to be sent, writes what is to be written
//! before it does what follows, and calls [`handle_timeout`](Machine::handle_timeout) when
//! [`deadline`](Machine::deadline) has come.
//!
//! ```
//! use std::time::Duration;
//! use mandate_proto::identity::{Incarnation, MemberId};
//! use mandate_proto::machine::{Effects, Machine};
//! use mandate_proto::pole::installation::Boot;
//! use mandate_proto::election::State;
//! use mandate_proto::pole::member::{Config, Member};
//! use mandate_proto::time::Instant;
//!
//! let me = MemberId::new(1);
//! let config = Config::new(me, [me], Duration::from_millis(330), Duration::from_secs(1))
//!     .unwrap()
//!     .with_oracle("latency/10ms, history".parse().unwrap());
//! let boot = Boot { stored: None, is_new: true, is_changed: false, joins: false, auto: None, lifetime: Incarnation::new(7) };
//! let mut effects = Effects::new();
//! let mut member = Member::start(config, boot, Instant::ORIGIN, &mut effects);
//! while member.state() == State::Electing {
//!     let now = member.deadline().unwrap();
//!     member.handle_timeout(now, &mut effects);
//! }
//! let (term, until) = member.mandate(Instant::ORIGIN + Duration::from_secs(4)).unwrap();
//! assert_eq!((term.get(), until.is_some()), (1, true));
//! ```
//!
//! # Bounds
//!
//! Memory: [`MAX_MEMBERS`] entries in each table; nothing grows with what peers send. In steady
//! state: `N-1` heartbeats an interval, `2 N (N-1)` pings and answers each ping period, and with
//! leases `2 (N-1)` renewals and answers each third of a lease. An election: at most `2 N^2 (N-1)`
//! messages of selection per round (`N (N-1)` when all notice at once), `2 (N-1)` of installation for each claim.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::time::Duration;

use super::installation::{
    self, Boot, ConfigId, Installation, MemberChange, NoChange, NoVote, RosterId, WhyNoVote,
};
use super::selection::{self, Selection};
use crate::detector::Label;
use crate::detector::quality::{Detection, Quality, Watched};
use crate::detector::schedule::Schedule;
use crate::election::{Candidacy, Elector, Figures, Lease, NoTransfer, State};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::oracle::{Leniency, NoScore, Occasion, View};
use crate::time::Instant;
use crate::value::{NoPublish, Value};

mod agreement;
mod config;
mod detection;
mod electing;
mod following;
mod handover;
mod installing;
mod interface;
mod moves;
mod pings;
mod record;
mod requests;
mod roster;
mod values;

pub use super::installation::MAX_MEMBERS;
pub use config::{Config, InvalidConfig, MAX_TIME, MIN_TIME};
use following::Following;
pub use interface::{Cause, Effect, Event, Input, Message};
use moves::Mover;
pub use moves::{Advice, Effect as MoveEffect, Moves};
use pings::Pings;
pub use pings::SAMPLES;
use record::Draft;
pub use record::{Handover, Record};
use requests::Requests;
pub use requests::{
    ANSWERED_WITHIN, LeaderAnswer, LeaderRequest, LeaderRequestId, MAX_ASKED, MAX_SERVED,
};
use values::Values;

/// The wait for one that was selected doubles this often at most.
const MAX_DOUBLINGS: u32 = 3;

/// One member.
#[derive(Clone, Debug)]
pub struct Member {
    config: Config,
    figures: Figures,
    phase: Phase,
    started: Instant,
    /// When a quorum was heard last by promises: this member was installed, or it changed the list.
    promised_at: Instant,
    selection: Selection,
    installation: Installation,
    pings: Pings,
    next_ping: Instant,
    schedule: Schedule,
    quality: Quality,
    /// The term of the leader that was last suspected.
    suspected_in: Term,
    /// The highest term of a leader that was followed.
    followed: Term,
    incarnation: Incarnation,
    mover: Option<Mover>,
    /// Who led last.
    former: Option<MemberId>,
    /// Members of our list that have another configuration, and when that was last heard.
    differing: BTreeMap<MemberId, (ConfigId, Instant)>,
    /// Selections in succession whose winner did not come to lead.
    setbacks: u32,
    /// It has resigned, and is no candidate until then.
    abstains_until: Option<Instant>,
    /// A proposal that came before we were ready.
    invitation: Option<(MemberId, selection::Message)>,
    draft: Option<Draft>,
    /// Why the leader of that term hands over, as it has told, and to whom.
    handed: Option<(Term, MemberId, Handover)>,
    values: Values,
    requests: Requests,
    told: State,
    selection_effects: Effects<selection::Effect>,
    installation_effects: Effects<installation::Effect>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Started, and not ready to elect yet; looks again at `next`.
    Waiting { next: Instant },
    /// Selection is under way.
    Electing,
    /// Another was selected, or has been promised, and has until then to be heard.
    Awaiting { leader: MemberId, until: Instant },
    /// We were selected.
    Claiming,
    /// Another leads.
    Following(Box<Following>),
    /// We do.
    Leading { term: Term },
}

impl Member {
    /// Starts a member.
    pub fn start(config: Config, boot: Boot, now: Instant, effects: &mut Effects<Effect>) -> Self {
        let mut queue = Effects::new();
        let incarnation = boot.lifetime;
        let former = boot.stored.as_ref().and_then(|stored| stored.promised.to);
        let installation = Installation::start(config.installation(), boot, now, &mut queue);
        let mut selection = Selection::new(config.selection());
        selection.set_members(installation.roster().voters());
        let others = installation.roster().members().filter(|id| *id != config.me);
        let pings = Pings::new(others, &config, incarnation, now);
        let mut member = Member {
            figures: Figures::default(),
            phase: Phase::Waiting { next: now + config.interval },
            started: now,
            promised_at: now,
            selection,
            installation,
            pings,
            next_ping: now,
            schedule: Schedule::new(Label::default(), config.interval, now),
            quality: Quality::new(config.wanted),
            suspected_in: Term::NONE,
            followed: Term::NONE,
            incarnation,
            mover: config.moves.map(Mover::new),
            former,
            differing: BTreeMap::new(),
            setbacks: 0,
            abstains_until: None,
            invitation: None,
            draft: Some(Draft::new(Cause::Start, None, Term::NONE, now)),
            handed: None,
            values: Values::default(),
            requests: Requests::default(),
            told: State::Electing,
            selection_effects: Effects::new(),
            installation_effects: Effects::new(),
            config,
        };
        member.carry_out_installation(queue, now, effects);
        member.ping(now, effects);
        member
    }

    /// Who leads, as far as this member knows.
    pub fn state(&self) -> State {
        match &self.phase {
            Phase::Following(following) => {
                State::Following { leader: following.leader, term: following.term }
            }
            Phase::Leading { term } => State::Leading { term: *term },
            _ => State::Electing,
        }
    }

    /// The term that this member holds at `now`, and until when it can be sure of it; see
    /// [`Installation::mandate`].
    pub fn mandate(&self, now: Instant) -> Option<(Term, Option<Instant>)> {
        self.installation.mandate(now)
    }

    /// This member's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Members that are suspected to be down.
    pub fn suspected(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.pings.suspected()
    }

    /// How well the leader that is followed is watched, and what was delivered so far.
    pub fn detection(&self, now: Instant) -> Detection {
        let watched = match &self.phase {
            Phase::Following(following) => {
                Some(Watched::new(following.leader, following.detector(), following.link()))
            }
            _ => None,
        };
        self.quality.detection(watched, now)
    }

    /// The highest term that this member has promised.
    pub fn promised_term(&self) -> Term {
        self.installation.promised().term
    }

    /// Whether it has a vote: its disk, or what all others have answered.
    pub fn has_vote(&self) -> bool {
        self.installation.has_vote()
    }

    /// Why it has none, and whose answers are missing.
    pub fn no_vote(&self) -> Option<NoVote> {
        let mut reason = self.installation.no_vote()?;
        if reason.why == WhyNoVote::Disputed {
            reason.awaits = self.differing.keys().copied().collect();
        }
        Some(reason)
    }

    /// Why others have no vote, and by which lists they go, as they have said last.
    pub fn said(&self) -> impl Iterator<Item = (MemberId, Option<WhyNoVote>, RosterId)> + '_ {
        self.pings.said()
    }

    /// What this member knows: round trips, request rates, and what the application told it.
    pub fn view(&self, occasion: Occasion) -> View {
        let own = (self.config.me, self.figures.requests);
        let mut view = View::new(self.config.me, self.roster().voters());
        view.leader = self.former;
        view.occasion = occasion;
        view.round_trips = self.pings.round_trips().collect();
        view.request_rates = self.pings.request_rates().chain([own]).collect();
        view.history = self.figures.history;
        view.preference = self.config.preference;
        view.application = self.figures.application;
        view
    }

    /// What this member is worth as a leader, or why it is no candidate.
    pub fn standing(&self, occasion: Occasion, now: Instant) -> Candidacy {
        if !self.installation.has_vote() {
            return Err(NoScore::NoVote);
        }
        if self.abstains_until.is_some_and(|until| now < until) {
            return Err(NoScore::Resigned);
        }
        // Who has waited for long enough for a figure goes without it: better a leader of unknown
        // worth than none.
        let unknown = now - self.started >= self.config.first_wait;
        let leniency = Leniency { unheard: !self.config.rules.hear_quorum, unknown };
        self.config.oracle.measure_with(&self.view(occasion), leniency)
    }

    /// After a crash the former leader is left out of all scores; if it has only resigned, or came
    /// back, it counts.
    fn occasion(&self) -> Occasion {
        match self.former.is_some_and(|former| self.pings.is_suspected(former)) {
            true => Occasion::AfterCrash,
            false => Occasion::BeforeResignation,
        }
    }

    /// How long one that was selected is awaited: longer each time that none came to lead, and by what its write and ours
    /// may take.
    fn patience(&self) -> Duration {
        if !self.keeps(installation::Safeguard::GrowingPatience) {
            return self.config.patience();
        }
        let doubled = self.config.patience().saturating_mul(1 << self.setbacks.min(MAX_DOUBLINGS));
        doubled + self.installation.write_took().saturating_mul(3)
    }

    fn is_other(&self, id: MemberId) -> bool {
        id != self.config.me && self.roster().has(id)
    }

    fn is_led(&self) -> bool {
        matches!(self.phase, Phase::Following(_) | Phase::Leading { .. })
    }

    fn tell_state(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let state = self.state();
        self.quality.delivered.watch(matches!(state, State::Following { .. }), now);
        if core::mem::replace(&mut self.told, state) != state {
            effects.push(Effect::Tell(Event::Changed(state)));
            self.tell_value_anew(effects);
        }
    }

    fn replan(&mut self, interval: Duration, detect: Duration) {
        if self.config.replan(interval, detect).is_ok() {
            self.schedule.set_interval(interval);
            if let Phase::Following(following) = &mut self.phase {
                following.set_detect(detect);
            }
        }
    }

    fn receive(
        &mut self,
        from: MemberId,
        message: Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if self.is_refused(from, &message, now, effects) {
            return;
        }
        self.witness(from, &message);
        if let Message::Ping { config, .. } | Message::Pong { config, .. } = &message {
            self.pings.goes_by(from, config.roster());
        }
        match message {
            Message::Ping { number, requests, interval, .. } => {
                self.quality.requests.take(from, interval);
                self.receive_ping(from, number, requests, now, effects);
            }
            Message::Pong {
                number, requests, life, no_vote, standing, promised, speaks, ..
            } => {
                let has_vote = no_vote.is_none();
                self.pings.heard(from, requests);
                self.pings.spoke(from, speaks);
                self.compare_promises(from, (number, life), (has_vote, promised), effects);
                if let Some(same_incarnation) = self.pings.same_incarnation(from, number, life) {
                    self.quality.delivered.heard(from, same_incarnation, now);
                }
                if self.pings.answered(from, number, (no_vote, standing), now) {
                    self.tell_suspected(from, false, now, effects);
                }
                self.repeat_value(from, life, effects);
                self.get_ready(now, effects);
            }
            Message::Heartbeat { term, beat } => {
                self.receive_heartbeat(from, term, beat, now, effects);
            }
            Message::Selection(message) => self.receive_selection(from, message, now, effects),
            Message::Installation(message) => {
                let input = installation::Input::Received { from, message };
                self.install(input, now, effects);
            }
            Message::Handover { term, to, why } => self.receive_handover(from, (term, to, why)),
            Message::Value { term, revision, value } => {
                self.receive_value(from, (term, revision, value), effects);
            }
            Message::ValueTaken { term, revision, life } => {
                self.value_taken(from, (term, revision, life));
            }
            Message::Request { number, life, term, request } => {
                let id = LeaderRequestId { by: from, life, number };
                self.requested(id, (term, request), now, effects);
            }
            Message::Answer { number, life, answer } => {
                self.answered(life, number, answer, effects);
            }
        }
    }
}

impl Elector for Member {
    fn resign() -> Input {
        Input::Resign
    }

    fn stop() -> Input {
        Input::Stop
    }

    fn transfer(to: MemberId) -> Result<Input, NoTransfer> {
        Ok(Input::Transfer { to })
    }

    fn figures(figures: Figures) -> Option<Input> {
        Some(Input::Figures(figures))
    }

    fn publish(value: Value) -> Result<Input, NoPublish> {
        Ok(Input::Publish(value))
    }

    fn change(change: MemberChange) -> Result<Input, NoChange> {
        Ok(Input::Change(change))
    }

    fn ask(number: u64, request: LeaderRequest) -> Option<Input> {
        Some(Input::Ask { number, request })
    }

    fn serve(term: Term, request: LeaderRequest) -> Option<Input> {
        Some(Input::Serve { term, request })
    }

    fn answer(id: LeaderRequestId, answer: LeaderAnswer) -> Option<Input> {
        Some(Input::Answer { id, answer })
    }

    fn held(&self, now: Instant) -> Option<Lease> {
        self.mandate(now).map(|(term, until)| Lease::of_term(term, until))
    }
}

impl Machine for Member {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, input: Input, now: Instant, effects: &mut Effects<Effect>) {
        match input {
            Input::Received { from, message } => {
                if self.is_other(from) {
                    self.receive(from, message, now, effects);
                } else if from != self.config.me {
                    self.hear_stranger(from, message, now, effects);
                }
            }
            Input::Figures(figures) => self.figures = figures,
            Input::LinkUp { member } => {
                self.agrees(member);
                self.ping_one(member, now, effects);
                self.install(installation::Input::Reached { member }, now, effects);
            }
            Input::Differs { member, config } => self.differs(member, config, now, effects),
            Input::LinkBroken { member } => self.hinted(member, now, effects),
            Input::Resign => self.resign(now, effects),
            Input::Stop => self.install(installation::Input::Stop, now, effects),
            Input::Transfer { to } => self.transfer(to, Handover::Asked, now, effects),
            Input::Publish(value) => self.publish(value, now, effects),
            Input::Change(change) => self.change(change, now, effects),
            Input::Ask { number, request } => self.ask(number, request, now, effects),
            Input::Serve { term, request } => self.serve(term, request, now, effects),
            Input::Answer { id, answer } => self.answer(id, answer, effects),
            Input::Replan { interval, detect } => self.replan(interval, detect),
        }
    }

    fn handle_timeout(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(due) = self.deadline().filter(|due| *due <= now) else { return };
        if now - due >= self.config.interval {
            self.pings.forgive(now + self.config.timeout);
        }
        // What we hold comes first: it may have ended.
        let mut queue = core::mem::take(&mut self.installation_effects);
        self.installation.handle_timeout(now, &mut queue);
        self.carry_out_installation(queue, now, effects);
        self.beat(now, effects);
        self.handle_pings(now, effects);
        let keeps_watch = self.keeps(installation::Safeguard::Silence);
        if let Phase::Following(following) = &mut self.phase
            && following.is_silent(self.config.interval.max(following.detector().interval()), now)
        {
            if keeps_watch {
                self.lose_leader(Cause::Silence, now, effects);
            } else {
                following.excuse(now + self.config.detect);
            }
        }
        if self.selection.deadline().is_some_and(|due| due <= now) {
            self.score(now, effects);
            let mut queue = core::mem::take(&mut self.selection_effects);
            self.selection.handle_timeout(now, &mut queue);
            self.carry_out_selection(queue, now, effects);
        }
        if matches!(self.phase, Phase::Awaiting { until, .. } if until <= now) {
            self.begin_election(Cause::NotInstalled, now, effects);
        }
        self.get_ready(now, effects);
        self.review(now, effects);
        self.give_up_requests(now, effects);
    }

    fn persisted(&mut self, now: Instant) {
        self.installation.persisted(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Waiting { next } => Some(*next),
            Phase::Awaiting { until, .. } => Some(*until),
            Phase::Following(following) => following.deadline(),
            Phase::Leading { .. } => self.schedule.due(),
            Phase::Electing | Phase::Claiming => None,
        };
        let others = [
            self.selection.deadline(),
            self.installation.deadline(),
            self.pings.deadline(),
            self.mover.as_ref().and_then(Mover::deadline),
            self.requests.deadline(),
        ];
        others.into_iter().flatten().chain(phase).chain([self.next_ping]).min()
    }
}

#[cfg(test)]
mod tests;
