//! Algorithm 1 line by line, on a small network in virtual time.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec;

const T: Duration = Duration::from_millis(1000);

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

fn score(value: f64) -> Score {
    Score::new(&[value]).unwrap()
}

fn standing(value: f64) -> Candidacy {
    Ok(Measured { values: score(value), score: score(value) })
}

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + Duration::from_millis(ms)
}

/// A group whose messages take `delay_ms(from, to)`, some of whose members are down or cut off.
struct Group {
    members: Vec<Selection>,
    delay_ms: fn(u32, u32) -> u64,
    down: BTreeSet<u32>,
    under_way: Vec<(Instant, u64, MemberId, MemberId, Message)>,
    elected: BTreeMap<u32, (Instant, MemberId, SelectionEnd)>,
    sent: u64,
    now: Instant,
}

impl Group {
    /// Members 1 to n with these scores.
    fn new(scores: &[Option<f64>], rules: Rules) -> Self {
        let ids: Vec<_> = (1..=scores.len() as u32).map(p).collect();
        let member = |(id, value): (MemberId, &Option<f64>)| {
            let config = Config { me: id, members: ids.clone(), timeout: T, rules };
            let mut member = Selection::new(config);
            let scored = Input::Scored(value.map_or(Err(NoScore::Never), standing));
            member.handle(scored, at(0), &mut Effects::new());
            member
        };
        Group {
            members: ids.iter().copied().zip(scores).map(member).collect(),
            delay_ms: |_, _| 10,
            down: BTreeSet::new(),
            under_way: Vec::new(),
            elected: BTreeMap::new(),
            sent: 0,
            now: at(0),
        }
    }

    fn member(&mut self, id: u32) -> &mut Selection {
        &mut self.members[id as usize - 1]
    }

    fn tell(&mut self, id: u32, input: Input) {
        let mut effects = Effects::new();
        let now = self.now;
        self.member(id).handle(input, now, &mut effects);
        self.carry_out(id, effects);
    }

    fn carry_out(&mut self, id: u32, mut effects: Effects<Effect>) {
        let size = self.members.len() as u32;
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Send { to, message } => self.send(id, to.get(), message),
                Effect::Broadcast(message) => {
                    (1..=size).filter(|to| *to != id).for_each(|to| self.send(id, to, message));
                }
                Effect::Tell(Event::Elected { leader, ended, .. }) => {
                    self.elected.insert(id, (self.now, leader, ended));
                }
                Effect::Persist(never) => match never {},
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        self.sent += 1;
        let arrives = self.now + Duration::from_millis((self.delay_ms)(from, to));
        self.under_way.push((arrives, self.sent, p(from), p(to), message));
    }

    /// Runs until `until`: deliveries and timers in order of time.
    fn run_until(&mut self, until: Instant) {
        loop {
            let up = |id: u32| !self.down.contains(&id);
            let delivery = self.under_way.iter().map(|m| (m.0, m.1)).min();
            let timer = (1..=self.members.len() as u32)
                .filter(|id| up(*id))
                .filter_map(|id| self.members[id as usize - 1].deadline().map(|at| (at, id)))
                .min();
            let next = delivery.map(|d| d.0).into_iter().chain(timer.map(|t| t.0)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now = self.now.max(next);
            if let Some((_, number)) = delivery.filter(|(at, _)| *at == next) {
                let place = self.under_way.iter().position(|m| m.1 == number).unwrap();
                let (_, _, from, to, message) = self.under_way.swap_remove(place);
                if !self.down.contains(&to.get()) {
                    self.tell(to.get(), Input::Received { from, message });
                }
            } else if let Some((_, id)) = timer {
                let (now, mut effects) = (self.now, Effects::new());
                self.member(id).handle_timeout(now, &mut effects);
                self.carry_out(id, effects);
            }
        }
        self.now = until;
    }

    /// Everyone that is up notices at once that there is no leader.
    fn elect(&mut self) {
        for id in 1..=self.members.len() as u32 {
            if !self.down.contains(&id) {
                self.tell(id, Input::Elect { above: Term::NONE });
            }
        }
    }

    fn crash(&mut self, id: u32) {
        self.down.insert(id);
        for other in (1..=self.members.len() as u32).filter(|other| *other != id) {
            self.tell(other, Input::Suspected { member: p(id), suspected: true });
        }
    }

    fn leaders(&self) -> BTreeSet<MemberId> {
        self.elected.values().map(|(_, leader, _)| *leader).collect()
    }
}

fn scores(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().map(|value| Some(*value)).collect()
}

#[test]
fn section_3_2_the_highest_score_is_elected_everywhere_at_once_when_all_propose() {
    let mut group = Group::new(&scores(&[3.0, 9.0, 5.0, 1.0, 2.0]), Rules::PAPER);
    group.elect();
    group.run_until(at(10));
    assert_eq!(group.elected.len(), 5);
    for (when, leader, ended) in group.elected.values() {
        assert_eq!((*when, *leader, *ended), (at(10), p(2), SelectionEnd::Everyone));
    }
}

#[test]
fn equal_scores_elect_the_highest_id() {
    let mut group = Group::new(&scores(&[1.0; 5]), Rules::default());
    group.elect();
    group.run_until(at(100));
    assert_eq!(group.leaders(), [p(5)].into());
}

#[test]
fn line_50_with_a_member_down_the_paper_waits_out_the_timer() {
    let mut group = Group::new(&scores(&[3.0, 9.0, 5.0, 1.0, 2.0]), Rules::PAPER);
    group.crash(5);
    group.elect();
    group.run_until(at(5_000));
    assert_eq!(group.leaders(), [p(2)].into());
    for (when, _, ended) in group.elected.values() {
        // The timer runs from the moment a quorum of proposals is there: after one delay.
        assert_eq!((*when, *ended), (at(1010), SelectionEnd::Timeout));
    }
}

#[test]
fn ending_early_it_is_over_when_all_that_are_not_suspected_have_proposed() {
    let mut group = Group::new(&scores(&[3.0, 9.0, 5.0, 1.0, 2.0]), Rules::default());
    group.crash(5);
    group.elect();
    group.run_until(at(5_000));
    assert_eq!(group.leaders(), [p(2)].into());
    for (when, _, ended) in group.elected.values() {
        assert_eq!((*when, *ended), (at(10), SelectionEnd::Unsuspected));
    }
}

#[test]
fn a_suspicion_that_comes_during_the_election_ends_it() {
    let mut group = Group::new(&scores(&[3.0, 9.0, 5.0, 1.0, 2.0]), Rules::default());
    group.down.insert(5);
    group.elect();
    group.run_until(at(100));
    assert!(group.elected.is_empty());
    group.crash(5);
    assert_eq!(group.elected.len(), 4);
}

#[test]
fn lines_41_to_47_one_that_notices_draws_the_others_into_its_epoch() {
    let mut group = Group::new(&scores(&[3.0, 9.0, 5.0]), Rules::default());
    group.tell(1, Input::Elect { above: Term::NONE });
    group.run_until(at(100));
    assert_eq!(group.leaders(), [p(2)].into());
    assert!(group.members.iter().all(|member| member.epoch() == Term::new(1)));
}

#[test]
fn lines_34_to_36_and_54_to_63_a_newcomer_adopts_the_leader_that_a_quorum_follows() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0, 4.0, 99.0]), Rules::default());
    group.crash(5);
    group.elect();
    group.run_until(at(100));
    assert_eq!(group.leaders(), [p(4)].into());
    // The best of all comes back: nobody is disturbed, and it follows.
    group.down.clear();
    group.tell(5, Input::Elect { above: Term::NONE });
    group.run_until(at(200));
    assert_eq!(group.elected[&5], (at(120), p(4), SelectionEnd::Votes));
    assert_eq!(group.leaders(), [p(4)].into());
    assert_eq!(group.member(5).epoch(), Term::new(1));
}

#[test]
fn line_60_a_crashed_leader_is_not_adopted_for_want_of_its_own_vote() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0, 4.0, 5.0]), Rules::default());
    group.elect();
    group.run_until(at(100));
    assert_eq!(group.leaders(), [p(5)].into());
    group.crash(5);
    // The others have not noticed yet and vote for it; one that was restarted asks.
    group.tell(1, Input::Elect { above: Term::NONE });
    group.run_until(at(900));
    assert_eq!(group.member(1).leader(), None);
}

#[test]
fn lines_20_to_25_lost_proposals_are_repeated_with_growing_pauses() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0]), Rules::default());
    group.down.extend([2, 3]);
    group.tell(1, Input::Elect { above: Term::NONE });
    let mut sent = vec![];
    for second in 1..=16 {
        group.run_until(at(second * 1000));
        sent.push(group.sent / 2);
    }
    // At 0, 1, 3, 7 and 15 s.
    assert_eq!(sent, [2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5]);
    group.down.clear();
    group.run_until(at(40_000));
    assert_eq!(group.leaders(), [p(3)].into());
}

#[test]
fn a_member_that_proposes_again_is_answered_but_answers_are_not() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0, 4.0, 5.0]), Rules::default());
    group.down.extend([2, 3, 4]);
    group.tell(1, Input::Elect { above: Term::NONE });
    let best = Some(Proposal { score: score(5.0), id: p(5) });
    let message = Message::Propose { epoch: Term::new(1), own: standing(5.0), best };
    group.tell(1, Input::Received { from: p(5), message });
    group.under_way.clear();
    let mut answers = |ms| {
        let (mut effects, from) = (Effects::new(), p(5));
        group.member(1).handle(Input::Received { from, message }, at(ms), &mut effects);
        effects.drain().filter(|effect| matches!(effect, Effect::Send { .. })).count()
    };
    assert_eq!(answers(10), 0, "it has just heard the broadcast");
    assert_eq!(answers(1_500), 1, "it lacks what was broadcast then");
    assert_eq!(answers(1_510), 0, "this may be an answer to the answer");
    assert_eq!(answers(2_500), 1);
}

#[test]
fn without_a_quorum_nobody_is_elected() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0, 4.0, 5.0]), Rules::default());
    for id in [3, 4, 5] {
        group.crash(id);
    }
    group.elect();
    group.run_until(at(60_000));
    assert!(group.elected.is_empty());
}

#[test]
fn members_that_are_no_candidates_take_part_and_are_not_elected() {
    let mut group = Group::new(&[None, Some(1.0), None, None, None], Rules::default());
    group.elect();
    group.run_until(at(100));
    assert_eq!(group.leaders(), [p(2)].into());
    assert_eq!(group.member(1).proposed()[&p(4)], Err(NoScore::Never));
}

#[test]
fn an_election_without_a_candidate_waits_until_there_is_one() {
    let mut group = Group::new(&[None; 3], Rules::default());
    group.elect();
    group.run_until(at(500));
    assert!(group.elected.is_empty());
    group.tell(2, Input::Scored(standing(1.0)));
    group.run_until(at(10_000));
    assert_eq!(group.leaders(), [p(2)].into());
}

#[test]
fn a_score_that_changes_during_an_epoch_counts_from_the_next() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0]), Rules::default());
    group.down.insert(3);
    group.elect();
    group.tell(1, Input::Scored(standing(99.0)));
    group.run_until(at(5_000));
    assert_eq!(group.leaders(), [p(2)].into());
    group.elected.clear();
    group.elect();
    group.run_until(at(10_000));
    assert_eq!(group.leaders(), [p(1)].into());
}

#[test]
fn what_strangers_send_or_name_is_ignored() {
    let mut group = Group::new(&scores(&[1.0, 2.0, 3.0]), Rules::default());
    let stranger = Proposal { score: score(1e9), id: p(77) };
    let message =
        Message::Propose { epoch: Term::new(9), own: standing(1e9), best: Some(stranger) };
    group.tell(1, Input::Received { from: p(77), message });
    assert_eq!(group.member(1).epoch(), Term::NONE);
    group.elect();
    group.tell(1, Input::Received { from: p(2), message });
    group.run_until(at(10_000));
    assert!(!group.leaders().contains(&p(77)));
}

#[test]
fn on_timely_links_with_unequal_delays_all_elect_the_best() {
    for seed in 0..500u64 {
        let mix = |x: u64| (x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % 1000;
        let values: Vec<_> = (0..5).map(|i| Some(mix(seed * 31 + i) as f64)).collect();
        let mut group = Group::new(&values, Rules::default());
        // Up to 300 ms, a different one for each pair and direction.
        group.delay_ms = |from, to| 1 + u64::from(from * 7919 + to * 104_729) % 300;
        let down = 1 + (mix(seed) % 5) as u32;
        group.crash(down);
        let candidates = (1..=5u32).filter(|id| *id != down);
        let best = candidates.max_by_key(|id| (values[*id as usize - 1].unwrap() as u64, *id));
        group.elect();
        group.run_until(at(900));
        assert_eq!(group.leaders(), [p(best.unwrap())].into(), "seed {seed}");
        assert_eq!(group.elected.len(), 4);
    }
}

#[test]
fn messages_stay_within_the_stated_bound() {
    for size in 3..=9usize {
        let values: Vec<_> = (0..size).map(|i| Some(i as f64)).collect();
        let mut group = Group::new(&values, Rules::default());
        group.delay_ms = |from, to| 1 + u64::from(from * 31 + to * 17) % 97;
        group.elect();
        group.run_until(at(900));
        assert_eq!(group.elected.len(), size);
        let n = size as u64;
        assert!(group.sent <= 2 * n * n * (n - 1), "{} messages of {size}", group.sent);
        assert!(group.sent >= n * (n - 1));
    }
}

#[test]
fn as_printed_a_vote_that_does_not_decide_counts_as_participation() {
    // p3 is dead; p1 has noticed, and p2 has not and votes for it.
    let run = |rules| {
        let mut group = Group::new(&[Some(1.0), Some(2.0), Some(3.0)], rules);
        group.down.insert(3);
        group.tell(2, Input::Follow { epoch: Term::new(1), leader: p(3) });
        group.tell(1, Input::Elect { above: Term::new(1) });
        group.run_until(at(100_000));
        group.elected.get(&1).copied()
    };
    let (when, leader, ended) = run(Rules::PAPER).expect("lines 64 and 65");
    assert_eq!((when, leader, ended), (at(20) + T, p(1), SelectionEnd::Timeout));
    assert_eq!(run(Rules::default()), None, "a member that follows a leader takes no part");
}
