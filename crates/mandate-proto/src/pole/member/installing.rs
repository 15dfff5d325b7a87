//! Installation, and what follows from it: a member leads, has promised another, or has lost.

use alloc::boxed::Box;

use super::{Cause, Effect, Event, Member, Message, Phase};
use crate::identity::{MemberId, Term};
use crate::machine::{Effects, Machine};
use crate::oracle::View;
use crate::pole::installation::{self, Reason};
use crate::pole::selection;
use crate::time::Instant;

impl Member {
    pub(super) fn install(
        &mut self,
        input: installation::Input,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let mut queue = core::mem::take(&mut self.installation_effects);
        self.installation.handle(input, now, &mut queue);
        self.carry_out_installation(queue, now, effects);
    }

    pub(super) fn carry_out_installation(
        &mut self,
        mut queue: Effects<installation::Effect>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let (mut lost, mut changed) = (None, None);
        while let Some(effect) = queue.pop() {
            match effect {
                installation::Effect::Persist(stored) => effects.push(Effect::Persist(stored)),
                installation::Effect::Send { to, message } => {
                    effects.push(Effect::Send { to, message: Message::Installation(message) });
                }
                installation::Effect::Broadcast(message) => {
                    effects.push(Effect::Broadcast(Message::Installation(message)));
                }
                installation::Effect::Tell(installation::Event::Installed { term }) => {
                    // Who decides alone has lost one term and holds the next at once.
                    if lost.take().is_some() {
                        self.stop_leading();
                    }
                    self.lead(term, now, effects);
                }
                installation::Effect::Tell(installation::Event::Lost { reason, .. }) => {
                    lost = Some(reason)
                }
                installation::Effect::Tell(installation::Event::Promised { to, term }) => {
                    lost = None;
                    self.promised(to, term, now, effects);
                }
                installation::Effect::Tell(installation::Event::Released { term, next }) => {
                    self.released(term, next, now, effects);
                }
                installation::Effect::Tell(installation::Event::Recovered { .. }) => {
                    effects.push(Effect::Tell(Event::Recovered));
                    self.has_recovered(now, effects);
                }
                installation::Effect::Tell(installation::Event::WentBack { term, .. }) => {
                    let member = self.config.me;
                    effects.push(Effect::Tell(Event::WentBack { member, term }));
                }
                installation::Effect::Tell(installation::Event::Differs { member, config }) => {
                    self.differs(member, config, now, effects);
                }
                installation::Effect::Tell(installation::Event::RosterChanged { roster }) => {
                    changed = Some(roster);
                }
                installation::Effect::Tell(installation::Event::Settled { roster }) => {
                    effects.push(Effect::Tell(Event::Settled(roster)));
                }
                installation::Effect::Tell(installation::Event::NotChanged { change, reason }) => {
                    effects.push(Effect::Tell(Event::NotChanged { change, reason }));
                }
            }
        }
        self.installation_effects = queue;
        let leads = matches!(self.phase, Phase::Leading { .. }) && lost.is_none();
        if self.installation.is_claiming() && !leads {
            self.stop_leading();
            self.draft(Cause::Released, now);
            self.phase = Phase::Claiming;
            self.tell_state(now, effects);
        } else if let Some(reason) = lost {
            self.lost(reason, now, effects);
        }
        if let Some(roster) = changed {
            self.roster_changed(roster, now, effects);
        }
    }

    /// We have a vote. The others learn it when they ping us, and we who else has one: not in the next round of pings, but now.
    fn has_recovered(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.is_led() {
            return;
        }
        // A member that waited for the last one to come for the first time measures anew.
        if matches!(self.phase, Phase::Waiting { .. })
            && now - self.started >= self.config.first_wait
        {
            self.started = now;
        }
        self.ping(now, effects);
    }

    /// We hold a term.
    pub(super) fn lead(&mut self, term: Term, now: Instant, effects: &mut Effects<Effect>) {
        self.phase = Phase::Leading { term };
        self.promised_at = now;
        self.settled(self.config.me, term, now, effects);
        self.schedule.begin(now);
        if let Some(mover) = &mut self.mover {
            mover.installed(now);
        }
        self.beat(now, effects);
        self.publish_first(now, effects);
    }

    /// There is a leader: the election is over.
    pub(super) fn settled(
        &mut self,
        leader: MemberId,
        term: Term,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let former = self.former;
        let field = (self.selection.epoch(), self.field());
        self.former = Some(leader);
        self.setbacks = 0;
        self.installation.led();
        self.abstains_until = None;
        self.invitation = None;
        self.handed = None;
        self.select(selection::Input::Follow { epoch: term, leader }, now, effects);
        self.tell_state(now, effects);
        if let Some(draft) = self.draft.take() {
            let view = View { leader: former, ..self.view(self.occasion()) };
            let record = draft.finish((leader, term), field, view, now);
            effects.push(Effect::Tell(Event::Elected(Box::new(record))));
        }
    }

    /// We do not hold a term any more, or did not get it.
    pub(super) fn lost(&mut self, reason: Reason, now: Instant, effects: &mut Effects<Effect>) {
        self.stop_leading();
        match (reason, &self.phase) {
            // Handed over: `transfer` has set whom we await.
            (Reason::Transferred, Phase::Awaiting { .. }) => self.tell_state(now, effects),
            // Given up, since another leads.
            (_, Phase::Following(_)) => {}
            _ => self.begin_election(Cause::Lost(reason), now, effects),
        }
    }

    pub(super) fn stop_leading(&mut self) {
        self.schedule.end();
        if let Some(mover) = &mut self.mover {
            mover.ended();
        }
    }

    /// We have promised another.
    pub(super) fn promised(
        &mut self,
        to: MemberId,
        term: Term,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        self.stop_leading();
        self.phase = Phase::Awaiting { leader: to, until: now + self.patience() };
        // Its claim may come before the release that it follows.
        match self.handed.filter(|(before, next, _)| *before < term && *next == to) {
            Some((.., why)) => self.draft_handover(why, now),
            None => self.draft(Cause::Invited, now),
        }
        self.select(selection::Input::Follow { epoch: term, leader: to }, now, effects);
        self.tell_state(now, effects);
    }
}
