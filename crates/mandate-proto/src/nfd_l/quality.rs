//! The plan kept current: followers measure the link from their leader, and ask it for another interval.
//!
//! The paper's followers are silent. Here they speak once in [`REVIEW_EVERY`](crate::detector::planner::REVIEW_EVERY)
//! heartbeats, where bounds on mistakes are given, and not at all where they are not. A leader knows nothing of who
//! follows it; it beats as often as the most demanding of those that asked lately, and never less often than
//! it is configured to.

use core::time::Duration;

use super::{Effect, Event, Message, NfdL, Role};
use crate::detector::Beat;
use crate::identity::MemberId;
use crate::machine::Effects;

impl NfdL {
    /// After a heartbeat of our leader: sometimes the plan is looked at, and the leader asked.
    pub(super) fn look_at_plan(
        &mut self,
        from: MemberId,
        beat: Beat,
        effects: &mut Effects<Effect>,
    ) {
        if self.role != (Role::Following { leader: from }) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let delay = self.delay.filter(|(member, _)| *member == from).map(|(_, delay)| delay);
        let estimate = || peer.link.estimate();
        let Some(look) = self.quality.heartbeat(beat, delay.unwrap_or_default(), estimate) else {
            return;
        };
        peer.detector.set_detect(look.detect);
        if let Some(reason) = look.unachievable {
            effects.push(Effect::Tell(Event::Unachievable { leader: from, reason }));
        }
        if let Some(interval) = self.quality.asked() {
            effects.push(Effect::Send { to: from, message: Message::Ask { interval } });
        }
    }

    pub(super) fn receive_request(&mut self, from: MemberId, interval: Duration) {
        // As many as can be remembered, so that strangers cannot fill the memory.
        let requests = &self.quality.requests;
        let known = requests.monitors().any(|id| id == from);
        if known || requests.monitors().count() < self.config.max_peers() {
            self.quality.requests.take(from, Some(interval));
        }
    }

    /// Beats as often as is asked.
    pub(super) fn heed_requests(&mut self) {
        let Some(wanted) = self.config.wanted() else { return };
        let (first, requests) = (self.config.interval(), &self.quality.requests);
        let interval = requests.interval(requests.monitors(), first, wanted.min_interval, first);
        if interval != self.schedule.interval() {
            self.schedule.set_interval(interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::detector::planner::{FORGOTTEN_AFTER, REVIEW_EVERY};
    use crate::time::WallTime;
    use alloc::vec::Vec;

    const MS: Duration = Duration::from_millis(1);

    fn start(id: u32) -> NfdL {
        let config = Config::new(MemberId::new(id), MS * 330, MS * 1000).unwrap();
        let config = config.with_mistakes(Duration::from_secs(3600), MS * 1000, MS * 10).unwrap();
        let wall = WallTime::from_unix_nanos(1_700_000_000_000_000_000);
        let boot = Boot { stored: None, wall, lifetime: Incarnation::new(id.into()) };
        NfdL::start(config, boot, Instant::ORIGIN, &mut Effects::new())
    }

    /// A leader and a follower, on a link that loses every fourth heartbeat.
    #[test]
    fn a_follower_behind_a_bad_link_gets_heartbeats_more_often() {
        let (mut leader, mut follower) = (start(1), start(2));
        let mut effects = Effects::new();
        let mut asked = Vec::new();
        for beat in 0..REVIEW_EVERY * 3 {
            let due = leader.deadline().unwrap();
            leader.handle_timeout(due, &mut effects);
            let sent: Vec<_> = effects.drain().collect();
            for message in sent.into_iter().filter_map(broadcast).filter(|_| beat % 4 != 3) {
                let input = Input::Received { from: MemberId::new(1), message };
                follower.handle(input, due + MS, &mut effects);
            }
            for effect in effects.drain() {
                if let Effect::Send { message: Message::Ask { interval }, .. } = effect {
                    asked.push(interval);
                }
            }
            for interval in asked.iter().copied() {
                let input =
                    Input::Received { from: MemberId::new(2), message: Message::Ask { interval } };
                leader.handle(input, due, &mut effects);
            }
        }
        assert!(!asked.is_empty() && asked[0] < MS * 200, "{asked:?}");
        let detection = follower.detection(Instant::ORIGIN);
        assert_eq!(detection.watched.unwrap().interval, *asked.last().unwrap());
        assert!(detection.wanted.is_some() && detection.unachievable.is_none());
    }

    fn broadcast(effect: Effect) -> Option<Message> {
        match effect {
            Effect::Broadcast(message) => Some(message),
            _ => None,
        }
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten_and_what_is_absurd_is_bounded() {
        let mut leader = start(1);
        let mut effects = Effects::new();
        leader.handle_timeout(leader.deadline().unwrap(), &mut effects);
        let message = Message::Ask { interval: Duration::from_nanos(1) };
        let input = Input::Received { from: MemberId::new(2), message };
        leader.handle(input, leader.schedule.last().unwrap(), &mut effects);
        let mut interval = |leader: &mut NfdL| {
            let due = leader.deadline().unwrap();
            leader.handle_timeout(due, &mut effects);
            leader.deadline().unwrap() - due
        };
        interval(&mut leader);
        assert_eq!(interval(&mut leader), MS * 10, "no more often than it allows");
        for _ in 0..FORGOTTEN_AFTER {
            interval(&mut leader);
        }
        assert_eq!(interval(&mut leader), MS * 330);
    }
}
