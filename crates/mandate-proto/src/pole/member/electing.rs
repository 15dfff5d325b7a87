//! Selection, and what follows from it.

use super::record::{Draft, Field};
use super::{Cause, Effect, Member, Message, Phase};
use crate::identity::{MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::oracle::NoScore;
use crate::pole::installation::{self, Reason};
use crate::pole::selection::{self, SelectionEnd};
use crate::time::Instant;

impl Member {
    pub(super) fn select(
        &mut self,
        input: selection::Input,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let mut queue = core::mem::take(&mut self.selection_effects);
        self.selection.handle(input, now, &mut queue);
        self.carry_out_selection(queue, now, effects);
    }

    pub(super) fn carry_out_selection(
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
    pub(super) fn selected(
        &mut self,
        epoch: Term,
        leader: MemberId,
        ended: SelectionEnd,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let field = self.field();
        if let Some(draft) = &mut self.draft {
            draft.selected(ended, field, now);
        }
        if leader == self.config.me {
            self.phase = Phase::Claiming;
            self.install(installation::Input::Claim { epoch }, now, effects);
        } else {
            self.phase = Phase::Awaiting { leader, until: now + self.patience() };
        }
    }

    /// Tells selection what we are worth now.
    pub(super) fn score(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let standing = self.standing(self.occasion(), now);
        self.select(selection::Input::Scored(standing), now, effects);
    }

    pub(super) fn begin_election(
        &mut self,
        cause: Cause,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if matches!(cause, Cause::NotInstalled | Cause::Lost(Reason::NoQuorum)) {
            self.setbacks += 1;
        }
        if !self.is_voter() {
            self.draft(cause, now);
            return self.stand_by(now, effects);
        }
        self.phase = Phase::Electing;
        self.draft(cause, now);
        self.tell_state(now, effects);
        self.score(now, effects);
        let above = self.installation.highest();
        self.select(selection::Input::Elect { above }, now, effects);
    }

    /// Who stands in the election, as far as this member knows.
    pub(super) fn field(&self) -> Field {
        Field::of(&self.config.oracle, &self.selection, self.pings.suspected().collect())
    }

    /// Begins to record an election, unless one is under way.
    pub(super) fn draft(&mut self, cause: Cause, now: Instant) {
        let (former, before) = (self.former, self.selection.epoch());
        self.draft.get_or_insert_with(|| Draft::new(cause, former, before, now));
    }

    pub(super) fn receive_selection(
        &mut self,
        from: MemberId,
        message: selection::Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !self.is_voter() {
            return;
        }
        if let selection::Message::Propose { epoch, .. } = message
            && epoch > self.selection.epoch()
        {
            match &self.phase {
                Phase::Waiting { .. } if !self.is_ready(now) => {
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
            // Scores count from the beginning of an epoch.
            if !self.is_led() {
                self.score(now, effects);
            }
        }
        self.select(selection::Input::Received { from, message }, now, effects);
    }

    /// Whether a member that has started may elect: all round trips are known, or there was time to
    /// measure and a score can be computed, or it has waited long enough without.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        let waited = now - self.started;
        let measured = waited >= self.config.timeout.max(self.config.interval);
        let listened = waited >= self.config.interval;
        let unknown = |reason| matches!(reason, NoScore::Unknown(_) | NoScore::NoQuorum { .. });
        let scored = || !self.standing(self.occasion(), now).is_err_and(unknown);
        waited >= self.config.first_wait
            || listened && self.pings.knows_all(self.roster().voters()) && scored()
            || measured && scored()
    }

    /// Ends the wait of a member that has started, if it may.
    pub(super) fn get_ready(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if !matches!(self.phase, Phase::Waiting { .. }) {
            return;
        }
        let is_ready = self.is_ready(now);
        // Who was removed meanwhile was invited by mistake.
        let invitation = self.invitation.take_if(|_| is_ready).filter(|_| self.is_voter());
        match invitation {
            Some((from, message)) => self.receive_selection(from, message, now, effects),
            // Who is new takes part if it is asked to, and does not ask.
            None if is_ready && self.is_voter() && !self.installation.is_new() => {
                self.begin_election(Cause::Start, now, effects);
            }
            None => self.phase = Phase::Waiting { next: now + self.config.interval },
        }
    }
}
