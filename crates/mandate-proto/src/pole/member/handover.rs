//! Giving leadership up: by resignation, to a chosen successor, or because another would serve better.
//!
//! A leader that hands over first tells everyone why ([`Message::Handover`]): the release that follows, and the
//! successor's claim, say only that it did. The successor repeats it before it claims: its claim may arrive before anything that the
//! former leader sent, and messages of one member arrive in order. Nothing is decided by it, and who does not hear it knows less.

use super::{Advice, Cause, Effect, Event, Handover, Member, Message, NoTransfer, Phase};
use crate::identity::{MemberId, Term};
use crate::machine::Effects;
use crate::oracle::{Occasion, rank_standings};
use crate::pole::installation;
use crate::time::Instant;

impl Member {
    /// The leader has given its term back.
    pub(super) fn released(
        &mut self,
        term: Term,
        next: Option<MemberId>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if matches!(self.phase, Phase::Leading { .. } | Phase::Claiming) {
            return;
        }
        let told = self.handed.filter(|(of, to, _)| *of == term && Some(*to) == next);
        if let Some((.., why)) = told {
            self.draft_handover(why, now);
        }
        match next.filter(|next| self.is_other(*next) && !self.pings.is_suspected(*next)) {
            Some(leader) => {
                self.draft(Cause::Released, now);
                // It only has to claim: no lease stands in its way.
                let until = now + self.config.timeout.saturating_mul(2);
                self.phase = Phase::Awaiting { leader, until };
                self.tell_state(now, effects);
            }
            // We claim the next term ourselves.
            None if next == Some(self.config.me) => {
                self.draft(Cause::Released, now);
                if let Some((term, to, why)) = told {
                    effects.push(Effect::Broadcast(Message::Handover { term, to, why }));
                }
            }
            None => self.begin_election(Cause::Released, now, effects),
        }
    }

    pub(super) fn resign(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.installation.is_claiming() {
            let patience = self.config.patience() + self.config.timeout.saturating_mul(2);
            self.abstains_until = Some(now + patience);
            self.install(installation::Input::Resign, now, effects);
        }
    }

    /// The leader says why it hands over, or its successor repeats it.
    pub(super) fn receive_handover(&mut self, from: MemberId, told: (Term, MemberId, Handover)) {
        let (term, to, _) = told;
        if let Phase::Following(following) = &self.phase
            && following.term == term
            && (from == following.leader || from == to)
        {
            self.handed = Some(told);
        }
    }

    /// Takes down that the leader has handed over, with what everyone would be worth in its place: members tell that
    /// only where scores may move a leader, and one's own alone would compare nothing.
    pub(super) fn draft_handover(&mut self, why: Handover, now: Instant) {
        let own = self.standing(Occasion::BeforeResignation, now);
        let own = self.config.moves.is_some().then_some((self.config.me, own));
        let others = self.pings.standings().map(|(id, measured)| (id, Ok(measured)));
        let compared = rank_standings(&self.config.oracle, others.chain(own));
        self.draft(why.cause(), now);
        if let Some(draft) = &mut self.draft {
            draft.hand_over(why, compared);
        }
    }

    pub(super) fn transfer(
        &mut self,
        to: MemberId,
        why: Handover,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if let Err(reason) = self.may_transfer(to, now) {
            return effects.push(Effect::Tell(Event::NoTransfer { to, reason }));
        }
        let until = now + self.config.timeout.saturating_mul(2);
        if let Some((term, _)) = self.mandate(now) {
            effects.push(Effect::Broadcast(Message::Handover { term, to, why }));
        }
        self.phase = Phase::Awaiting { leader: to, until };
        self.draft_handover(why, now);
        self.install(installation::Input::Transfer { to }, now, effects);
    }

    /// What can be said against a transfer.
    pub(super) fn may_transfer(&self, to: MemberId, now: Instant) -> Result<(), NoTransfer> {
        if !self.is_other(to) {
            Err(NoTransfer::NotAMember)
        } else if !matches!(self.phase, Phase::Leading { .. }) || self.mandate(now).is_none() {
            Err(NoTransfer::NotLeading)
        } else if self.pings.is_suspected(to) {
            Err(NoTransfer::NoAnswer)
        } else if !self.pings.has_vote(to) {
            Err(NoTransfer::NoVote)
        } else {
            Ok(())
        }
    }

    pub(super) fn review(&mut self, now: Instant, effects: &mut Effects<Effect>) {
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
                let Advice { to, measure, present, predicted, .. } = advice;
                let why = Handover::Better { measure, present, predicted };
                self.transfer(to, why, now, effects);
            }
        }
    }
}
