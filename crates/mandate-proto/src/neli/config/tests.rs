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
        fenced: true,
        renews_through_joins: false,
        delivery: RecordDelivery::Anyone,
    }
}

fn error(config: Config, grants: Grants) -> alloc::string::String {
    config.resolve(grants).unwrap_err().to_string()
}

#[test]
fn by_default_a_leader_counts_on_half_a_session_and_the_next_waits_for_that() {
    let plan = Config::new(ME, Mode::Exclusive).resolve(kafka()).unwrap();
    assert_eq!(plan.threshold(), ms(3000));
    assert_eq!(plan.interval(), ms(750));
    assert!(plan.grace() > ms(3060) && plan.grace() < ms(3062), "T, and 1 % for each clock");
    assert_eq!(plan.drain(), ms(4000));
}

#[test]
fn a_long_session_makes_no_long_threshold_where_renewals_go_on_through_joins() {
    let consumer = Grants { session: ms(45_000), renews_through_joins: true, ..kafka() };
    let threshold = |grants| Config::new(ME, Mode::Exclusive).resolve(grants).unwrap().threshold();
    assert_eq!(threshold(consumer), ms(3000));
    assert_eq!(threshold(Grants { session: ms(300), ..consumer }), ms(150));
    assert_eq!(threshold(Grants { renews_through_joins: false, ..consumer }), ms(22_500));
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

/// Section "Exclusivity of role assignment": where the broker may reassign early, the new leader waits
/// for up to T.
#[test]
fn exclusivity_the_grace_period_is_longer_than_the_threshold_by_what_both_clocks_may_drift() {
    let unfenced = Grants { fenced: false, delivery: RecordDelivery::AssignedOnly, ..kafka() };
    for grants in [kafka(), unfenced] {
        let config = Config::new(ME, Mode::Exclusive).with_threshold(ms(5000));
        assert!(config.resolve(grants).unwrap().grace() > ms(5100));
        assert!(error(config.with_grace(ms(5099)), grants).contains("at least 5.10"));
        assert_eq!(config.with_grace(ms(7000)).resolve(grants).unwrap().grace(), ms(7000));
    }
}

#[test]
fn a_ledger_on_which_nobody_can_know_is_refused() {
    let grants = Grants { fenced: false, ..kafka() };
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
    assert!(error(exclusive.with_interval(ms(1600)), kafka()).contains("at least 2 times"));
    assert!(error(exclusive.with_interval(ms(0)), kafka()).contains("the interval"));
    assert!(error(exclusive.with_drain(ms(0)), kafka()).contains("drain"));
    let gaps = Config::new(ME, Mode::NonExclusive).with_grace(ms(1));
    assert!(error(gaps, kafka()).contains("leave it out"));
}
