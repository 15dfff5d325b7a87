use super::*;
use alloc::string::ToString;

const ME: MemberId = MemberId::new(1);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn kafka() -> Grants {
    Grants {
        partitions: NonZeroU32::new(8).unwrap(),
        session: ms(6000),
        heartbeat: ms(2000),
        barrier: ms(8000),
        fenced: Some(ms(6000)),
        may_hand_over_early: false,
        delivery: Delivery::Anyone,
    }
}

fn error(config: Config, grants: Grants) -> alloc::string::String {
    config.resolve(grants).unwrap_err().to_string()
}

#[test]
fn by_default_a_leader_counts_on_a_third_of_what_the_ledger_holds() {
    let plan = Config::new(ME, Mode::Exclusive).resolve(kafka()).unwrap();
    assert_eq!(plan.threshold(), ms(2000));
    assert_eq!(plan.interval(), ms(500));
    assert_eq!(plan.grace(), Duration::ZERO, "who cannot renew is fenced");
    assert_eq!(plan.drain(), ms(4000));
}

/// Section "Protocol definition": T is greater than the session timeout; with 10 s it could be 30 s.
#[test]
fn protocol_definition_a_non_exclusive_threshold_is_above_the_session() {
    let grants = Grants { session: ms(10_000), ..kafka() };
    let config = Config::new(ME, Mode::NonExclusive);
    let plan = config.with_threshold(ms(30_000)).resolve(grants).unwrap();
    assert_eq!(plan.threshold() - plan.grants().session, ms(20_000), "of overlap, at most");
    assert!(error(config.with_threshold(ms(10_000)), grants).contains("longer than the session"));
    assert_eq!(config.resolve(grants).unwrap().threshold(), ms(20_000));
}

#[test]
fn an_exclusive_threshold_leaves_room_for_drift_of_both_clocks() {
    let config = Config::new(ME, Mode::Exclusive);
    assert!(config.with_threshold(ms(5880)).resolve(kafka()).is_ok());
    let words = error(config.with_threshold(ms(5990)), kafka());
    assert!(words.contains("at most 5.8806s") && words.contains("two may lead"), "{words}");
}

/// Section "Exclusivity of role assignment": where the broker may reassign early, the new leader waits
/// for up to T.
#[test]
fn exclusivity_a_ledger_that_hands_over_early_needs_a_grace_period() {
    let early = Grants { may_hand_over_early: true, ..kafka() };
    let config = Config::new(ME, Mode::Exclusive);
    let plan = config.resolve(early).unwrap();
    assert!(plan.grace() > plan.threshold());
    assert!(error(config.with_grace(ms(100)), early).contains("at least 2.0"));
    let unfenced = Grants { fenced: None, delivery: Delivery::AssignedOnly, ..kafka() };
    let plan = config.resolve(unfenced).unwrap();
    assert!(plan.grace() > plan.threshold(), "nor can a ledger that does not fence");
}

#[test]
fn a_ledger_on_which_nobody_can_know_is_refused() {
    let grants = Grants { fenced: None, ..kafka() };
    assert!(error(Config::new(ME, Mode::Exclusive), grants).contains("nothing there can be led"));
    assert!(Config::new(ME, Mode::NonExclusive).resolve(grants).is_ok());
}

/// Section "Topic reuse": with a second group, both publish half as often.
#[test]
fn topic_reuse_groups_that_share_a_topic_publish_less_often() {
    let config = Config::new(ME, Mode::NonExclusive).with_interval(ms(1000));
    let interval =
        |groups| config.with_sharing(groups).resolve(kafka()).map(|plan| plan.interval());
    assert_eq!(interval(1), Ok(ms(1000)));
    assert_eq!(interval(2), Ok(ms(2000)));
    assert!(interval(5).unwrap_err().to_string().contains("at least 3 times"));
    assert!(interval(0).unwrap_err().to_string().contains("at least 1"));
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    let exclusive = Config::new(ME, Mode::Exclusive);
    assert!(error(exclusive.with_drain(ms(8000)), kafka()).contains("waits for a release"));
    assert!(error(exclusive.with_allowance(300), kafka()).contains("200 parts"));
    assert!(error(exclusive.with_interval(ms(1500)), kafka()).contains("at least 2 times"));
    assert!(error(exclusive.with_interval(ms(0)), kafka()).contains("the interval"));
    assert!(error(exclusive.with_drain(ms(0)), kafka()).contains("drain"));
    let gaps = Config::new(ME, Mode::NonExclusive).with_grace(ms(1));
    assert!(error(gaps, kafka()).contains("leave it out"));
}
