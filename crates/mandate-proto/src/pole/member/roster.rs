//! Members that come and go: what a member makes of another list.
//!
//! Installation decides which list counts, and how it is changed. Here the rest of the machine follows it: who is pinged and
//! measured, who takes part in elections, among whom scores are compared. Members that do not vote (learners and observers) watch
//! the leader like everyone, and take no part in elections; a process that is no member yet, or no more, waits to be told of
//! a list that names it.
//!
//! A group is changed for the first time only when everyone in it can follow: a member of an older release knows of no other
//! list than the one in its configuration, so it would be left out. From then on nobody who cannot is let in.

use alloc::vec::Vec;

use super::{Cause, Effect, Event, Member, Message, Phase};
use crate::election::quorum;
use crate::identity::MemberId;
use crate::machine::Effects;
use crate::pole::installation::{self, Fit, MemberChange, NoChange, Roster, Safeguard};
use crate::pole::selection;
use crate::time::Instant;
use crate::wire;

impl Member {
    /// Who the members are, as far as this one has heard.
    pub fn roster(&self) -> &Roster {
        self.installation.roster()
    }

    /// Whether a quorum has the list on disk that this member, which leads, goes by: the last change will not be undone.
    pub fn is_settled(&self) -> bool {
        self.installation.is_settled()
    }

    /// Whether too few of those that would be left answer. Installation knows who is bound; one that has gone a moment ago is bound still,
    /// and would be missed when its promise has run out.
    fn would_miss_a_quorum(&self, change: &MemberChange) -> bool {
        let MemberChange::Remove { member } = *change else { return false };
        if member == self.config.me || !self.roster().has_voter(member) {
            return false;
        }
        let left: Vec<_> = self.roster().voters().filter(|id| *id != member).collect();
        let answering = left.iter().filter(|id| !self.pings.is_suspected(**id)).count();
        answering < quorum(left.len())
    }

    /// Whether this member takes part in elections.
    pub(super) fn is_voter(&self) -> bool {
        self.roster().has_voter(self.config.me)
    }

    /// Changes the members, as the leader of a group in which everyone can follow that.
    pub(super) fn change(
        &mut self,
        change: MemberChange,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let leads = self.mandate(now).is_some();
        let no_quorum = || self.would_miss_a_quorum(&change).then_some(NoChange::NoQuorum);
        match self.too_old_for(&change).or_else(no_quorum).filter(|_| leads) {
            Some(reason) => effects.push(Effect::Tell(Event::NotChanged { change, reason })),
            None => self.install(installation::Input::Change(change), now, effects),
        }
    }

    /// Why a group that was never changed cannot be: this member or another one is of a release that knows nothing of it, or may be.
    /// A member that is gone and leaves with the change need not know: a dead host must not keep its group from being repaired. One that
    /// answers does: its vote may be needed until it has left.
    pub(super) fn too_old_for(&self, change: &MemberChange) -> Option<NoChange> {
        if !self.roster().id().is_seed() || !self.keeps(Safeguard::EveryoneSpeaks) {
            return None;
        }
        let leaves = match change {
            MemberChange::Remove { member } => Some(*member),
            MemberChange::Add { replaces, .. } => *replaces,
            MemberChange::Observe { .. } | MemberChange::Promote { .. } => None,
        };
        let leaves = leaves.filter(|id| self.pings.is_suspected(*id));
        let own = (self.config.me, Some(self.config.speaks));
        let stay = self.pings.spoken().filter(|(id, _)| Some(*id) != leaves);
        [own].into_iter().chain(stay).find_map(|(member, speaks)| match speaks {
            None => Some(NoChange::Unheard(member)),
            Some(speaks) if speaks < wire::CHANGES_SINCE => {
                Some(NoChange::TooOld { member, speaks })
            }
            Some(_) => None,
        })
    }

    /// We go by another list from now on.
    pub(super) fn roster_changed(
        &mut self,
        roster: Roster,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let me = self.config.me;
        self.pings.set_peers(roster.members().filter(|id| *id != me), now);
        self.selection.set_members(roster.voters());
        // Selection knows of voters only: one that has become a voter may be suspected already.
        for member in self.pings.suspected().collect::<Vec<_>>() {
            self.select(selection::Input::Suspected { member, suspected: true }, now, effects);
        }
        self.promised_at = now;
        let ours = self.installation.config_id();
        self.differing
            .retain(|id, (theirs, _)| roster.has(*id) && ours.fit(*theirs) == Fit::Differs);
        self.installation.set_disputed(!self.differing.is_empty());
        effects.push(Effect::Tell(Event::RosterChanged(roster)));
        let is_over = match &self.phase {
            Phase::Following(following) => !self.roster().has_voter(following.leader),
            Phase::Awaiting { leader, .. } => !self.roster().has_voter(*leader),
            Phase::Electing => !self.is_voter(),
            Phase::Waiting { .. } | Phase::Claiming | Phase::Leading { .. } => false,
        };
        if is_over {
            self.begin_election(Cause::Removed, now, effects);
        }
    }

    /// Who takes no part in elections waits until a leader is heard.
    pub(super) fn stand_by(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.selection.stand_by();
        self.phase = Phase::Waiting { next: now + self.config.interval };
        self.tell_state(now, effects);
    }

    /// Sends our list to who goes by an older one, or by a newer one: it takes ours, or answers with its own.
    pub(super) fn send_roster(&self, to: MemberId, effects: &mut Effects<Effect>) {
        let message = Message::Installation(self.installation.our_roster());
        effects.push(Effect::Send { to, message });
    }

    /// What a process that is no member of our list may say: by which one it goes.
    pub(super) fn hear_stranger(
        &mut self,
        from: MemberId,
        message: Message,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        match message {
            Message::Installation(message @ installation::Message::Roster { .. }) => {
                self.install(installation::Input::Received { from, message }, now, effects);
            }
            Message::Ping { config, .. } => {
                if matches!(self.installation.config_id().fit(config), Fit::Older | Fit::Newer) {
                    self.send_roster(from, effects);
                }
            }
            _ => {}
        }
    }
}
