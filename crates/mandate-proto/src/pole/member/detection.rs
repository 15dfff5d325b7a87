//! Heartbeats, pings and suspicions.

use alloc::boxed::Box;

use super::following::Following;
use super::pings::Probed;
use super::{Cause, Effect, Event, Member, Message, Phase};
use crate::detector::Beat;
use crate::identity::{MemberId, Term};
use crate::machine::Effects;
use crate::oracle::Occasion;
use crate::pole::installation::{self, PeerGuarantee, Safeguard};
use crate::pole::selection;
use crate::time::Instant;

impl Member {
    pub(super) fn beat(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let Phase::Leading { term } = self.phase else { return };
        if let Some(wanted) = self.config.wanted {
            // A margin of an interval is left, whatever anyone asks for.
            let (least, most) = (wanted.min_interval, self.config.detect / 2);
            let (requests, monitors) = (&self.quality.requests, self.pings.unsuspected());
            let interval = requests.interval(monitors, self.config.interval, least, most);
            if interval != self.schedule.interval() {
                self.schedule.set_interval(interval);
            }
        }
        if let Some(beat) = self.schedule.beat(now) {
            self.quality.requests.age();
            effects.push(Effect::Broadcast(Message::Heartbeat { term, beat }));
        }
    }

    pub(super) fn receive_heartbeat(
        &mut self,
        from: MemberId,
        term: Term,
        beat: Beat,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !beat.is_plausible() || !term.is_plausible_after(self.installation.highest()) {
            return;
        }
        let promised = self.installation.promised();
        if self.may_follow(term) {
            match &mut self.phase {
                Phase::Following(following) if following.term == term => {
                    if following.heartbeat(beat, now) {
                        self.pings.end_probe(from);
                    }
                    let delay = self.pings.round_trip(from).unwrap_or_default() / 2;
                    let look = self.quality.heartbeat(beat, delay, || following.link());
                    if let Some(look) = look {
                        following.set_detect(look.detect);
                        let tell =
                            |reason| Effect::Tell(Event::Unachievable { leader: from, reason });
                        look.unachievable.into_iter().map(tell).for_each(|it| effects.push(it));
                    }
                }
                _ => self.follow(from, term, beat, now, effects),
            }
        } else if term < promised.term {
            // It was replaced, and does not know.
            let message = installation::Message::Refuse { term, promised: promised.term };
            effects.push(Effect::Send { to: from, message: Message::Installation(message) });
        } else if term >= self.followed
            && matches!(self.phase, Phase::Waiting { .. } | Phase::Electing)
        {
            // There is a leader; its claim will follow.
            self.phase = Phase::Awaiting { leader: from, until: now + self.patience() };
            self.select(selection::Input::Follow { epoch: term, leader: from }, now, effects);
        }
    }

    /// Whether a leader of this term can be followed: it is the highest on our disk. Not necessarily promised to that
    /// member: then another claim for it, perhaps ours, came to nothing. What counts is that no lower term can follow,
    /// also after a restart. Without a vote there is nothing to go by but what was heard: better to name the leader
    /// that is heard than none. That may be a higher term than the one that it gets its vote back with.
    fn may_follow(&self, term: Term) -> bool {
        let is_known = match self.installation.has_vote() {
            true => self.installation.promised().term == term,
            false => term >= self.installation.highest(),
        };
        is_known && term >= self.followed
    }

    pub(super) fn follow(
        &mut self,
        leader: MemberId,
        term: Term,
        beat: Beat,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let following = Following::new(leader, term, beat, self.config.detect, now);
        if term == self.suspected_in {
            // Nobody comes back into a term of an earlier incarnation.
            self.quality.delivered.heard(leader, true, now);
        }
        self.quality.new_leader();
        self.followed = self.followed.max(term);
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
    pub(super) fn lose_leader(
        &mut self,
        cause: Cause,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let Phase::Following(following) = &self.phase else { return };
        let leader = following.leader;
        if matches!(cause, Cause::Silence | Cause::NoAnswer) {
            self.suspected_in = following.term;
            self.quality.delivered.suspect(leader, following.silent_for(now), now);
        }
        self.phase = Phase::Electing;
        if matches!(cause, Cause::Silence | Cause::NoAnswer) {
            self.suspect(leader, now, effects);
        }
        self.begin_election(cause, now, effects);
    }

    pub(super) fn ping(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        self.next_ping = now + self.config.ping_every;
        let message = self.make_ping(now);
        effects.push(Effect::Broadcast(message));
    }

    pub(super) fn ping_one(&mut self, to: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        if self.is_other(to) {
            let message = self.make_ping(now);
            effects.push(Effect::Send { to, message });
        }
    }

    fn make_ping(&mut self, now: Instant) -> Message {
        let (number, requests) = (self.pings.next(now), self.figures.requests);
        let (interval, config) = (self.quality.asked(), self.installation.config_id());
        Message::Ping { number, requests, interval, config }
    }

    pub(super) fn receive_ping(
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
        let requests = self.figures.requests;
        let no_vote = self.installation.no_vote().map(|no_vote| no_vote.why);
        let (config, promised) = (self.installation.config_id(), self.installation.promised().term);
        let message = Message::Pong {
            number,
            requests,
            life: self.incarnation,
            no_vote,
            standing,
            config,
            promised,
            speaks: self.config.speaks,
        };
        effects.push(Effect::Send { to: from, message });
        // A member that had no vote may have one by now: a first election should not wait for the next round of pings.
        if self.has_vote() && !self.is_led() && self.pings.take_no_vote(from) {
            self.ping_one(from, now, effects);
        }
    }

    pub(super) fn suspect(
        &mut self,
        member: MemberId,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        if !self.pings.suspect(member) {
            return;
        }
        self.tell_suspected(member, true, now, effects);
        if matches!(&self.phase, Phase::Awaiting { leader, .. } if *leader == member) {
            self.begin_election(Cause::SelectedGone, now, effects);
        }
    }

    /// A leader that does not hear a quorum gives up. With leases, their end says it better. One that has just been installed, or has
    /// changed the list, has heard a quorum, by promises: members whose disks are slow answer pings only after that (seed 60102512),
    /// and those that were made voters may not have been asked yet.
    pub(super) fn check_cut_off(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        let heard = self.pings.answering() + 1;
        let fenced = self.config.guarantee == PeerGuarantee::Fenced;
        let cut_off = heard < self.roster().quorum() && self.config.rules.hear_quorum;
        let is_new = now < self.promised_at + self.config.answers_within();
        if matches!(self.phase, Phase::Leading { .. }) && fenced && cut_off && !is_new {
            self.draft(Cause::CutOff, now);
            self.install(installation::Input::Resign, now, effects);
        }
    }

    pub(super) fn tell_suspected(
        &mut self,
        member: MemberId,
        suspected: bool,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        effects.push(Effect::Tell(Event::Suspected { member, suspected }));
        self.select(selection::Input::Suspected { member, suspected }, now, effects);
    }

    /// The connection to a member has broken: it may be gone, or only the connection.
    pub(super) fn hinted(&mut self, member: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        if self.keeps(Safeguard::HintProbed) {
            self.pings.probe(member, now);
        } else {
            self.gone(member, now, effects);
        }
    }

    /// A member does not answer.
    fn gone(&mut self, member: MemberId, now: Instant, effects: &mut Effects<Effect>) {
        if matches!(&self.phase, Phase::Following(f) if f.leader == member) {
            self.lose_leader(Cause::NoAnswer, now, effects);
        } else {
            self.suspect(member, now, effects);
        }
    }

    /// Pings that are due, and what became of earlier ones.
    pub(super) fn handle_pings(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if self.next_ping <= now {
            self.settle_differences(now);
            self.ping(now, effects);
        }
        while let Some(probed) = self.pings.next_probe(now) {
            match probed {
                Probed::Ping(to) => self.ping_one(to, now, effects),
                Probed::Failed(member) => self.gone(member, now, effects),
            }
        }
        while let Some(member) = self.pings.next_silent(now) {
            self.suspect(member, now, effects);
        }
        self.check_cut_off(now, effects);
    }
}
