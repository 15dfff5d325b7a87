//! Giving leadership up.
//!
//! The paper has no such thing: a leader that ends is silent, and is missed after the detection time. A farewell
//! spares the others the wait. It changes nothing else: it may be lost, and then the silence says it.

use super::{Effect, Input, Message, NfdL, Reason, Role};
use crate::detector::{FailureDetector, Label};
use crate::election::{Elector, Lease};
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine::Effects;
use crate::time::Instant;

impl Elector for NfdL {
    fn resign() -> Input {
        Input::Resign
    }

    /// A leader that has sent nothing for a whole detection time has been given up by the others.
    fn held(&self, now: Instant) -> Option<Lease> {
        let began = self.leads_since()?;
        let until = self.believed_until()?;
        (now < until).then_some(Lease { term: Term::NONE, began, until: Some(until) })
    }
}

impl NfdL {
    pub(super) fn abstains(&self, now: Instant) -> bool {
        self.abstains_until.is_some_and(|until| now < until)
    }

    /// Falls silent, and claims nothing until the others must have noticed and one of them was heard.
    pub(super) fn resign(&mut self, now: Instant, effects: &mut Effects<Effect>) {
        if !matches!(self.role, Role::Leading { .. }) {
            return;
        }
        let (lifetime, label) = (self.lifetime, self.schedule.label(now));
        effects.push(Effect::Broadcast(Message::Farewell { lifetime, label }));
        let until = now + self.config.detect() + self.config.interval() * 2;
        self.abstains_until = Some(until);
        self.listen(until, Reason::Resigned, now, effects);
    }

    pub(super) fn receive_farewell(
        &mut self,
        from: MemberId,
        lifetime: Incarnation,
        label: Label,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        // One that was overtaken by a heartbeat of a later reign says nothing of that reign.
        if peer.lifetime != lifetime || Some(label) < peer.detector.latest() {
            return;
        }
        let was_trusted = peer.detector.trusted_until().is_some_and(|until| now < until);
        peer.detector.expire(label, now);
        if was_trusted && self.role == (Role::Following { leader: from }) {
            self.replace(Reason::Resigned, now, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::detector::Beat;
    use crate::time::WallTime;
    use alloc::vec::Vec;

    const ETA: Duration = Duration::from_millis(330);
    const DETECT: Duration = Duration::from_millis(1000);

    fn at(ms: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(ms)
    }

    fn start(id: u32, priority: u8) -> NfdL {
        let config = Config::new(MemberId::new(id), ETA, DETECT).unwrap().with_priority(priority);
        let wall = WallTime::from_unix_nanos(1_700_000_000_000_000_000);
        let boot = Boot { stored: None, wall, lifetime: Incarnation::new(id.into()) };
        NfdL::start(config, boot, at(0), &mut Effects::new())
    }

    fn tell(machine: &mut NfdL, input: Input, now: Instant) -> Vec<Effect> {
        let mut effects = Effects::new();
        machine.handle(input, now, &mut effects);
        effects.drain().collect()
    }

    fn tick(machine: &mut NfdL, now: Instant) -> Vec<Effect> {
        let mut effects = Effects::new();
        machine.handle_timeout(now, &mut effects);
        effects.drain().collect()
    }

    fn heartbeat(ms: i64) -> Message {
        let beat = Beat { label: Label::from_nanos(ms * 1_000_000), interval: ETA };
        let lifetime = Incarnation::new(7);
        Message::Heartbeat(Heartbeat { lifetime, beat, uptime: DETECT * 9, priority: 0 })
    }

    fn hear(machine: &mut NfdL, message: Message, now: Instant) -> Vec<Effect> {
        tell(machine, Input::Received { from: MemberId::new(1), message }, now)
    }

    #[test]
    fn a_leader_that_resigns_says_farewell_and_abstains_until_the_others_must_have_noticed() {
        // Even one that is preferred.
        let mut machine = start(9, 3);
        tick(&mut machine, at(330));
        assert!(machine.leads_since().is_some());
        let effects = tell(&mut machine, Input::Resign, at(400));
        assert!(matches!(effects[0], Effect::Broadcast(Message::Farewell { .. })));
        assert_eq!(machine.leader(), None);
        hear(&mut machine, heartbeat(0), at(410));
        assert_eq!(machine.leader(), Some(MemberId::new(1)));
        hear(&mut machine, heartbeat(330), at(740));
        assert_eq!(machine.leader(), Some(MemberId::new(1)));
        assert!(
            tell(&mut machine, Input::Resign, at(750)).is_empty(),
            "there is nothing to give up"
        );
        for beat in 2..7 {
            hear(&mut machine, heartbeat(beat * 330), at(410 + beat as u64 * 330));
        }
        assert_eq!(machine.leader(), Some(MemberId::new(9)), "preferred, as before");
        let mut alone = start(9, 0);
        tick(&mut alone, at(330));
        tell(&mut alone, Input::Resign, at(400));
        tick(&mut alone, at(2059));
        assert_eq!(alone.leader(), None);
        tick(&mut alone, at(2060));
        assert_eq!(alone.leader(), Some(MemberId::new(9)), "nobody else wants to");
    }

    #[test]
    fn a_follower_that_hears_the_farewell_of_its_leader_claims_at_once() {
        let mut machine = start(2, 0);
        hear(&mut machine, heartbeat(0), at(10));
        let (lifetime, label) = (Incarnation::new(7), Label::from_nanos(200_000_000));
        let stranger = Message::Farewell { lifetime: Incarnation::new(8), label };
        hear(&mut machine, stranger, at(205));
        assert_eq!(machine.leader(), Some(MemberId::new(1)), "of another life");
        let effects = hear(&mut machine, Message::Farewell { lifetime, label }, at(210));
        let leader = Some(MemberId::new(2));
        let changed = Event::LeaderChanged { leader, reason: Reason::Resigned };
        assert_eq!(effects[0], Effect::Tell(changed));
        assert_eq!(machine.detection(at(300)).service.detections.count, 0);
        hear(&mut machine, heartbeat(190), at(215));
        assert_eq!(machine.leader(), leader, "a heartbeat that the farewell overtook");
    }

    #[test]
    fn a_farewell_that_was_overtaken_by_a_later_reign_says_nothing_of_it() {
        let mut machine = start(2, 0);
        hear(&mut machine, heartbeat(1000), at(1010));
        let (lifetime, label) = (Incarnation::new(7), Label::from_nanos(200_000_000));
        assert!(hear(&mut machine, Message::Farewell { lifetime, label }, at(1020)).is_empty());
        assert_eq!(machine.leader(), Some(MemberId::new(1)));
    }
}
