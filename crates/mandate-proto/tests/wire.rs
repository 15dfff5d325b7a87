//! Bytes from anywhere: decoding is total, and nothing that decodes can harm a member.
//!
//! A longer run: `PROPTEST_CASES=1000000 cargo test --release -p mandate-proto --test wire`.

use std::time::Duration;

use mandate_proto::detector::{Beat, Label};
use mandate_proto::election::{Candidacy, NoTransfer};
use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::{Effects, Machine};
use mandate_proto::nfd_l;
use mandate_proto::oracle::{Measure, Measured, NoScore};
use mandate_proto::pole::installation::{
    self, Boot, ClaimId, ConfigId, Contact, Entry, Founder, Freed, MAX_ADDRESS, MAX_MEMBERS,
    MAX_NAME, MemberChange, Membership, NoChange, PeerGuarantee, Promised, Roster, RosterId,
    Unsure, WhyNoVote,
};
use mandate_proto::pole::member::{
    Config, Effect, Handover, Input, LeaderAnswer, LeaderRequest, Member, Message, Moves,
};
use mandate_proto::pole::selection::{self, Proposal};
use mandate_proto::score::Score;
use mandate_proto::time::Instant;
use mandate_proto::value::{MAX_VALUE_BYTES, Value};
use mandate_proto::wire::{MAX_BYTES, Malformed, OLDEST, VERSION, decode, encode};
use proptest::prelude::*;

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes
}

/// Mostly small numbers, so that they mean something to each other; at times any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..8, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn member() -> impl Strategy<Value = MemberId> {
    prop_oneof![8 => 0u32..6, 1 => any::<u32>()].prop_map(MemberId::new)
}

fn term() -> impl Strategy<Value = Term> {
    number().prop_map(Term::new)
}

fn life() -> impl Strategy<Value = Incarnation> {
    number().prop_map(Incarnation::new)
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0u64..5000).prop_map(Duration::from_millis),
        1 => (any::<u64>(), 0u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn score() -> impl Strategy<Value = Score> {
    let component = prop_oneof![-9.0..9.0, Just(f64::MAX), Just(f64::MIN), Just(0.0)];
    prop::collection::vec(component, 0..=4).prop_map(|components| Score::new(&components).unwrap())
}

fn measured() -> impl Strategy<Value = Measured> {
    (score(), score()).prop_map(|(values, score)| Measured { values, score })
}

fn standing() -> impl Strategy<Value = Candidacy> {
    let no_quorum = |[heard, size, quorum]: [u16; 3]| NoScore::NoQuorum { heard, size, quorum };
    let reason = prop_oneof![
        Just(NoScore::Never),
        Just(NoScore::NoVote),
        Just(NoScore::Resigned),
        Just(NoScore::Unknown(Measure::Latency)),
        any::<[u16; 3]>().prop_map(no_quorum),
    ];
    prop_oneof![measured().prop_map(Ok), reason.prop_map(Err)]
}

fn promised() -> impl Strategy<Value = Promised> {
    (term(), prop::option::of(member()), life(), duration(), any::<[bool; 2]>()).prop_map(
        |(term, to, life, lease, [recovered, released])| Promised {
            term,
            to,
            life,
            lease,
            recovered,
            released,
        },
    )
}

fn digest() -> impl Strategy<Value = ConfigId> {
    number().prop_map(ConfigId::new)
}

fn claim_id() -> impl Strategy<Value = ClaimId> {
    (life(), number(), digest()).prop_map(|(life, count, config)| ClaimId { life, count, config })
}

fn selection_message() -> impl Strategy<Value = selection::Message> {
    let proposal = (score(), member()).prop_map(|(score, id)| Proposal { score, id });
    prop_oneof![
        (term(), standing(), prop::option::of(proposal))
            .prop_map(|(epoch, own, best)| selection::Message::Propose { epoch, own, best }),
        (term(), member()).prop_map(|(epoch, leader)| selection::Message::Vote { epoch, leader }),
    ]
}

fn part() -> impl Strategy<Value = Membership> {
    let replaces = || prop::option::of(member());
    prop_oneof![
        4 => (replaces(), prop::option::of(life()))
            .prop_map(|(replaces, joined)| Membership::Voter { replaces, joined }),
        1 => replaces().prop_map(|replaces| Membership::Learner { replaces }),
        1 => Just(Membership::Observer),
    ]
}

fn roster() -> impl Strategy<Value = Roster> {
    let contact = ("[a-z]{0,9}", "[a-z0-9:]{0,9}");
    let contact = contact.prop_map(|(name, address)| Contact { name, address });
    let entry = (member(), part(), contact);
    let entry = entry.prop_map(|(id, part, contact)| Entry { id, part, contact });
    (term(), number(), prop::collection::vec(entry, 0..7))
        .prop_map(|(term, version, entries)| Roster::new(RosterId { term, version }, entries))
}

/// A list, mostly with what it comes to.
fn listed() -> impl Strategy<Value = (Roster, ConfigId)> {
    let lease = Duration::from_millis(400);
    let leased = PeerGuarantee::Leased { lease, allowance_per_mille: 10 };
    let of = |guarantee| {
        move |roster: Roster| {
            let config = ConfigId::of_roster(&roster, guarantee);
            (roster, config)
        }
    };
    prop_oneof![
        3 => roster().prop_map(of(leased)),
        3 => roster().prop_map(of(PeerGuarantee::Fenced)),
        1 => (roster(), digest()),
    ]
}

fn founder() -> impl Strategy<Value = Founder> {
    (member(), life()).prop_map(|(member, first)| Founder { member, first })
}

fn installation_message() -> impl Strategy<Value = installation::Message> {
    use installation::Message as M;
    let freed = (term(), member(), life()).prop_map(|(term, by, life)| Freed { term, by, life });
    prop_oneof![
        (term(), claim_id(), duration(), prop::option::of(freed))
            .prop_map(|(term, id, lease, freed)| M::Claim { term, id, lease, freed }),
        (term(), claim_id()).prop_map(|(term, id)| M::Promise { term, id }),
        (term(), claim_id(), life()).prop_map(|(term, id, joined)| M::Follow { term, id, joined }),
        listed().prop_map(|(roster, config)| M::Roster { roster, config }),
        (term(), term()).prop_map(|(term, promised)| M::Refuse { term, promised }),
        (term(), life(), prop::option::of(member())).prop_map(|(term, life, next)| M::Release {
            term,
            life,
            next
        }),
        (life(), any::<u32>(), digest()).prop_map(|(life, round, config)| M::Ask {
            life,
            round,
            config
        }),
        term().prop_map(|term| M::Behind { term }),
        (life(), any::<u32>(), life(), term(), duration()).prop_map(
            |(life, round, first, floor, lease)| M::Unsure {
                life,
                round,
                unsure: Unsure { first, floor },
                lease
            }
        ),
        (life(), any::<u32>(), life(), promised(), prop::collection::vec(founder(), 0..5))
            .prop_map(|(life, round, by, promised, founders)| M::Founded {
                life,
                round,
                by,
                promised,
                founders
            }),
        (life(), any::<u32>(), life(), prop::option::of(promised()))
            .prop_map(|(life, round, by, promised)| M::Report { life, round, by, promised }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let rate = || prop_oneof![0.0..1e6, Just(f64::MAX)];
    let beat = (any::<i64>(), duration())
        .prop_map(|(label, interval)| Beat { label: Label::from_nanos(label), interval });
    let pong =
        (number(), rate(), life(), no_vote(), prop::option::of(measured()), digest(), term());
    let ping = (number(), rate(), prop::option::of(duration()), digest());
    prop_oneof![
        ping.prop_map(|(number, requests, interval, config)| {
            Message::Ping { number, requests, interval, config }
        }),
        (pong, OLDEST..=VERSION).prop_map(|(pong, speaks)| {
            let (number, requests, life, no_vote, standing, config, promised) = pong;
            Message::Pong { number, requests, life, no_vote, standing, config, promised, speaks }
        }),
        (term(), beat).prop_map(|(term, beat)| Message::Heartbeat { term, beat }),
        selection_message().prop_map(Message::Selection),
        installation_message().prop_map(Message::Installation),
        (term(), number(), value()).prop_map(|(term, revision, value)| Message::Value {
            term,
            revision,
            value
        }),
        (term(), number(), life()).prop_map(|(term, revision, life)| Message::ValueTaken {
            term,
            revision,
            life
        }),
        (term(), member(), handover()).prop_map(|(term, to, why)| Message::Handover {
            term,
            to,
            why
        }),
        (number(), life(), term(), request()).prop_map(|(number, life, term, request)| {
            Message::Request { number, life, term, request }
        }),
        (number(), life(), answer()).prop_map(|(number, life, answer)| Message::Answer {
            number,
            life,
            answer
        }),
    ]
}

fn no_vote() -> impl Strategy<Value = Option<WhyNoVote>> {
    let why = [WhyNoVote::New, WhyNoVote::Lost, WhyNoVote::Learning, WhyNoVote::Outdated];
    prop::option::of(prop::sample::select(why.to_vec()))
}

fn request() -> impl Strategy<Value = LeaderRequest> {
    let contact =
        ("[a-z]{0,63}", "[a-z0-9.:]{0,128}").prop_map(|(name, address)| Contact { name, address });
    let add = (member(), contact.clone(), prop::option::of(member()))
        .prop_map(|(member, contact, replaces)| MemberChange::Add { member, contact, replaces });
    let observe =
        (member(), contact).prop_map(|(member, contact)| MemberChange::Observe { member, contact });
    let change = prop_oneof![
        add,
        observe,
        member().prop_map(|member| MemberChange::Promote { member }),
        member().prop_map(|member| MemberChange::Remove { member }),
    ];
    prop_oneof![
        Just(LeaderRequest::Resign),
        member().prop_map(|to| LeaderRequest::Transfer { to }),
        change.prop_map(LeaderRequest::Change),
    ]
}

fn answer() -> impl Strategy<Value = LeaderAnswer> {
    let list = (term(), number()).prop_map(|(term, version)| RosterId { term, version });
    prop_oneof![
        Just(LeaderAnswer::Done),
        Just(LeaderAnswer::Busy),
        list.prop_map(LeaderAnswer::Changed),
        Just(LeaderAnswer::NoTransfer(NoTransfer::NoVote)),
        Just(LeaderAnswer::NoChange(NoChange::Leads)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    "[ -~]{1,40}".prop_map(|text| Value::new(&text).unwrap())
}

fn handover() -> impl Strategy<Value = Handover> {
    let better = (-1e9..1e9, -1e9..1e9).prop_map(|(present, predicted)| Handover::Better {
        measure: Measure::Latency,
        present,
        predicted,
    });
    prop_oneof![Just(Handover::Asked), better]
}

#[derive(Clone, Debug)]
enum Step {
    Message(u32, Message),
    Tell(Input),
    Wait(Duration),
}

fn step() -> impl Strategy<Value = Step> {
    let told = prop_oneof![
        Just(Input::Resign),
        value().prop_map(Input::Publish),
        member().prop_map(|to| Input::Transfer { to }),
        member().prop_map(|member| Input::LinkBroken { member }),
        member().prop_map(|member| Input::LinkUp { member }),
        (duration(), duration()).prop_map(|(interval, detect)| Input::Replan { interval, detect }),
    ];
    prop_oneof![
        12 => (0u32..6, message()).prop_map(|(from, message)| Step::Message(from, message)),
        3 => told.prop_map(Step::Tell),
        4 => (0u64..2000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
    ]
}

fn start(guarantee: PeerGuarantee, effects: &mut Effects<Effect>) -> Member {
    let members = (1..=4).map(MemberId::new);
    let (interval, detect) = (Duration::from_millis(100), Duration::from_millis(300));
    let moves = Moves { every: detect, threshold: 0.1, tenure: detect, shadow: false };
    let config = Config::new(MemberId::new(1), members, interval, detect)
        .and_then(|config| config.with_guarantee(guarantee))
        .and_then(|config| config.with_moves(moves))
        .and_then(|config| config.with_mistakes(detect * 1000, detect, Duration::from_millis(5)))
        .unwrap()
        .with_oracle("latency/10ms, history".parse().unwrap());
    let stored = Some(Promised::ADMITTED.into());
    let boot = Boot {
        stored,
        is_new: false,
        is_changed: false,
        joins: false,
        auto: None,
        lifetime: Incarnation::new(3),
    };
    Member::start(config, boot, Instant::ORIGIN, effects)
}

#[test]
fn nothing_longer_than_a_message_is_read() {
    let bytes = vec![0; MAX_BYTES + 1];
    assert_eq!(decode::<Message>(&bytes), Err(Malformed::TooLong(MAX_BYTES + 1)));
    assert_eq!(decode::<Message>(&[]), Err(Malformed::NoMessage(0)));
}

#[test]
fn the_longest_value_fits_and_bytes_that_are_no_value_are_no_message() {
    let (term, revision) = (Term::new(u64::MAX), u64::MAX);
    let value = Value::new(&"x".repeat(MAX_VALUE_BYTES)).unwrap();
    let longest = Message::Value { term, revision, value };
    let mut bytes = bytes_of(&longest);
    assert_eq!(decode(&bytes), Ok(longest));
    let last = bytes.len() - 1;
    bytes[last] = 7;
    assert_eq!(decode::<Message>(&bytes), Err(Malformed::NoMessage(bytes.len())));
}

#[test]
fn the_longest_list_of_members_fits_and_one_that_is_longer_is_no_message() {
    let list = |size: usize, name: usize, address: usize| {
        let entry = |place: usize| Entry {
            id: MemberId::new(u32::MAX - u32::try_from(place).unwrap()),
            part: Membership::Voter {
                replaces: Some(MemberId::new(u32::MAX)),
                joined: Some(Incarnation::new(u64::MAX)),
            },
            contact: Contact { name: "n".repeat(name), address: "a".repeat(address) },
        };
        let id = RosterId { term: Term::new(u64::MAX), version: u64::MAX };
        let roster = Roster::new(id, (0..size).map(entry));
        let config = ConfigId::of_roster(&roster, PeerGuarantee::Fenced);
        Message::Installation(installation::Message::Roster { roster, config })
    };
    let longest = list(MAX_MEMBERS, MAX_NAME, MAX_ADDRESS);
    let bytes = bytes_of(&longest);
    assert!(bytes.len() <= MAX_BYTES, "{} bytes", bytes.len());
    assert!(bytes.len() + 256 > MAX_BYTES, "the bound is no larger than it has to be");
    assert_eq!(decode(&bytes), Ok(longest));
    for too_long in
        [list(MAX_MEMBERS + 1, 1, 1), list(3, MAX_NAME + 1, 1), list(3, 1, MAX_ADDRESS + 1)]
    {
        assert_eq!(decode::<Message>(&bytes_of(&too_long)), Err(Malformed::Unsound));
    }
}

#[test]
fn numbers_that_no_member_sends_are_refused() {
    for requests in [f64::NAN, f64::INFINITY, -1.0] {
        let bytes = bytes_of(&Message::Ping {
            number: 1,
            requests,
            interval: None,
            config: ConfigId::new(1),
        });
        assert_eq!(decode::<Message>(&bytes), Err(Malformed::Unsound));
    }
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was_sent(message in message()) {
        let bytes = bytes_of(&message);
        prop_assert!(bytes.len() <= MAX_BYTES, "{} bytes", bytes.len());
        prop_assert_eq!(decode(&bytes), Ok(message));
    }

    #[test]
    fn a_frame_with_more_behind_it_or_less_of_it_is_refused(
        message in message(), more in 1usize..9,
    ) {
        let mut bytes = bytes_of(&message);
        let whole = bytes.len();
        bytes.resize(whole + more, 0);
        prop_assert!(decode::<Message>(&bytes).is_err());
        for length in 0..whole {
            prop_assert!(decode::<Message>(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn bytes_from_anywhere_are_a_message_or_an_error(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        if let Ok(message) = decode::<Message>(&bytes) {
            prop_assert_eq!(decode(&bytes_of(&message)), Ok(message));
        }
        let _ = decode::<nfd_l::Message>(&bytes);
    }

    #[test]
    fn a_frame_that_was_damaged_is_a_message_or_an_error(
        message in message(), place in any::<prop::sample::Index>(), bits in 1u8..,
    ) {
        let mut bytes = bytes_of(&message);
        let place = place.index(bytes.len());
        bytes[place] ^= bits;
        if let Ok(message) = decode::<Message>(&bytes) {
            prop_assert_eq!(decode(&bytes_of(&message)), Ok(message));
        }
    }

    #[test]
    fn whatever_decodes_neither_panics_a_member_nor_makes_it_busy_nor_chatty(
        steps in prop::collection::vec(step(), 1..120), leased in any::<bool>(),
    ) {
        let lease = Duration::from_millis(400);
        let leased = leased.then_some(PeerGuarantee::Leased { lease, allowance_per_mille: 10 });
        let mut effects = Effects::new();
        let mut member = start(leased.unwrap_or(PeerGuarantee::Fenced), &mut effects);
        let mut now = Instant::ORIGIN;
        for step in steps {
            match step {
                Step::Message(from, message) => {
                    let from = MemberId::new(from);
                    member.handle(Input::Received { from, message }, now, &mut effects);
                }
                Step::Tell(input) => member.handle(input, now, &mut effects),
                Step::Wait(time) => {
                    let until = now + time;
                    while let Some(due) = member.deadline().filter(|due| *due <= until) {
                        now = now.max(due);
                        member.handle_timeout(now, &mut effects);
                        prop_assert!(member.deadline().is_none_or(|next| next > now));
                        prop_assert!(effects.drain().count() <= 40);
                    }
                    now = until;
                }
            }
            // Nothing that a peer sends is answered many times over.
            prop_assert!(effects.drain().count() <= 40);
            let _ = (member.mandate(now), member.state());
        }
    }
}
