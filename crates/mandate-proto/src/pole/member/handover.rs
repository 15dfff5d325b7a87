//! Giving leadership up: by resignation, to a chosen successor, or because another would serve better.

use super::{Cause, Effect, Event, Member, NoTransfer, Phase};
use crate::identity::MemberId;
use crate::machine::Effects;
use crate::oracle::Occasion;
use crate::pole::installation;
use crate::time::Instant;

impl Member {
    /// The leader has given its term back.
    pub(super) fn released(
        &mut self,
        next: Option<MemberId>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if matches!(self.phase, Phase::Leading { .. } | Phase::Claiming) {
            return;
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
            None if next == Some(self.config.me) => self.draft(Cause::Released, now),
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

    pub(super) fn transfer(&mut self, to: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        let reason = if !self.is_other(to) {
            NoTransfer::NotAMember
        } else if !matches!(self.phase, Phase::Leading { .. }) || self.mandate(now).is_none() {
            NoTransfer::NotLeading
        } else if self.pings.is_suspected(to) {
            NoTransfer::NoAnswer
        } else if !self.pings.has_vote(to) {
            NoTransfer::NoVote
        } else {
            let until = now + self.config.timeout.saturating_mul(2);
            self.phase = Phase::Awaiting { leader: to, until };
            self.draft(Cause::Released, now);
            return self.install(installation::Input::Transfer { to }, now, effects);
        };
        effects.push(Effect::Tell(Event::NoTransfer { to, reason }));
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
                self.transfer(advice.to, now, effects);
            }
        }
    }
}
