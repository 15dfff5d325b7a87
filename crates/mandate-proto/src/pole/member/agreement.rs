//! Members that must not be counted on: such as have another configuration, and such as have forgotten what they promised.
//!
//! A member with another list of members under the same number, or another guarantee, is refused: what it says is not taken, and it
//! counts as one that does not answer. Links refuse it, too ([`Input::Differs`](super::Input::Differs)).
//!
//! Everyone remembers the highest term that it has seen each other promise. Who answers a later ping with a lower one has a
//! disk that was put back to an older state, and may promise a term twice: it is told, and recovers as
//! if it had lost the disk; until then its votes and claims are not taken. That is a check and no proof: a member that
//! nobody remembers anything of, or that votes before anyone has pinged it, is not found out.

use core::time::Duration;

use super::{Effect, Event, Member, Message};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::pole::installation::{self, ConfigId, Fit, Safeguard};
use crate::time::Instant;

/// For how long a member that was heard to differ is taken to do so, unless it is heard to agree: links
/// try again every few seconds.
const DIFFERS_FOR: Duration = Duration::from_secs(60);

impl Member {
    /// Members of our list that have another configuration, as far as is known.
    pub fn differing(&self) -> impl Iterator<Item = (MemberId, ConfigId)> + '_ {
        self.differing.iter().map(|(id, (config, _))| (*id, *config))
    }

    /// A member is known to have another configuration.
    pub(super) fn differs(
        &mut self,
        member: MemberId,
        config: ConfigId,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let differs = self.installation.config_id().fit(config) == Fit::Differs;
        if !differs || !self.is_other(member) || !self.keeps(Safeguard::ConfigId) {
            return;
        }
        let known = self.differing.insert(member, (config, now));
        if known.is_none_or(|(known, _)| known != config) {
            effects.push(Effect::Tell(Event::Differs { member, config }));
        }
        self.installation.set_disputed(true);
        self.suspect(member, now, effects);
    }

    /// Forgets who was last heard to differ long ago.
    pub(super) fn settle_differences(&mut self, now: Instant) {
        self.differing.retain(|_, (_, heard)| now - *heard < DIFFERS_FOR);
        self.installation.set_disputed(!self.differing.is_empty());
    }

    /// A member is known to have the same configuration.
    pub(super) fn agrees(&mut self, member: MemberId) {
        if self.differing.remove(&member).is_some() {
            self.installation.set_disputed(!self.differing.is_empty());
        }
    }

    /// Whether what a member says is not to be taken.
    pub(super) fn is_refused(
        &mut self,
        from: MemberId,
        message: &Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> bool {
        use installation::Message as Said;
        match *message {
            Message::Ping { config, .. } | Message::Pong { config, .. } => {
                match self.installation.config_id().fit(config) {
                    Fit::Differs => {
                        self.differs(from, config, now, effects);
                        return self.keeps(Safeguard::ConfigId);
                    }
                    Fit::Older | Fit::Newer if matches!(message, Message::Ping { .. }) => {
                        self.send_roster(from, effects);
                    }
                    Fit::Same | Fit::Older | Fit::Newer => {}
                }
                self.agrees(from);
                false
            }
            _ if self.differing.contains_key(&from) => true,
            Message::Installation(
                Said::Claim { .. } | Said::Promise { .. } | Said::Follow { .. },
            ) => self.pings.is_distrusted(from),
            _ => false,
        }
    }

    /// Remembers what a member has promised, by what it says.
    pub(super) fn witness(&mut self, from: MemberId, message: &Message) {
        use installation::Message as Said;
        let highest = self.installation.highest();
        match *message {
            Message::Heartbeat { term, .. }
            | Message::Installation(
                Said::Claim { term, .. }
                | Said::Promise { term, .. }
                | Said::Follow { term, .. }
                | Said::Refuse { promised: term, .. },
            ) if term.is_plausible_after(highest) => self.pings.witness(from, term),
            // It says itself that it has lost its disk, or that it went back.
            Message::Installation(Said::Ask { life, .. }) => self.pings.excuse(from, life),
            _ => {}
        }
    }

    /// Compares what a member says that it has promised with what is remembered of it.
    pub(super) fn compare_promises(
        &mut self,
        from: MemberId,
        (number, incarnation): (u64, Incarnation),
        (has_vote, promised): (bool, Term),
        effects: &mut Effects<Effect>,
    ) {
        if !self.keeps(Safeguard::WentBack)
            || !promised.is_plausible_after(self.installation.highest())
        {
            return;
        }
        let was_distrusted = self.pings.is_distrusted(from);
        if let Some(term) = self.pings.went_back(from, (number, incarnation), has_vote, promised) {
            if !was_distrusted {
                effects.push(Effect::Tell(Event::WentBack { member: from, term }));
            }
            let message = Message::Installation(installation::Message::Behind { term });
            effects.push(Effect::Send { to: from, message });
        }
    }

    pub(super) fn keeps(&self, safeguard: Safeguard) -> bool {
        self.config.without != Some(safeguard)
    }
}
