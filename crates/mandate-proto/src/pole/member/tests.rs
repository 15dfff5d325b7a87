//! A member by hand: what the golden interactions and the simulator do not show one by one.

use alloc::vec::Vec;

use super::*;
use crate::detector::Beat;
use crate::identity::Incarnation;
use crate::oracle::{Measured, Preference};
use crate::pole::installation::{
    ClaimId, Contact, Entry, MemberChange, PeerGuarantee, Promised, Roster, RosterId,
};
use crate::pole::selection::Proposal;
use crate::score::Score;
use crate::wire::{CHANGES_SINCE, OLDEST, VERSION};

mod requests;

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(100);
const DETECT: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_millis(250);
/// The digest of no configuration that is used here.
const OTHER: ConfigId = ConfigId::new(1);

fn p(id: u32) -> MemberId {
    MemberId::new(id)
}

fn at(ms: u64) -> Instant {
    Instant::ORIGIN + MS * ms as u32
}

fn config(size: u32) -> Config {
    Config::new(p(1), (1..=size).map(p), INTERVAL, DETECT)
        .and_then(|config| config.with_timeout(TIMEOUT))
        .and_then(|config| config.with_guarantee(PeerGuarantee::Fenced))
        .unwrap()
}

/// A member, and everything it has asked for.
struct Subject {
    member: Member,
    now: Instant,
    effects: Vec<Effect>,
}

impl Subject {
    fn start(config: Config, stored: Option<Promised>, is_new: bool) -> Self {
        let mut effects = Effects::new();
        let stored = stored.map(Into::into);
        let boot = Boot {
            stored,
            is_new,
            is_changed: false,
            joins: false,
            auto: None,
            lifetime: Incarnation::new(4),
        };
        let member = Member::start(config, boot, at(0), &mut effects);
        Subject { member, now: at(0), effects: effects.drain().collect() }
    }

    fn new(config: Config) -> Self {
        Subject::start(config, Some(Promised::ADMITTED), false)
    }

    /// A follower of p3 in term 5.
    fn following(config: Config) -> Self {
        let mut subject = Subject::new(config);
        subject.answer_pings(&[2, 3]);
        subject.hear(3, claim(5));
        subject.hear(3, heartbeat(5, 0));
        assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(5) });
        subject.effects.clear();
        subject
    }

    fn tell(&mut self, input: Input) {
        let mut effects = Effects::new();
        self.member.handle(input, self.now, &mut effects);
        self.effects.extend(effects.drain());
    }

    /// Hears another that is configured like it.
    fn hear(&mut self, from: u32, mut message: Message) {
        use installation::Message as Said;
        if let Message::Ping { config, .. }
        | Message::Pong { config, .. }
        | Message::Installation(
            Said::Claim { id: ClaimId { config, .. }, .. }
            | Said::Promise { id: ClaimId { config, .. }, .. },
        ) = &mut message
        {
            *config = self.member.installation.config_id();
        }
        self.hear_as_is(from, message);
    }

    fn hear_as_is(&mut self, from: u32, message: Message) {
        self.tell(Input::Received { from: p(from), message });
    }

    /// Lets time pass; these answer every ping at once.
    fn run_until(&mut self, until: Instant, answering: &[u32]) {
        while let Some(due) = self.member.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let mut effects = Effects::new();
            self.member.handle_timeout(self.now, &mut effects);
            self.effects.extend(effects.drain());
            self.answer_pings(answering);
        }
        self.now = until;
    }

    fn answer_pings(&mut self, answering: &[u32]) {
        let pings: Vec<_> = self.effects.iter().filter_map(ping_number).collect();
        self.effects.retain(|effect| ping_number(effect).is_none());
        for number in pings {
            for from in answering {
                self.hear(*from, pong(number, true));
            }
        }
    }

    fn sent(&self) -> impl Iterator<Item = &Message> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Send { message, .. } | Effect::Broadcast(message) => Some(message),
            _ => None,
        })
    }

    fn proposals(&self) -> usize {
        let proposes = |message: &&Message| {
            matches!(message, Message::Selection(selection::Message::Propose { .. }))
        };
        self.sent().filter(proposes).count()
    }

    fn told(&self) -> impl Iterator<Item = &Event> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Tell(event) => Some(event),
            _ => None,
        })
    }
}

fn ping_number(effect: &Effect) -> Option<u64> {
    match effect {
        Effect::Broadcast(Message::Ping { number, .. })
        | Effect::Send { message: Message::Ping { number, .. }, .. } => Some(*number),
        _ => None,
    }
}

fn pong(number: u64, has_vote: bool) -> Message {
    pong_of(Incarnation::new(9), number, has_vote)
}

fn pong_of(life: Incarnation, number: u64, has_vote: bool) -> Message {
    let (config, promised) = (OTHER, Term::new(1000));
    let no_vote = (!has_vote).then_some(installation::WhyNoVote::Lost);
    Message::Pong {
        number,
        requests: 0.0,
        life,
        no_vote,
        standing: None,
        config,
        promised,
        speaks: VERSION,
    }
}

fn claim(term: u64) -> Message {
    let id = ClaimId { life: Incarnation::new(9), count: 1, config: OTHER };
    let (term, lease) = (Term::new(term), Duration::ZERO);
    Message::Installation(installation::Message::Claim { term, id, lease, freed: None })
}

fn heartbeat(term: u64, ms: i64) -> Message {
    let beat = Beat { label: Label::from_nanos(ms * 1_000_000), interval: INTERVAL };
    Message::Heartbeat { term: Term::new(term), beat }
}

fn proposal(epoch: u64, from: u32) -> Message {
    let score = Score::new(&[1.0]).unwrap();
    let (own, epoch) = (Ok(Measured { values: score, score }), Term::new(epoch));
    let best = Some(Proposal { score, id: p(from) });
    Message::Selection(selection::Message::Propose { epoch, own, best })
}

#[test]
fn a_configuration_that_makes_no_sense_says_what_is_wrong() {
    let of = |interval, detect| Config::new(p(1), [p(2)], interval, detect).map(|_| ());
    let no_margin = InvalidConfig::NoMargin { interval: DETECT, detect: DETECT };
    assert_eq!(of(DETECT, DETECT), Err(no_margin));
    assert!(matches!(of(Duration::ZERO, DETECT), Err(InvalidConfig::TooShort(_))));
    assert!(matches!(of(INTERVAL, Duration::MAX), Err(InvalidConfig::TooLong(_))));
    let many = Config::new(p(1), (1..=65).map(p), INTERVAL, DETECT);
    assert_eq!(many.map(|_| ()), Err(InvalidConfig::TooManyMembers(65)));
    let config = config(3);
    let lease = |lease, allowance_per_mille| PeerGuarantee::Leased { lease, allowance_per_mille };
    assert!(config.clone().with_guarantee(lease(Duration::ZERO, 1)).is_err());
    assert!(config.clone().with_guarantee(lease(DETECT, 1000)).is_err());
    assert!(config.clone().with_timeout(Duration::ZERO).is_err());
    let moves = Moves { threshold: f64::NAN, ..Moves::default() };
    assert_eq!(config.with_moves(moves).map(|_| ()), Err(InvalidConfig::Threshold));
}

#[test]
fn the_first_election_begins_when_all_have_been_measured() {
    let mut subject = Subject::new(config(3));
    subject.answer_pings(&[2, 3]);
    subject.run_until(at(99), &[2, 3]);
    assert_eq!(subject.proposals(), 0, "it listens for a leader first");
    subject.run_until(at(100), &[2, 3]);
    assert_eq!(subject.proposals(), 1);
}

#[test]
fn it_waits_for_who_does_not_answer_but_not_for_ever() {
    let mut subject = Subject::new(config(3));
    subject.answer_pings(&[2]);
    subject.run_until(at(249), &[2]);
    assert_eq!(subject.proposals(), 0);
    subject.run_until(at(300), &[2]);
    assert_eq!(subject.proposals(), 1, "a quorum is enough for a score");
    let mut subject = Subject::new(config(3));
    subject.run_until(at(1199), &[]);
    assert_eq!(subject.proposals(), 0, "without one, the bound");
    subject.run_until(at(1300), &[]);
    assert!(subject.proposals() > 0);
}

#[test]
fn an_invitation_waits_until_the_member_is_ready() {
    let mut subject = Subject::new(config(3));
    subject.hear(2, proposal(1, 2));
    assert_eq!(subject.proposals(), 0);
    subject.answer_pings(&[2, 3]);
    subject.run_until(at(100), &[2, 3]);
    let joined = |message: &&Message| matches!(message, Message::Selection(selection::Message::Propose { epoch, .. }) if *epoch == Term::new(1));
    assert_eq!(subject.sent().filter(joined).count(), 1);
}

#[test]
fn who_was_invited_and_then_removed_has_nothing_more_to_do_at_once() {
    let mut subject = Subject::new(config(3));
    subject.hear(2, proposal(1, 2));
    let id = RosterId { term: Term::new(1), version: 2 };
    let roster = Roster::new(id, [2, 3].map(|id| Entry::voter(p(id))));
    let config = ConfigId::of_roster(&roster, PeerGuarantee::Fenced);
    subject.hear(2, Message::Installation(installation::Message::Roster { roster, config }));
    assert_eq!(subject.member.no_vote().map(|it| it.why), Some(WhyNoVote::NotAMember));
    for _ in 0..20 {
        subject.now = subject.member.deadline().unwrap();
        let mut effects = Effects::new();
        subject.member.handle_timeout(subject.now, &mut effects);
        assert!(subject.member.deadline().unwrap() > subject.now);
    }
}

/// A leader of three whose others speak these versions, none if they have said nothing; what comes of a change that it is asked for.
fn change_among(own: u32, others: [Option<u32>; 2], change: MemberChange) -> Result<(), NoChange> {
    use installation::Message as Said;

    let mut subject = Subject::new(config(3).with_protocol(own).unwrap());
    subject.answer_pings(&[2, 3]);
    let spoken = subject.member.pings.spoken().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(spoken, [p(2), p(3)]);
    let mut effects = Effects::new();
    subject.member.install(installation::Input::Claim { epoch: Term::new(7) }, at(0), &mut effects);
    let id = effects.drain().find_map(|effect| match effect {
        Effect::Send { message: Message::Installation(Said::Claim { id, .. }), .. }
        | Effect::Broadcast(Message::Installation(Said::Claim { id, .. })) => Some(id),
        _ => None,
    });
    let promise = Said::Promise { term: Term::new(7), id: id.expect("a claim") };
    subject.hear_as_is(2, Message::Installation(promise));
    assert!(subject.member.mandate(at(0)).is_some());
    subject.member.pings.forget_spoken();
    for (member, speaks) in [2, 3].into_iter().zip(others) {
        if let Some(speaks) = speaks {
            subject.member.pings.spoke(p(member), speaks);
        }
    }
    subject.tell(Input::Change(change));
    let mut refused = subject.told().filter_map(|event| match event {
        Event::NotChanged { reason, .. } => Some(*reason),
        _ => None,
    });
    let (refused, is_seed) = (refused.next(), subject.member.roster().id().is_seed());
    assert_eq!(refused.is_some(), is_seed, "a change that is refused changes nothing");
    refused.map_or(Ok(()), Err)
}

#[test]
fn a_group_is_changed_for_the_first_time_once_all_who_stay_speak_a_version_that_knows_of_it() {
    let (new, old) = (Some(CHANGES_SINCE), Some(OLDEST));
    let observe =
        || MemberChange::Observe { member: p(9), contact: installation::Contact::default() };
    let replace = |old| MemberChange::Add {
        member: p(9),
        contact: installation::Contact::default(),
        replaces: Some(p(old)),
    };
    let too_old = |member| Err(NoChange::TooOld { member: p(member), speaks: OLDEST });
    assert_eq!(change_among(VERSION, [new, new], observe()), Ok(()));
    assert_eq!(change_among(VERSION, [new, old], observe()), too_old(3));
    assert_eq!(change_among(VERSION, [old, new], observe()), too_old(2));
    assert_eq!(change_among(OLDEST, [new, new], observe()), too_old(1), "it is held back itself");
    assert_eq!(change_among(VERSION, [new, None], observe()), Err(NoChange::Unheard(p(3))));
    // Who goes must know of it, too, as long as it is there.
    assert_eq!(change_among(VERSION, [new, old], replace(3)), too_old(3));
    assert_eq!(change_among(VERSION, [new, old], replace(2)), too_old(3));
}

#[test]
fn a_dead_host_of_an_older_release_can_be_replaced() {
    for speaks in [Some(OLDEST), None] {
        let mut subject = Subject::new(config(3));
        subject.answer_pings(&[2, 3]);
        subject.member.pings.forget_spoken();
        subject.member.pings.spoke(p(2), VERSION);
        speaks.iter().for_each(|speaks| subject.member.pings.spoke(p(3), *speaks));
        let member = p(9);
        let contact = installation::Contact::default();
        let replace =
            |old| MemberChange::Add { member, contact: contact.clone(), replaces: Some(p(old)) };
        for change in [replace(3), MemberChange::Remove { member: p(3) }] {
            assert!(subject.member.too_old_for(&change).is_some(), "it may be there");
        }
        subject.member.pings.suspect(p(3));
        for change in [replace(3), MemberChange::Remove { member: p(3) }] {
            assert_eq!(subject.member.too_old_for(&change), None);
        }
        assert!(subject.member.too_old_for(&replace(2)).is_some(), "it stays");
    }
}

#[test]
fn who_hears_of_a_leader_while_waiting_does_not_elect() {
    let mut subject = Subject::new(config(3));
    subject.hear(3, heartbeat(5, 0));
    subject.answer_pings(&[2, 3]);
    subject.run_until(at(200), &[2, 3]);
    assert_eq!(subject.proposals(), 0);
    subject.hear(3, claim(5));
    subject.hear(3, heartbeat(5, 100));
    assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(5) });
}

#[test]
fn a_leader_that_was_replaced_is_told() {
    let mut subject = Subject::following(config(3));
    subject.hear(2, heartbeat(4, 0));
    let refuse = installation::Message::Refuse { term: Term::new(4), promised: Term::new(5) };
    let refused = Effect::Send { to: p(2), message: Message::Installation(refuse) };
    assert_eq!(subject.effects, [refused]);
}

#[test]
fn another_that_has_lost_the_leader_is_a_hint_that_starts_a_probe() {
    let mut subject = Subject::following(config(3));
    subject.hear(2, proposal(6, 2));
    let mut effects = Effects::new();
    subject.member.handle_timeout(at(0), &mut effects);
    subject.effects.extend(effects.drain());
    let probes = |effect: &&Effect| matches!(effect, Effect::Send { to, message: Message::Ping { .. } } if *to == p(3));
    assert_eq!(subject.effects.iter().filter(probes).count(), 1);
    // It answers, or its heartbeat comes: no suspicion.
    let mut answered = Subject { member: subject.member.clone(), now: at(0), effects: Vec::new() };
    answered.hear(3, heartbeat(5, 1));
    answered.run_until(at(90), &[]);
    assert!(matches!(answered.member.state(), State::Following { .. }));
    // It does not: the leader is lost long before its freshness ends.
    subject.run_until(at(90), &[]);
    assert_eq!(subject.member.state(), State::Electing);
    assert!(subject.proposals() > 0);
}

#[test]
fn many_connections_that_break_at_once_do_not_make_suspects_of_those_who_answer() {
    let mut subject = Subject::new(config(64));
    let others: Vec<_> = (2..=64).collect();
    subject.answer_pings(&others);
    for id in &others {
        subject.tell(Input::LinkBroken { member: p(*id) });
    }
    subject.run_until(at(90), &others);
    assert_eq!(subject.member.suspected().count(), 0);
}

#[test]
fn a_late_wake_up_suspects_nobody() {
    let mut subject = Subject::following(config(3));
    subject.now = at(5000);
    let mut effects = Effects::new();
    subject.member.handle_timeout(subject.now, &mut effects);
    assert!(matches!(subject.member.state(), State::Following { .. }));
    assert_eq!(subject.member.suspected().count(), 0);
    // But if nothing is heard then, either, it does.
    subject.run_until(at(5600), &[]);
    assert_eq!(subject.member.state(), State::Electing);
}

#[test]
fn who_has_no_vote_does_not_count_as_heard_and_cannot_be_handed_to() {
    let mut subject = Subject::new(config(3));
    let number = subject.effects.iter().find_map(ping_number).unwrap();
    for from in [2, 3] {
        subject.hear(from, pong(number, false));
    }
    let standing = subject.member.standing(Occasion::AfterCrash, subject.now);
    assert_eq!(standing, Err(NoScore::NoQuorum { heard: 1, size: 3, quorum: 2 }));
    subject.hear(2, pong(number + 1, true));
    let lost = Subject::start(config(3), None, false);
    assert_eq!(lost.member.standing(Occasion::AfterCrash, at(0)), Err(NoScore::NoVote));
}

#[test]
fn a_transfer_that_cannot_be_is_refused_with_the_reason() {
    let mut subject = Subject::following(config(3));
    for (to, reason) in [(2, NoTransfer::NotLeading), (1, NoTransfer::NotAMember)] {
        subject.effects.clear();
        subject.tell(Input::Transfer { to: p(to) });
        assert_eq!(subject.told().collect::<Vec<_>>(), [&Event::NoTransfer { to: p(to), reason }]);
    }
}

/// What a follower of p3 remembers of how p2 came to lead in term 6.
fn handed_over(told: &[(u32, Message)]) -> Box<Record> {
    let mut subject = Subject::following(config(3).with_moves(Moves::default()).unwrap());
    subject.run_until(at(50), &[2, 3]);
    let number = subject.member.pings.next(subject.now);
    let score = Score::new(&[1.0]).unwrap();
    let standing = Some(Measured { values: score, score });
    let life = Incarnation::new(9);
    for from in [2, 3] {
        let (config, promised, no_vote) = (OTHER, Term::new(1000), None);
        let pong = Message::Pong {
            number,
            requests: 0.0,
            life,
            no_vote,
            standing,
            config,
            promised,
            speaks: VERSION,
        };
        subject.hear(from, pong);
    }
    told.iter().for_each(|(from, message)| subject.hear(*from, message.clone()));
    subject.hear(2, claim(6));
    subject.hear(2, heartbeat(6, 50));
    let elected = |event: &Event| match event {
        Event::Elected(record) => Some(record.clone()),
        _ => None,
    };
    subject.told().find_map(elected).expect("p2 leads")
}

#[test]
fn whoever_followed_explains_a_handover_with_what_was_compared() {
    let (measure, present, predicted) = (crate::oracle::Measure::Latency, 126.0, 88.0);
    let better = Handover::Better { measure, present, predicted };
    for (why, cause) in [(better, Cause::Moved), (Handover::Asked, Cause::Transferred)] {
        let told = Message::Handover { term: Term::new(5), to: p(2), why };
        let life = Incarnation::new(9);
        let release = installation::Message::Release { term: Term::new(5), life, next: Some(p(2)) };
        let release = (3, Message::Installation(release));
        // Also if the claim is there before the release, or before all that the former leader sent.
        let told = |from| (from, told.clone());
        for told in [&[told(3), release][..], &[told(3)], &[told(2)]] {
            let record = handed_over(told);
            assert_eq!((record.cause, record.handover), (cause, Some(why)));
            assert_eq!((record.former, record.leader), (Some(p(3)), p(2)));
            let mut compared: Vec<_> =
                record.ranking.candidates.iter().map(|candidate| candidate.id.get()).collect();
            compared.sort_unstable();
            assert_eq!(compared, [1, 2, 3]);
        }
    }
    assert_eq!(handed_over(&[]).handover, None);
    // Of another term, or to another member, it explains nothing.
    for (term, to) in [(4, 2), (5, 1)] {
        let why = Handover::Asked;
        let told = Message::Handover { term: Term::new(term), to: p(to), why };
        assert_eq!(handed_over(&[(3, told)]).handover, None);
    }
}

#[test]
fn a_successor_repeats_why_it_was_handed_leadership_before_it_claims() {
    let mut subject = Subject::following(config(3));
    let told = Message::Handover { term: Term::new(5), to: p(1), why: Handover::Asked };
    let life = Incarnation::new(9);
    let release = installation::Message::Release { term: Term::new(5), life, next: Some(p(1)) };
    subject.hear(3, told.clone());
    subject.effects.clear();
    subject.hear(3, Message::Installation(release));
    let place = |wanted: fn(&Message) -> bool| subject.sent().position(wanted);
    let claims = |message: &Message| {
        matches!(message, Message::Installation(installation::Message::Claim { .. }))
    };
    let repeated = subject.sent().position(|message| *message == told);
    assert!(repeated.is_some() && repeated < place(claims), "{repeated:?}");
}

#[test]
fn a_member_that_is_never_to_lead_takes_part_and_is_no_candidate() {
    let mut subject = Subject::new(config(3).with_preference(Preference::Never));
    subject.answer_pings(&[2, 3]);
    subject.run_until(at(100), &[2, 3]);
    let own = subject.sent().find_map(|message| match message {
        Message::Selection(selection::Message::Propose { own, .. }) => Some(*own),
        _ => None,
    });
    assert_eq!(own, Some(Err(NoScore::Never)));
}

#[test]
fn after_a_restart_no_lower_term_is_followed_than_the_one_on_disk() {
    let stored = Promised {
        term: Term::new(7),
        to: Some(p(3)),
        life: Incarnation::new(9),
        lease: Duration::ZERO,
        recovered: false,
        released: false,
    };
    let mut subject = Subject::start(config(3), Some(stored), false);
    subject.hear(2, claim(6));
    subject.hear(2, heartbeat(6, 0));
    assert_eq!(subject.member.state(), State::Electing);
    subject.hear(3, heartbeat(7, 0));
    assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(7) });
}

fn planned() -> Config {
    config(3).with_mistakes(Duration::from_secs(3600), DETECT, MS).unwrap()
}

#[test]
fn a_follower_behind_a_bad_link_asks_for_heartbeats_more_often_in_its_pings() {
    let mut subject = Subject::following(planned());
    for beat in 1..400 {
        let due = at(beat * 100);
        subject.run_until(due, &[2, 3]);
        if beat % 4 != 0 {
            subject.hear(3, heartbeat(5, beat as i64 * 100));
        }
    }
    let pings = |effect: &Effect| match effect {
        Effect::Send { message: Message::Ping { interval, .. }, .. } => *interval,
        _ => None,
    };
    subject.tell(Input::LinkUp { member: p(2) });
    let asked = subject.effects.iter().rev().find_map(pings).expect("an interval is asked for");
    assert!(asked < INTERVAL / 2, "{asked:?}");
    let detection = subject.member.detection(subject.now);
    assert_eq!(detection.service.mistakes.count, 0);
    assert!((detection.watched.unwrap().link.unwrap().loss - 0.25).abs() < 0.02);
}

#[test]
fn a_leader_that_was_silent_and_leads_on_was_suspected_by_mistake() {
    let mut subject = Subject::following(config(3));
    subject.run_until(at(310), &[2]);
    assert_eq!(subject.member.state(), State::Electing);
    let so_far = subject.member.detection(subject.now).service;
    assert_eq!((so_far.mistakes.count, so_far.detections.count), (0, 1));
    subject.hear(3, heartbeat(5, 310));
    let service = subject.member.detection(at(400)).service;
    assert_eq!((service.mistakes.count, service.detections.count), (1, 0));
    assert_eq!(service.mistakes.longest, MS * 10);
}

#[test]
fn a_leader_that_comes_back_in_another_life_had_crashed() {
    let mut subject = Subject::following(config(3));
    subject.run_until(at(310), &[2]);
    let number = subject.member.pings.next(subject.now);
    subject.hear(3, pong_of(Incarnation::new(10), number, true));
    let service = subject.member.detection(at(400)).service;
    assert_eq!((service.mistakes.count, service.detections.count), (0, 1));
    assert_eq!(service.detections.longest, DETECT);
}

#[test]
fn who_is_configured_differently_is_refused_and_told_once() {
    let mut subject = Subject::following(config(3));
    let ping = Message::Ping { number: 1, requests: 0.0, interval: None, config: OTHER };
    subject.hear_as_is(2, ping.clone());
    subject.hear_as_is(2, ping);
    let told =
        subject.told().filter(|it| matches!(it, Event::Differs { member, .. } if *member == p(2)));
    assert_eq!(told.count(), 1);
    assert_eq!(subject.sent().count(), 0, "no answer");
    assert_eq!(subject.member.suspected().collect::<Vec<_>>(), [p(2)]);
    assert!(subject.member.has_vote(), "this group has elected before");
    // What it says besides is not taken.
    subject.hear(2, claim(9));
    assert_eq!(subject.sent().count(), 0);
    // Until it is heard to agree.
    subject.hear(2, Message::Ping { number: 2, requests: 0.0, interval: None, config: OTHER });
    subject.hear(2, claim(9));
    assert_eq!(subject.sent().count(), 2);
}

#[test]
fn before_its_first_promise_a_member_that_hears_of_another_list_has_no_vote_until_that_is_settled()
{
    let mut subject = Subject::new(config(3));
    subject.answer_pings(&[3]);
    subject.tell(Input::Differs { member: p(2), config: OTHER });
    assert!(!subject.member.has_vote());
    subject.run_until(at(2000), &[3]);
    assert_eq!(subject.member.state(), State::Electing);
    subject.tell(Input::LinkUp { member: p(2) });
    assert!(subject.member.has_vote());
}

#[test]
fn a_member_whose_disk_went_back_is_told_and_not_counted() {
    let mut subject = Subject::following(config(3));
    // p3 has said that it has promised term 1000; a later answer of its says that it is term 4.
    subject.run_until(at(100), &[2]);
    let number = subject.member.pings.next(subject.now);
    let life = Incarnation::new(10);
    let older = Message::Pong {
        number,
        requests: 0.0,
        life,
        no_vote: None,
        standing: None,
        config: OTHER,
        promised: Term::new(4),
        speaks: VERSION,
    };
    subject.hear(3, older);
    let went_back = Event::WentBack { member: p(3), term: Term::new(1000) };
    assert!(subject.told().any(|event| *event == went_back));
    let behind = installation::Message::Behind { term: Term::new(1000) };
    assert!(subject.sent().any(|message| *message == Message::Installation(behind.clone())));
    subject.effects.clear();
    subject.hear(3, claim(6));
    assert_eq!(subject.sent().count(), 0, "its claims are not promised");
    // It asks everyone, and is trusted again.
    let ask =
        installation::Message::Ask { life, round: 0, config: subject.member.config.seed_id() };
    subject.hear(3, Message::Installation(ask));
    subject.hear(3, claim(6));
    assert_eq!(subject.sent().count(), 2);
    subject.effects.clear();
    // If it ends before all have answered, its next incarnation has the older disk still: it is told again.
    subject.run_until(at(200), &[2]);
    let number = subject.member.pings.next(subject.now);
    let again = Message::Pong {
        number,
        requests: 0.0,
        life: Incarnation::new(11),
        no_vote: None,
        standing: None,
        config: OTHER,
        promised: Term::new(4),
        speaks: VERSION,
    };
    subject.hear(3, again);
    assert!(subject.told().any(|event| *event == went_back));
}

#[test]
fn a_member_without_a_vote_names_the_leader_that_it_hears() {
    let mut subject = Subject::start(config(5), None, false);
    subject.hear(3, heartbeat(5, 0));
    assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(5) });
    assert!(!subject.member.has_vote());
    subject.hear(2, heartbeat(4, 0));
    assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(5) });
    // Its vote comes back with what the others had promised when they were asked.
    let promised = Promised { term: Term::new(4), to: Some(p(2)), ..Promised::ADMITTED };
    for from in 2..=5 {
        let (life, by) = (Incarnation::new(4), Incarnation::new(from.into()));
        let report = installation::Message::Report { life, round: 0, by, promised: Some(promised) };
        subject.hear(from, Message::Installation(report));
    }
    assert!(subject.member.has_vote());
    subject.hear(2, heartbeat(4, 1));
    assert_eq!(subject.member.state(), State::Following { leader: p(3), term: Term::new(5) });
}

#[test]
fn one_that_said_that_it_has_no_vote_is_asked_again_once_and_not_with_every_ping_of_its() {
    let mut subject = Subject::new(config(3));
    let number = subject.effects.iter().find_map(ping_number).unwrap();
    subject.now = at(1);
    subject.hear(2, pong(number, false));
    let pings = |subject: &Subject| subject.effects.iter().filter_map(ping_number).count();
    let ping = |number| Message::Ping { number, requests: 0.0, interval: None, config: OTHER };
    subject.effects.clear();
    for (ms, number) in (2..10).zip(100..) {
        subject.now = at(ms);
        subject.hear(2, ping(number));
    }
    assert_eq!(pings(&subject), 1, "two that answer pings with pings never end");
}

fn value(text: &str) -> Value {
    Value::new(text).unwrap()
}

fn published(term: u64, revision: u64, text: &str) -> Message {
    Message::Value { term: Term::new(term), revision, value: value(text) }
}

fn shown(subject: &Subject) -> Option<&str> {
    subject.member.value().map(Value::as_str)
}

#[test]
fn a_value_is_shown_with_the_leader_and_term_that_it_belongs_to_and_with_no_other() {
    let mut subject = Subject::following(config(3));
    subject.hear(3, published(5, 1, "a"));
    let event = Event::Published { leader: p(3), term: Term::new(5), value: value("a") };
    let taken = Message::ValueTaken { term: Term::new(5), revision: 1, life: Incarnation::new(4) };
    assert_eq!(shown(&subject), Some("a"));
    assert_eq!(subject.told().collect::<Vec<_>>(), [&event]);
    assert_eq!(subject.sent().collect::<Vec<_>>(), [&taken]);
    // Said again: answered, and told once.
    subject.hear(3, published(5, 1, "a"));
    assert_eq!((subject.told().count(), subject.sent().count()), (1, 2));
    subject.hear(3, published(5, 2, "b"));
    subject.hear(3, published(5, 1, "a"));
    assert_eq!(shown(&subject), Some("b"), "one that comes late changes nothing");
    // A new leader: the old value is gone at once, and what the old leader says still is not shown.
    subject.hear(2, claim(6));
    assert_eq!(shown(&subject), None);
    subject.hear(2, heartbeat(6, 0));
    subject.hear(3, published(5, 3, "c"));
    assert_eq!(subject.member.state(), State::Following { leader: p(2), term: Term::new(6) });
    assert_eq!(shown(&subject), None);
    subject.hear(2, published(6, 1, "d"));
    assert_eq!(shown(&subject), Some("d"));
}

#[test]
fn a_value_that_overtakes_the_first_heartbeat_is_shown_when_its_leader_is_followed() {
    let mut subject = Subject::following(config(3));
    subject.hear(2, published(6, 1, "early"));
    assert_eq!(shown(&subject), None);
    subject.effects.clear();
    subject.hear(2, claim(6));
    subject.hear(2, heartbeat(6, 0));
    assert_eq!(shown(&subject), Some("early"));
    let event = Event::Published { leader: p(2), term: Term::new(6), value: value("early") };
    let told: Vec<_> = subject.told().collect();
    let changed =
        told.iter().position(|event| matches!(event, Event::Changed(State::Following { .. })));
    let shown = told.iter().position(|it| **it == event);
    assert!(changed.is_some() && changed < shown, "{told:?}");
}

#[test]
fn who_does_not_lead_publishes_nothing() {
    let mut subject = Subject::following(config(3));
    subject.tell(Input::Publish(value("a")));
    assert_eq!((subject.effects.len(), shown(&subject)), (0, None));
}

/// p3 has handed over to p1, which leads in term 6.
fn leading(config: Config) -> Subject {
    let mut subject = Subject::following(config);
    let (life, next) = (Incarnation::new(9), Some(p(1)));
    let release = installation::Message::Release { term: Term::new(5), life, next };
    subject.hear(3, Message::Installation(release));
    let id = subject.sent().find_map(|message| match message {
        Message::Installation(installation::Message::Claim { id, .. }) => Some(*id),
        _ => None,
    });
    let id = id.expect("it claims the next term");
    for from in [2, 3] {
        let promise = installation::Message::Promise { term: Term::new(6), id };
        subject.hear_as_is(from, Message::Installation(promise));
    }
    assert_eq!(subject.member.state(), State::Leading { term: Term::new(6) });
    subject
}

#[test]
fn a_term_begins_with_the_value_that_is_configured_and_it_is_repeated_until_it_is_taken() {
    let mut subject = leading(config(3).with_value(Some(value("a"))));
    assert_eq!(shown(&subject), Some("a"));
    let values = |subject: &Subject| {
        let is_value = |message: &&Message| matches!(message, Message::Value { .. });
        subject.sent().filter(is_value).count()
    };
    assert_eq!(values(&subject), 1, "to everyone, once");
    let taken = |life| Message::ValueTaken {
        term: Term::new(6),
        revision: 1,
        life: Incarnation::new(life),
    };
    // p2 takes it, p3 does not. The incarnations that answer pings here are number 9.
    subject.hear(2, taken(9));
    subject.effects.clear();
    subject.run_until(subject.now + INTERVAL * 3, &[2, 3]);
    let to = |subject: &Subject, id: u32| {
        let repeats = |effect: &&Effect| matches!(effect, Effect::Send { to, message: Message::Value { .. } } if *to == p(id));
        subject.effects.iter().filter(repeats).count()
    };
    assert_eq!(to(&subject, 2), 0);
    assert!(to(&subject, 3) > 0, "with each answer to a ping");
    // A new incarnation of p2 does not have it.
    subject.hear(3, taken(9));
    subject.hear(2, taken(8));
    subject.effects.clear();
    subject.run_until(subject.now + INTERVAL * 3, &[2, 3]);
    assert!(to(&subject, 2) > 0 && to(&subject, 3) == 0);
}

#[test]
fn the_same_value_again_is_no_news_and_resigning_ends_it() {
    let mut subject = leading(config(3).with_value(Some(value("a"))));
    subject.effects.clear();
    subject.tell(Input::Publish(value("a")));
    assert_eq!(subject.effects.len(), 0);
    subject.tell(Input::Publish(value("b")));
    assert_eq!((shown(&subject), subject.sent().count()), (Some("b"), 1));
    subject.tell(Input::Resign);
    assert_eq!(shown(&subject), None);
    subject.effects.clear();
    subject.tell(Input::Publish(value("c")));
    assert_eq!((subject.effects.len(), shown(&subject)), (0, None), "deposed: too late");
}

/// Seed 10384 of the simulator: such a leader went on renewing its claim, and said that nobody led.
#[test]
fn the_only_voter_that_is_outdone_leads_in_a_higher_term() {
    let leased = PeerGuarantee::Leased { lease: MS * 1000, allowance_per_mille: 10 };
    let mut subject = Subject::new(config(1).with_guarantee(leased).unwrap());
    subject.run_until(at(1000), &[]);
    let observed = MemberChange::Observe { member: p(2), contact: Contact::default() };
    subject.tell(Input::Change(observed));
    for ms in (1010..3000).step_by(10) {
        subject.member.persisted(subject.now);
        subject.run_until(at(ms), &[]);
    }
    let State::Leading { term } = subject.member.state() else { panic!("it leads") };
    assert!(subject.member.roster().has(p(2)), "the other observes");
    let promised = Term::new(term.get() + 6);
    subject.hear(2, Message::Installation(installation::Message::Refuse { term, promised }));
    for ms in (3000..5000).step_by(10) {
        subject.member.persisted(subject.now);
        subject.run_until(at(ms), &[]);
    }
    let term = Term::new(promised.get() + 1);
    assert_eq!(subject.member.state(), State::Leading { term });
}
