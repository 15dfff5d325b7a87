//! Small groups by hand: each test cites the line of Algorithm 2, or the decision in the module
//! documentation, that it holds.

use super::*;
use crate::detector::Label;
use alloc::vec::Vec;
use core::num::Wrapping;

const ETA: Duration = Duration::from_millis(330);
const DETECT: Duration = Duration::from_millis(1000);
const DAY: Duration = Duration::from_secs(86_400);

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

/// A member with the list its effects went to.
struct Member {
    machine: NfdL,
    effects: Effects<Effect>,
}

const EPOCH: WallTime = WallTime::from_unix_nanos(1_700_000_000_000_000_000);

fn later(duration: Duration) -> WallTime {
    WallTime::from_unix_nanos(EPOCH.as_unix_nanos() + duration.as_nanos() as u64)
}

impl Member {
    fn boot(config: Config, stored: Option<Stable>, wall: WallTime, now: Instant) -> Self {
        let mut effects = Effects::new();
        let random = Wrapping(config.id().get() as u64 * 1_000_003) + Wrapping(now.as_nanos());
        let boot = Boot { stored, wall, lifetime: Lifetime::new(random.0) };
        let machine = NfdL::start(config, boot, now, &mut effects);
        Member { machine, effects }
    }

    fn new(id: u32) -> Self {
        Self::boot(Config::new(p(id), ETA, DETECT).unwrap(), None, EPOCH, at(0))
    }

    fn tick(&mut self, now: Instant) -> Vec<Effect> {
        self.machine.handle_timeout(now, &mut self.effects);
        self.effects.drain().collect()
    }

    fn hear(&mut self, from: u32, heartbeat: Heartbeat, now: Instant) -> Vec<Effect> {
        let input = Input::Received { from: p(from), heartbeat };
        self.machine.handle(input, now, &mut self.effects);
        self.effects.drain().collect()
    }

    fn leader(&self) -> Option<u32> {
        self.machine.leader().map(MemberId::get)
    }
}

fn beat_at(ms: i64, uptime_ms: u64) -> Heartbeat {
    Heartbeat {
        lifetime: Lifetime::new(7),
        beat: Beat { label: Label::from_nanos(ms * 1_000_000), interval: ETA },
        uptime: Duration::from_millis(uptime_ms),
        priority: 0,
    }
}

fn broadcasts(effects: &[Effect]) -> Vec<Heartbeat> {
    let heartbeat = |effect: &Effect| match effect {
        Effect::Broadcast(heartbeat) => Some(*heartbeat),
        _ => None,
    };
    effects.iter().filter_map(heartbeat).collect()
}

#[test]
fn lines_5_to_7_store_zero_time_at_the_very_first_start_and_never_again() {
    let mut first = Member::new(1);
    let stable = Stable { zero: EPOCH };
    assert_eq!(first.effects.pop(), Some(Effect::Persist(stable)));
    let config = *first.machine.config();
    let mut again = Member::boot(config, Some(stable), later(DAY), at(0));
    assert_eq!(again.effects.pop(), None);
}

#[test]
fn line_8_labels_go_on_after_a_crash_as_if_they_had_only_paused() {
    let config = Config::new(p(1), ETA, DETECT).unwrap();
    let stored = Some(Stable { zero: EPOCH });
    let mut member = Member::boot(config, stored, later(DAY), at(5_000));
    let sent = broadcasts(&member.tick(at(5_330)));
    assert_eq!(sent[0].beat.label, Label::from_nanos((DAY + ETA).as_nanos() as i64));
}

#[test]
fn a_newcomer_listens_for_one_interval_and_then_claims_and_beats_at_once() {
    let mut member = Member::new(1);
    member.effects.drain().count();
    assert_eq!(member.leader(), None);
    assert_eq!(member.machine.deadline(), Some(at(330)));
    assert!(member.tick(at(329)).is_empty());
    let effects = member.tick(at(330));
    let claimed = Event::LeaderChanged { leader: Some(p(1)), reason: Reason::NoneHeard };
    assert_eq!(effects[0], Effect::Tell(claimed));
    assert_eq!(broadcasts(&effects).len(), 1);
    assert_eq!(member.machine.deadline(), Some(at(660)));
}

#[test]
fn a_newcomer_that_hears_a_leader_follows_it_and_stays_silent() {
    let mut member = Member::new(9);
    member.effects.drain().count();
    let effects = member.hear(1, beat_at(0, 50_000), at(100));
    let heard = Event::LeaderChanged { leader: Some(p(1)), reason: Reason::Heard };
    assert_eq!(effects, [Effect::Tell(heard)]);
    assert!(member.tick(at(330)).is_empty());
    assert_eq!(member.leader(), Some(1));
}

#[test]
fn lines_32_to_34_claim_when_the_leader_falls_silent() {
    let mut member = Member::new(2);
    member.hear(1, beat_at(0, 0), at(100));
    assert_eq!(member.machine.deadline(), Some(at(1100)));
    let effects = member.tick(at(1100));
    let claimed = Event::LeaderChanged { leader: Some(p(2)), reason: Reason::Silence };
    assert_eq!(effects[0], Effect::Tell(claimed));
}

#[test]
fn lines_16_to_19_only_fresh_heartbeats_of_the_leader_move_the_freshness_point() {
    let mut member = Member::new(2);
    member.hear(1, beat_at(330, 330), at(430));
    member.hear(1, beat_at(0, 0), at(440));
    assert_eq!(member.machine.deadline(), Some(at(1430)));
    member.hear(1, beat_at(660, 660), at(760));
    assert_eq!(member.machine.deadline(), Some(at(1760)));
}

#[test]
fn lines_21_to_24_a_leader_follows_the_one_that_has_led_longer() {
    let mut member = Member::new(9);
    member.tick(at(330));
    assert_eq!(member.leader(), Some(9));
    let effects = member.hear(1, beat_at(0, 60_000), at(400));
    let unseated = Event::LeaderChanged { leader: Some(p(1)), reason: Reason::Seniority };
    assert_eq!(effects, [Effect::Tell(unseated)]);
}

#[test]
fn stability_a_leader_is_not_unseated_by_a_newcomer_whatever_its_id() {
    let mut member = Member::new(1);
    for ms in (330..60_000).step_by(330) {
        member.tick(at(ms));
    }
    assert!(member.hear(9, beat_at(0, 0), at(60_000)).is_empty());
    assert!(member.hear(9, beat_at(330, 20_000), at(60_330)).is_empty());
    assert_eq!(member.leader(), Some(1));
}

#[test]
fn lines_26_to_30_of_equals_the_higher_id_leads() {
    let mut low = Member::new(1);
    let mut high = Member::new(2);
    let from_low = broadcasts(&low.tick(at(330)))[0];
    let from_high = broadcasts(&high.tick(at(330)))[0];
    low.hear(2, from_high, at(331));
    high.hear(1, from_low, at(331));
    assert_eq!((low.leader(), high.leader()), (Some(2), Some(2)));
}

/// Two leaders that began half an interval apart, the younger with the higher id, exchanging
/// every heartbeat without loss. Returns how many still lead after `rounds` intervals.
fn leaders_after(rounds: u64, seniority: Seniority) -> usize {
    let config = |id| Config::new(p(id), ETA, DETECT).unwrap().with_seniority(seniority);
    let mut older = Member::boot(config(1), None, EPOCH, at(0));
    let mut younger = Member::boot(config(2), None, EPOCH, at(165));
    for ms in 0..rounds * 330 {
        for heartbeat in broadcasts(&older.tick(at(ms))) {
            // Nothing is delivered before both lead.
            if ms >= 495 {
                younger.hear(1, heartbeat, at(ms));
            }
        }
        for heartbeat in broadcasts(&younger.tick(at(ms))) {
            if ms > 495 {
                older.hear(2, heartbeat, at(ms));
            }
        }
    }
    [older, younger].iter().filter(|member| member.machine.leads_since().is_some()).count()
}

#[test]
fn the_printed_comparison_of_uptimes_leaves_two_leaders_for_ever_and_classes_do_not() {
    assert_eq!(leaders_after(10_000, Seniority::Printed), 2);
    assert_eq!(leaders_after(10, Seniority::Classes), 1);
}

#[test]
fn a_leader_that_comes_back_inside_its_freshness_period_is_not_suspected() {
    let mut member = Member::new(2);
    member.hear(1, beat_at(0, 60_000), at(100));
    let mut reborn = beat_at(800, 0);
    reborn.lifetime = Lifetime::new(8);
    let effects = member.hear(1, reborn, at(900));
    assert_eq!(effects, [Effect::Tell(Event::LeaderRestarted { leader: p(1) })]);
    assert_eq!(member.machine.deadline(), Some(at(1900)));
    // What was under way from its former life changes nothing any more.
    assert!(member.hear(1, beat_at(330, 60_330), at(910)).is_empty());
    assert_eq!(member.machine.deadline(), Some(at(1900)));
}

#[test]
fn a_clock_that_stepped_back_mutes_a_leader_for_one_detection_time_at_most() {
    let hour = 3_600_000;
    let mut member = Member::new(2);
    member.hear(1, beat_at(hour, 60_000), at(100));
    let mut reborn = beat_at(0, 0);
    reborn.lifetime = Lifetime::new(8);
    assert!(member.hear(1, reborn, at(500)).is_empty());
    member.tick(at(1100));
    assert_eq!(member.leader(), Some(2));
    let mut reborn = beat_at(700, 700);
    reborn.lifetime = Lifetime::new(8);
    member.hear(1, reborn, at(1200));
    assert_eq!(member.leader(), Some(1), "it has led for 700 ms, and we for 100");
}

#[test]
fn a_clock_before_zero_time_is_reported_and_labels_still_rise() {
    let config = Config::new(p(1), ETA, DETECT).unwrap();
    let stored = Some(Stable { zero: later(DAY) });
    let mut member = Member::boot(config, stored, EPOCH, at(0));
    let effects = member.tick(at(330));
    assert_eq!(effects[0], Effect::Tell(Event::ClockBehind { by: DAY }));
    let label = broadcasts(&effects)[0].beat.label;
    assert_eq!(label, Label::from_nanos(-((DAY - ETA).as_nanos() as i64)));
}

#[test]
fn a_follower_that_was_stalled_reads_its_mail_before_it_suspects() {
    let mut member = Member::new(2);
    member.hear(1, beat_at(0, 60_000), at(100));
    assert!(member.tick(at(20_000)).is_empty());
    assert_eq!(member.leader(), Some(1));
    assert_eq!(member.machine.deadline(), Some(at(20_330)));
    // The backlog does not revive a dead leader, and lateness is forgiven once.
    member.hear(1, beat_at(330, 60_330), at(20_001));
    member.hear(1, beat_at(660, 60_660), at(20_001));
    member.tick(at(25_000));
    assert_eq!(member.leader(), Some(2));
}

#[test]
fn a_leader_that_was_stalled_listens_before_it_leads_on() {
    let mut member = Member::new(2);
    member.tick(at(330));
    let effects = member.tick(at(20_000));
    let stalled = Event::LeaderChanged { leader: None, reason: Reason::Stalled };
    assert_eq!(effects, [Effect::Tell(stalled)]);
    // A short stall is not worth an election.
    let mut member = Member::new(2);
    member.tick(at(330));
    assert_eq!(broadcasts(&member.tick(at(1200))).len(), 1);
    assert_eq!(member.leader(), Some(2));
}

#[test]
fn a_follower_that_heard_a_claim_follows_the_claimant_when_its_leader_falls_silent() {
    let mut member = Member::new(9);
    member.hear(1, beat_at(0, 60_000), at(100));
    assert!(member.hear(3, beat_at(0, 0), at(1090)).is_empty());
    let effects = member.tick(at(1100));
    let followed = Event::LeaderChanged { leader: Some(p(3)), reason: Reason::Silence };
    assert_eq!(effects, [Effect::Tell(followed)]);
}

#[test]
fn section_4_1_a_member_of_higher_priority_takes_over_at_once() {
    let favoured = Config::new(p(1), ETA, DETECT).unwrap().with_priority(1);
    let mut member = Member::boot(favoured, None, EPOCH, at(0));
    member.effects.drain().count();
    let effects = member.hear(5, beat_at(0, 60_000), at(50));
    let claimed = Event::LeaderChanged { leader: Some(p(1)), reason: Reason::Priority };
    assert_eq!(effects[0], Effect::Tell(claimed));
    let heartbeat = broadcasts(&effects)[0];
    let mut other = Member::new(5);
    other.tick(at(330));
    other.hear(1, heartbeat, at(400));
    assert_eq!(other.leader(), Some(1));
}

#[test]
fn another_process_with_our_id_is_reported_once() {
    let mut member = Member::new(1);
    member.effects.drain().count();
    let lifetime = Lifetime::new(7);
    let effects = member.hear(1, beat_at(0, 0), at(10));
    assert_eq!(effects, [Effect::Tell(Event::DuplicateId { lifetime })]);
    assert!(member.hear(1, beat_at(330, 330), at(340)).is_empty());
}

#[test]
fn memory_is_bounded_whoever_writes_to_us() {
    let config = Config::new(p(1), ETA, DETECT).unwrap().with_max_peers(10);
    let mut member = Member::boot(config, None, EPOCH, at(0));
    for id in 2..500 {
        member.hear(id, beat_at(0, 0), at(u64::from(id)));
    }
    assert_eq!(member.machine.peers.len(), 10);
    // Once the first ten are silent there is room for others.
    member.hear(600, beat_at(0, 0), at(60_000));
    assert!(member.machine.peers.contains_key(&p(600)));
    assert_eq!(member.machine.peers.len(), 10);
}

#[test]
fn a_new_plan_takes_hold_and_a_senseless_one_does_not() {
    let mut member = Member::new(1);
    member.tick(at(330));
    let replan = |interval, detect| Input::Replan { interval, detect };
    let mut effects = Effects::new();
    member.machine.handle(replan(DETECT, DETECT), at(400), &mut effects);
    member.machine.handle(replan(Duration::ZERO, DETECT), at(400), &mut effects);
    assert_eq!(member.machine.deadline(), Some(at(660)));
    member.machine.handle(replan(ETA / 3, DETECT / 2), at(400), &mut effects);
    assert_eq!(member.machine.deadline(), Some(at(440)));
}
