//! Small groups by hand: each test cites the line of Algorithm 2, or the decision in the module
//! documentation, that it holds.

use super::*;
use crate::detector::Beat;
use crate::time::WallTime;
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
        let boot = Boot { stored, wall, lifetime: Incarnation::new(random.0) };
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
        let input = Input::Received { from: p(from), message: Message::Heartbeat(heartbeat) };
        self.machine.handle(input, now, &mut self.effects);
        self.effects.drain().collect()
    }

    fn leader(&self) -> Option<u32> {
        self.machine.leader().map(MemberId::get)
    }
}

fn beat_at(ms: i64, uptime_ms: u64) -> Heartbeat {
    Heartbeat {
        lifetime: Incarnation::new(7),
        beat: Beat { label: Label::from_nanos(ms * 1_000_000), interval: ETA },
        uptime: Duration::from_millis(uptime_ms),
        priority: 0,
    }
}

fn broadcasts(effects: &[Effect]) -> Vec<Heartbeat> {
    let heartbeat = |effect: &Effect| match effect {
        Effect::Broadcast(Message::Heartbeat(heartbeat)) => Some(*heartbeat),
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
    reborn.lifetime = Incarnation::new(8);
    let effects = member.hear(1, reborn, at(900));
    assert_eq!(effects, [Effect::Tell(Event::LeaderRestarted { leader: p(1) })]);
    assert_eq!(member.machine.deadline(), Some(at(1900)));
    // What was under way from its former incarnation changes nothing any more.
    assert!(member.hear(1, beat_at(330, 60_330), at(910)).is_empty());
    assert_eq!(member.machine.deadline(), Some(at(1900)));
}

#[test]
fn a_clock_that_stepped_back_mutes_a_leader_for_one_detection_time_at_most() {
    let hour = 3_600_000;
    let mut member = Member::new(2);
    member.hear(1, beat_at(hour, 60_000), at(100));
    let mut reborn = beat_at(0, 0);
    reborn.lifetime = Incarnation::new(8);
    assert!(member.hear(1, reborn, at(500)).is_empty());
    member.tick(at(1100));
    assert_eq!(member.leader(), Some(2));
    let mut reborn = beat_at(700, 700);
    reborn.lifetime = Incarnation::new(8);
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
    let lifetime = Incarnation::new(7);
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
    assert!(member.machine.peers.contains_key(&member.machine.leader().unwrap()));
    member.hear(600, beat_at(0, 0), at(60_000));
    assert!(member.machine.peers.contains_key(&p(600)));
    assert_eq!(member.machine.peers.len(), 10);
}

#[test]
fn a_leader_that_was_heard_for_long_takes_less_than_a_kilobyte() {
    let mut member = Member::new(2);
    for i in 0..5_000 {
        member.hear(1, beat_at(330 * i, 330 * i as u64), at(330 * i as u64 + 5));
    }
    let bytes = member.machine.heap_bytes();
    assert!((256..1024).contains(&bytes), "{bytes}");
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
    // Announced with a heartbeat at once: our last must not be older than the new bound allows.
    let sent = broadcasts(&effects.drain().collect::<Vec<_>>());
    assert_eq!(sent[0].beat.interval, ETA / 3);
    assert_eq!(member.machine.deadline(), Some(at(510)));
    assert_eq!(member.leader(), Some(1));
}

#[test]
fn a_much_shorter_plan_does_not_depose_a_healthy_leader() {
    let mut member = Member::new(1);
    member.tick(at(330));
    let ms = Duration::from_millis;
    let replan = Input::Replan { interval: ms(50), detect: ms(150) };
    member.machine.handle(replan, at(600), &mut member.effects);
    member.tick(at(650));
    assert_eq!(member.leader(), Some(1));
}

#[test]
fn members_with_different_intervals_agree_who_is_senior() {
    let second = Duration::from_secs(1);
    let config = |id, interval| Config::new(p(id), interval, second).unwrap();
    let mut older = Member::boot(config(1, ETA / 3), None, EPOCH, at(0));
    let mut younger = Member::boot(config(2, ETA), None, EPOCH, at(0));
    older.tick(at(110));
    younger.tick(at(330));
    let days = |days: u64| at(days * 86_400_000);
    // Cut off from each other for days; heard again in a class that both see alike.
    let beat = |member: &mut Member, from: u64, heard: Instant| {
        member.machine.role = Role::Leading { since: days(from) };
        member.machine.schedule.begin(heard);
        broadcasts(&member.tick(heard))[0]
    };
    let from_older = beat(&mut older, 1, days(4));
    let from_younger = beat(&mut younger, 2, days(4));
    older.hear(2, from_younger, days(4));
    younger.hear(1, from_older, days(4));
    let leaders = [older.leader(), younger.leader()];
    assert!(leaders == [Some(1); 2] || leaders == [Some(2); 2], "{leaders:?}");
}

#[test]
fn a_leader_does_not_give_way_to_one_that_has_given_way_itself() {
    let mut member = Member::new(5);
    member.tick(at(330));
    // A leader of the same class but a lower id is heard, and will give way to us.
    member.hear(1, beat_at(0, 480), at(500));
    assert_eq!(member.leader(), Some(5));
    // By now it would have grown into the next class, had it stayed.
    assert!(member.hear(3, beat_at(0, 0), at(850)).is_empty());
    assert_eq!(member.leader(), Some(5));
}

#[test]
fn a_straggler_from_a_former_life_does_not_displace_the_present_one() {
    let mut member = Member::new(2);
    let former = |ms, uptime| beat_at(ms, uptime);
    let present = |ms, uptime| Heartbeat { lifetime: Incarnation::new(8), ..beat_at(ms, uptime) };
    member.hear(1, former(3_600_000, 60_000), at(100));
    member.tick(at(1100));
    // Its wall clock was set back an hour: lower labels, a new incarnation.
    member.hear(1, present(1_000, 5_000), at(1200));
    assert_eq!(member.leader(), Some(1));
    assert!(member.hear(1, former(3_599_670, 59_670), at(1300)).is_empty());
    assert_eq!(member.machine.deadline(), Some(at(2200)));
    member.hear(1, present(1_330, 5_330), at(1530));
    assert_eq!(member.machine.deadline(), Some(at(2530)));
}

#[test]
fn a_new_reign_is_not_judged_by_the_delays_of_an_old_one() {
    let mut member = Member::new(2);
    // An old reign, heard with hardly any delay.
    for i in 0..40 {
        member.hear(1, beat_at(330 * i, 60_000 + 330 * i as u64), at(330 * i as u64));
    }
    // Much later it claims again, and its clock has fallen back by most of the detection time.
    let hour = 3_600_000;
    member.hear(9, beat_at(hour, 9_000_000), at(hour as u64));
    member.hear(1, beat_at(hour, 0), at(hour as u64 + 900));
    member.tick(at(hour as u64 + 1000));
    assert_eq!(member.leader(), Some(1));
    assert_eq!(member.machine.deadline(), Some(at(hour as u64 + 1900)));
    // A straggler of the old reign is not a new one.
    let mut other = Member::new(2);
    other.hear(1, beat_at(0, 60_000), at(0));
    other.tick(at(1000));
    assert!(other.hear(1, beat_at(330, 60_330), at(9_000)).is_empty());
}

#[test]
fn a_leader_that_beats_too_seldom_for_our_bound_is_reported_once() {
    let mut member = Member::new(2);
    member.effects.drain().count();
    let slow = |ms| {
        let mut heartbeat = beat_at(ms, 60_000);
        heartbeat.beat.interval = DETECT * 2;
        heartbeat
    };
    let effects = member.hear(1, slow(0), at(100));
    let interval = DETECT * 2;
    let told = Event::LeaderTooSlow { leader: p(1), interval };
    assert_eq!(effects[1], Effect::Tell(told));
    assert!(member.hear(1, slow(2_000), at(2_100)).is_empty());
}

/// Heartbeats of all kinds, from anyone, at any time: no panic, no more memory than allowed, and
/// always a deadline that lies ahead.
#[test]
fn nothing_a_peer_sends_breaks_a_member() {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    let label = prop_oneof![any::<i64>(), 0i64..20_000_000_000, Just(i64::MIN), Just(i64::MAX)];
    let nanos = || prop_oneof![any::<u64>(), 0u64..2_000_000_000, Just(0)];
    let step = (0u32..5, 0u64..3, label, nanos(), nanos(), any::<u8>(), 0u64..2_000);
    let steps = prop::collection::vec(step, 1..120);
    let run = |steps: Vec<(u32, u64, i64, u64, u64, u8, u64)>| {
        let config = Config::new(p(1), ETA, DETECT).unwrap().with_max_peers(2);
        let mut member = Member::boot(config, None, EPOCH, at(0));
        let mut now = at(0);
        for (from, incarnation, label, interval, uptime, priority, wait) in steps {
            now += Duration::from_millis(wait);
            let heartbeat = Heartbeat {
                lifetime: Incarnation::new(incarnation),
                beat: Beat {
                    label: Label::from_nanos(label),
                    interval: Duration::from_nanos(interval),
                },
                uptime: Duration::from_nanos(uptime),
                priority: priority & 1,
            };
            member.hear(from, heartbeat, now);
            // Forgiving, claiming and beating are one step each.
            for _ in 0..3 {
                member.tick(now);
            }
            prop_assert!(member.machine.deadline().is_some_and(|deadline| deadline > now));
            prop_assert!(member.machine.peers.len() <= 2);
        }
        Ok(())
    };
    TestRunner::default().run(&steps, run).unwrap();
}
