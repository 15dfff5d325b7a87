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
//! - *[Moves](Moves)*, where wanted: a leader that is well hands over to one that would serve better.
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
//! computed, or at most [`Config::with_first_wait`]. An invitation to an election waits as long.
//!
//! # Bounds
//!
//! Memory: [`MAX_MEMBERS`] entries in each table; nothing grows with what peers send. In steady
//! state: `N-1` heartbeats an interval, `2 N (N-1)` pings and answers each ping period, and with
//! leases `2 (N-1)` renewals and answers each third of a lease. An election: at most `2 N^2 (N-1)`
//! messages of selection per round (`N (N-1)` when all notice at once), `2 (N-1)` of installation for each claim.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::installation::{self, Boot, Guarantee, Installation, Reason};
use super::selection::{self, Ended, Selection};
use crate::detector::estimator::Estimate;
use crate::detector::schedule::Schedule;
use crate::detector::{Beat, Label};
use crate::identity::{MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::oracle::{NoScore, Occasion, Standing, View, quorum};
use crate::time::Instant;

mod config;
mod following;
mod interface;
mod moves;
mod pings;
mod record;

pub use config::{Config, InvalidConfig, MAX_MEMBERS};
use following::Following;
pub use interface::{Cause, Effect, Event, Figures, Input, Message, NoTransfer, State};
use moves::Mover;
pub use moves::{Advice, Effect as MoveEffect, Moves};
pub use pings::SAMPLES;
use pings::{Pings, Probed};
use record::Draft;
pub use record::Record;

/// One member.
#[derive(Clone, Debug)]
pub struct Member {
    config: Config,
    figures: Figures,
    phase: Phase,
    selection: Selection,
    installation: Installation,
    pings: Pings,
    next_ping: Instant,
    schedule: Schedule,
    mover: Option<Mover>,
    /// Who led last.
    former: Option<MemberId>,
    /// It has resigned, and is no candidate until then.
    abstains_until: Option<Instant>,
    /// A proposal that came before we were ready.
    invitation: Option<(MemberId, selection::Message)>,
    draft: Option<Draft>,
    told: State,
    selection_effects: Effects<selection::Effect>,
    installation_effects: Effects<installation::Effect>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Started, and not ready to elect yet; looks again at `next`.
    Waiting { since: Instant, next: Instant },
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
        let installation = Installation::start(config.installation(), boot, now, &mut queue);
        let others = config.members.iter().copied().filter(|id| *id != config.me);
        let mut member = Member {
            figures: Figures::default(),
            phase: Phase::Waiting { since: now, next: now + config.interval },
            selection: Selection::new(config.selection()),
            installation,
            pings: Pings::new(others, &config, boot.lifetime, now),
            next_ping: now,
            schedule: Schedule::new(Label::default(), config.interval, now),
            mover: config.moves.map(Mover::new),
            former: boot.stored.and_then(|promised| promised.to),
            abstains_until: None,
            invitation: None,
            draft: Some(Draft::new(Cause::Start, None, now)),
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

    /// The link from the leader that is followed, as measured.
    pub fn link(&self) -> Option<Estimate> {
        match &self.phase {
            Phase::Following(following) => following.link(),
            _ => None,
        }
    }

    /// Whether it has a vote: its disk, or what it has recovered.
    pub fn has_vote(&self) -> bool {
        self.installation.has_vote()
    }

    /// What this member knows: round trips, request rates, and what the application told it.
    pub fn view(&self, occasion: Occasion) -> View {
        let own = (self.config.me, self.figures.requests);
        let mut view = View::new(self.config.me, self.config.members.iter().copied());
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
    pub fn standing(&self, occasion: Occasion, now: Instant) -> Standing {
        if !self.installation.has_vote() {
            return Err(NoScore::NoVote);
        }
        if self.abstains_until.is_some_and(|until| now < until) {
            return Err(NoScore::Resigned);
        }
        let view = self.view(occasion);
        match self.config.rules.hear_quorum {
            true => self.config.oracle.measure(&view),
            false => self.config.oracle.measure_unheard(&view),
        }
    }

    /// After a crash the former leader is left out of all scores; if it has only resigned, or came
    /// back, it counts.
    fn occasion(&self) -> Occasion {
        match self.former.is_some_and(|former| self.pings.is_suspected(former)) {
            true => Occasion::AfterCrash,
            false => Occasion::BeforeResignation,
        }
    }

    fn is_other(&self, id: MemberId) -> bool {
        id != self.config.me && self.config.members.binary_search(&id).is_ok()
    }

    fn is_led(&self) -> bool {
        matches!(self.phase, Phase::Following(_) | Phase::Leading { .. })
    }

    fn tell_state(&mut self, effects: &mut Effects<Effect>) {
        let state = self.state();
        if core::mem::replace(&mut self.told, state) != state {
            effects.push(Effect::Tell(Event::Changed(state)));
        }
    }

    // Selection.

    fn select(&mut self, input: selection::Input, now: Instant, effects: &mut Effects<Effect>) {
        let mut queue = core::mem::take(&mut self.selection_effects);
        self.selection.handle(input, now, &mut queue);
        self.carry_out_selection(queue, now, effects);
    }

    fn carry_out_selection(
        &mut self,
        mut queue: Effects<selection::Effect>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        while let Some(effect) = queue.pop() {
            match effect {
                selection::Effect::Persist(never) => match never {},
                selection::Effect::Send { to, message } => {
                    effects.push(Effect::Send { to, message: Message::Selection(message) });
                }
                selection::Effect::Broadcast(message) => {
                    effects.push(Effect::Broadcast(Message::Selection(message)));
                }
                selection::Effect::Tell(selection::Event::Elected { epoch, leader, ended }) => {
                    self.selected(epoch, leader, ended, now, effects);
                }
            }
        }
        self.selection_effects = queue;
    }

    /// Selection has named a leader.
    fn selected(
        &mut self,
        epoch: Term,
        leader: MemberId,
        ended: Ended,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let suspected: Vec<_> = self.pings.suspected().collect();
        if let Some(draft) = &mut self.draft {
            draft.selected(&self.config.oracle, &self.selection, ended, suspected, now);
        }
        if leader == self.config.me {
            self.phase = Phase::Claiming;
            self.install(installation::Input::Claim { epoch }, now, effects);
        } else {
            self.phase = Phase::Awaiting { leader, until: now + self.config.patience() };
        }
    }

    /// Tells selection what we are worth now.
    fn score(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let standing = self.standing(self.occasion(), now);
        self.select(selection::Input::Scored(standing), now, effects);
    }

    fn begin_election(&mut self, cause: Cause, now: Instant, effects: &mut Effects<Effect>) {
        self.phase = Phase::Electing;
        self.draft(cause, now);
        self.tell_state(effects);
        self.score(now, effects);
        let above = self.installation.highest();
        self.select(selection::Input::Elect { above }, now, effects);
    }

    /// Begins to record an election, unless one is under way.
    fn draft(&mut self, cause: Cause, now: Instant) {
        let former = self.former;
        self.draft.get_or_insert_with(|| Draft::new(cause, former, now));
    }

    fn receive_selection(
        &mut self,
        from: MemberId,
        message: selection::Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if let selection::Message::Propose { epoch, .. } = message
            && epoch > self.selection.epoch()
        {
            match &self.phase {
                Phase::Waiting { since, .. } if !self.is_ready(*since, now) => {
                    self.invitation = Some((from, message));
                    return;
                }
                Phase::Waiting { .. } => self.phase = Phase::Electing,
                Phase::Following(following) if following.leader == from => {
                    self.lose_leader(Cause::LeaderRestarted, now, effects);
                }
                Phase::Awaiting { leader, .. } if *leader == from => {
                    self.begin_election(Cause::SelectedGone, now, effects);
                }
                // Another has lost the leader. Have we?
                Phase::Following(following) => self.pings.probe(following.leader, now),
                Phase::Awaiting { leader, .. } => self.pings.probe(*leader, now),
                Phase::Electing | Phase::Claiming | Phase::Leading { .. } => {}
            }
        }
        if !self.is_led() {
            self.score(now, effects);
        }
        self.select(selection::Input::Received { from, message }, now, effects);
    }

    /// Whether a member that has started `since` may elect: all round trips are known, or there
    /// was time to measure and a score can be computed, or it has waited long enough without.
    fn is_ready(&self, since: Instant, now: Instant) -> bool {
        let waited = now - since;
        let measured = waited >= self.config.timeout.max(self.config.interval);
        let listened = waited >= self.config.interval;
        let unknown = |reason| matches!(reason, NoScore::Unknown(_) | NoScore::NoQuorum { .. });
        let scored = || !self.standing(self.occasion(), now).is_err_and(unknown);
        waited >= self.config.first_wait
            || listened && self.pings.knows_all() && scored()
            || measured && scored()
    }

    /// Ends the wait of a member that has started, if it may.
    fn get_ready(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Phase::Waiting { since, .. } = self.phase else { return };
        if !self.is_ready(since, now) {
            let next = now + self.config.interval;
            self.phase = Phase::Waiting { since, next };
            return;
        }
        match self.invitation.take() {
            Some((from, message)) => self.receive_selection(from, message, now, effects),
            None => self.begin_election(Cause::Start, now, effects),
        }
    }

    // Installation.

    fn install(&mut self, input: installation::Input, now: Instant, effects: &mut Effects<Effect>) {
        let mut queue = core::mem::take(&mut self.installation_effects);
        self.installation.handle(input, now, &mut queue);
        self.carry_out_installation(queue, now, effects);
    }

    fn carry_out_installation(
        &mut self,
        mut queue: Effects<installation::Effect>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        use installation::Event as Told;
        let mut lost = None;
        while let Some(effect) = queue.pop() {
            match effect {
                installation::Effect::Persist(promised) => effects.push(Effect::Persist(promised)),
                installation::Effect::Send { to, message } => {
                    effects.push(Effect::Send { to, message: Message::Installation(message) });
                }
                installation::Effect::Broadcast(message) => {
                    effects.push(Effect::Broadcast(Message::Installation(message)));
                }
                installation::Effect::Tell(Told::Installed { term }) => {
                    self.lead(term, now, effects);
                }
                installation::Effect::Tell(Told::Lost { reason, .. }) => lost = Some(reason),
                installation::Effect::Tell(Told::Promised { to, term }) => {
                    lost = None;
                    self.promised(to, term, now, effects);
                }
                installation::Effect::Tell(Told::Released { next, .. }) => {
                    self.released(next, now, effects);
                }
                installation::Effect::Tell(Told::Recovered { .. }) => {
                    effects.push(Effect::Tell(Event::Recovered));
                }
            }
        }
        self.installation_effects = queue;
        if self.installation.is_claiming() && !matches!(self.phase, Phase::Leading { .. }) {
            self.draft(Cause::Released, now);
            self.phase = Phase::Claiming;
            self.tell_state(effects);
        } else if let Some(reason) = lost {
            self.lost(reason, now, effects);
        }
    }

    /// We hold a term.
    fn lead(&mut self, term: Term, now: Instant, effects: &mut Effects<Effect>) {
        self.phase = Phase::Leading { term };
        self.settled(self.config.me, term, now, effects);
        self.schedule.begin(now);
        if let Some(mover) = &mut self.mover {
            mover.installed(now);
        }
        self.beat(now, effects);
    }

    /// There is a leader: the election is over.
    fn settled(
        &mut self,
        leader: MemberId,
        term: Term,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let former = self.former;
        self.former = Some(leader);
        self.abstains_until = None;
        self.invitation = None;
        self.select(selection::Input::Follow { epoch: term, leader }, now, effects);
        self.tell_state(effects);
        if let Some(draft) = self.draft.take() {
            let view = View { leader: former, ..self.view(self.occasion()) };
            let record = draft.finish(leader, term, view, now);
            effects.push(Effect::Tell(Event::Elected(Box::new(record))));
        }
    }

    /// We do not hold a term any more, or did not get it.
    fn lost(&mut self, reason: Reason, now: Instant, effects: &mut Effects<Effect>) {
        self.stop_leading();
        match (reason, &self.phase) {
            // Handed over: `transfer` has set whom we await.
            (Reason::Transferred, Phase::Awaiting { .. }) => self.tell_state(effects),
            // Given up, since another leads.
            (_, Phase::Following(_)) => {}
            _ => self.begin_election(Cause::Lost(reason), now, effects),
        }
    }

    fn stop_leading(&mut self) {
        self.schedule.end();
        if let Some(mover) = &mut self.mover {
            mover.ended();
        }
    }

    /// We have promised another.
    fn promised(&mut self, to: MemberId, term: Term, now: Instant, effects: &mut Effects<Effect>) {
        self.stop_leading();
        self.phase = Phase::Awaiting { leader: to, until: now + self.config.patience() };
        self.draft(Cause::Invited, now);
        self.select(selection::Input::Follow { epoch: term, leader: to }, now, effects);
        self.tell_state(effects);
    }

    /// The leader has given its term back.
    fn released(&mut self, next: Option<MemberId>, now: Instant, effects: &mut Effects<Effect>) {
        if matches!(self.phase, Phase::Leading { .. } | Phase::Claiming) {
            return;
        }
        match next.filter(|next| self.is_other(*next) && !self.pings.is_suspected(*next)) {
            Some(leader) => {
                self.draft(Cause::Released, now);
                // It only has to claim: no lease stands in its way.
                let until = now + self.config.timeout.saturating_mul(2);
                self.phase = Phase::Awaiting { leader, until };
                self.tell_state(effects);
            }
            // We claim the next term ourselves.
            None if next == Some(self.config.me) => self.draft(Cause::Released, now),
            None => self.begin_election(Cause::Released, now, effects),
        }
    }

    fn resign(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.installation.is_claiming() {
            let patience = self.config.patience() + self.config.timeout.saturating_mul(2);
            self.abstains_until = Some(now + patience);
            self.install(installation::Input::Resign, now, effects);
        }
    }

    fn transfer(&mut self, to: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        let reason = if !self.is_other(to) {
            NoTransfer::NotAMember
        } else if !matches!(self.phase, Phase::Leading { .. }) || self.mandate(now).is_none() {
            NoTransfer::NotLeading
        } else if self.pings.is_suspected(to) {
            NoTransfer::NoAnswer
        } else {
            let until = now + self.config.timeout.saturating_mul(2);
            self.phase = Phase::Awaiting { leader: to, until };
            self.draft(Cause::Released, now);
            return self.install(installation::Input::Transfer { to }, now, effects);
        };
        effects.push(Effect::Tell(Event::NoTransfer { to, reason }));
    }

    // Detection.

    fn beat(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if let Phase::Leading { term } = self.phase
            && let Some(beat) = self.schedule.beat(now)
        {
            effects.push(Effect::Broadcast(Message::Heartbeat { term, beat }));
        }
    }

    fn receive_heartbeat(
        &mut self,
        from: MemberId,
        term: Term,
        beat: Beat,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !beat.is_plausible() || !term.is_plausible() {
            return;
        }
        let promised = self.installation.promised();
        // The same term, if not to the same member: then another claim for it, perhaps ours, came
        // to nothing. What counts is that no lower term can follow, also after a restart.
        if promised.term == term && self.installation.has_vote() {
            match &mut self.phase {
                Phase::Following(following) if following.term == term => {
                    if following.heartbeat(beat, now) {
                        self.pings.end_probe(from);
                    }
                }
                _ => self.follow(from, term, beat, now, effects),
            }
        } else if term < promised.term {
            // It was replaced, and does not know.
            let message = installation::Message::Refuse { term, promised: promised.term };
            effects.push(Effect::Send { to: from, message: Message::Installation(message) });
        } else if matches!(self.phase, Phase::Waiting { .. } | Phase::Electing) {
            // There is a leader; its claim will follow.
            self.phase = Phase::Awaiting { leader: from, until: now + self.config.patience() };
            self.select(selection::Input::Follow { epoch: term, leader: from }, now, effects);
        }
    }

    fn follow(
        &mut self,
        leader: MemberId,
        term: Term,
        beat: Beat,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let following = Following::new(leader, term, beat, self.config.detect, now);
        self.phase = Phase::Following(Box::new(following));
        if self.installation.is_claiming() {
            self.install(installation::Input::Resign, now, effects);
        }
        self.settled(leader, term, now, effects);
        if let Some(effect) = self.mover.as_mut().and_then(|mover| mover.follows(leader, now)) {
            effects.push(Effect::Tell(Event::Moved(effect)));
        }
    }

    /// The leader that we follow is lost.
    fn lose_leader(&mut self, cause: Cause, now: Instant, effects: &mut Effects<Effect>) {
        let Phase::Following(following) = &self.phase else { return };
        let leader = following.leader;
        self.phase = Phase::Electing;
        if matches!(cause, Cause::Silence | Cause::NoAnswer) {
            self.suspect(leader, now, effects);
        }
        self.begin_election(cause, now, effects);
    }

    fn ping(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.next_ping = now + self.config.ping_every;
        let (number, requests) = (self.pings.next(now), self.figures.requests);
        effects.push(Effect::Broadcast(Message::Ping { number, requests }));
    }

    fn receive_ping(
        &mut self,
        from: MemberId,
        number: u64,
        requests: f64,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.pings.heard(from, requests);
        let wanted = self.config.moves.is_some();
        let standing = wanted.then(|| self.standing(Occasion::BeforeResignation, now));
        let standing = standing.and_then(Result::ok);
        let (requests, has_vote) = (self.figures.requests, self.has_vote());
        let message = Message::Pong { number, requests, has_vote, standing };
        effects.push(Effect::Send { to: from, message });
    }

    fn suspect(&mut self, member: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        if !self.pings.suspect(member) {
            return;
        }
        self.tell_suspected(member, true, now, effects);
        if matches!(&self.phase, Phase::Awaiting { leader, .. } if *leader == member) {
            self.begin_election(Cause::SelectedGone, now, effects);
        }
    }

    /// A leader that does not hear a quorum gives up. With leases, their end says it better.
    fn check_cut_off(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let heard = self.pings.answering() + 1;
        let fenced = self.config.guarantee == Guarantee::Fenced;
        let cut_off = heard < quorum(self.config.members.len()) && self.config.rules.hear_quorum;
        if matches!(self.phase, Phase::Leading { .. }) && fenced && cut_off {
            self.draft(Cause::CutOff, now);
            self.install(installation::Input::Resign, now, effects);
        }
    }

    fn tell_suspected(
        &mut self,
        member: MemberId,
        suspected: bool,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        effects.push(Effect::Tell(Event::Suspected { member, suspected }));
        self.select(selection::Input::Suspected { member, suspected }, now, effects);
    }

    /// Pings that are due, and what became of earlier ones.
    fn handle_pings(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.next_ping <= now {
            self.ping(now, effects);
        }
        while let Some(probed) = self.pings.next_probe(now) {
            match probed {
                Probed::Ping(to) => {
                    let (number, requests) = (self.pings.next(now), self.figures.requests);
                    effects.push(Effect::Send { to, message: Message::Ping { number, requests } });
                }
                Probed::Failed(member) => {
                    if matches!(&self.phase, Phase::Following(f) if f.leader == member) {
                        self.lose_leader(Cause::NoAnswer, now, effects);
                    } else {
                        self.suspect(member, now, effects);
                    }
                }
            }
        }
        while let Some(member) = self.pings.next_silent(now) {
            self.suspect(member, now, effects);
        }
        self.check_cut_off(now, effects);
    }

    // Moves.

    fn review(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Some(mut mover) = self.mover.take() else { return };
        let leads = matches!(self.phase, Phase::Leading { .. });
        let advice = if mover.is_due(now) && leads {
            let own = self.standing(Occasion::BeforeResignation, now).ok();
            own.and_then(|own| {
                let own = (self.config.me, own);
                mover.review(&self.config.oracle, own, self.pings.standings())
            })
        } else {
            None
        };
        let of = |id| self.pings.standings().find(|(other, _)| *other == id).map(|(_, it)| it);
        let effect = mover.judge(&self.config.oracle, of, now);
        self.mover = Some(mover);
        if let Some(effect) = effect {
            effects.push(Effect::Tell(Event::Moved(effect)));
        }
        if let Some(advice) = advice {
            effects.push(Effect::Tell(Event::Advised(advice)));
            if !advice.shadow {
                self.transfer(advice.to, now, effects);
            }
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
        match message {
            Message::Ping { number, requests } => {
                self.receive_ping(from, number, requests, now, effects);
            }
            Message::Pong { number, requests, has_vote, standing } => {
                self.pings.heard(from, requests);
                if self.pings.answered(from, number, (has_vote, standing), now) {
                    self.tell_suspected(from, false, now, effects);
                }
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
        }
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
                }
            }
            Input::Figures(figures) => self.figures = figures,
            Input::LinkBroken { member } => self.pings.probe(member, now),
            Input::Resign => self.resign(now, effects),
            Input::Transfer { to } => self.transfer(to, now, effects),
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
        if let Phase::Following(following) = &mut self.phase
            && following.is_silent(self.config.interval, now)
        {
            self.lose_leader(Cause::Silence, now, effects);
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
    }

    fn deadline(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Waiting { next, .. } => Some(*next),
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
        ];
        others.into_iter().flatten().chain(phase).chain([self.next_ping]).min()
    }
}

#[cfg(test)]
mod tests;
