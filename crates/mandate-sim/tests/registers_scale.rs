//! Large groups on a database. The figures: `cargo test -p mandate-sim --test registers_scale -- --nocapture`.

use std::time::Duration;

use mandate_proto::registers::Config;
use mandate_sim::member;
use mandate_sim::registers::scale::{Figures, measure};

fn figures(size: usize, config: &Config, kills: usize) -> Figures {
    let figures = measure(size, config, kills, 1);
    let at = |share: f64| {
        let place = (figures.failovers.len() as f64 * share) as usize;
        figures.failovers[place.min(figures.failovers.len() - 1)]
    };
    println!(
        "{size} members, rounds of {:?}: {:.0} statements and {:.0} rows a second; failover {:?} / \
         {:?} (median / p95), {:.1} takeovers asked for each; round then {:?}",
        config.round(),
        figures.statements_per_second,
        figures.rows_per_second,
        at(0.5),
        at(0.95),
        figures.takeovers_asked,
        figures.round,
    );
    figures
}

fn check(sizes: &[usize]) {
    let paper = Config::paper(member(0));
    for size in sizes {
        let measured = figures(*size, &paper, 20);
        let n = *size as f64;
        // A heartbeat of each member a round; of the leader four renewals and a sweep; of three successors
        // a few looks.
        assert!(measured.statements_per_second < n / 2.0 + 12.0, "{measured:?}");
        // A heartbeat is two rows, and the leader reads one of each member.
        assert!(measured.rows_per_second < n * 1.5 + 24.0, "{measured:?}");
        assert!(measured.takeovers_asked < 4.0, "no storm: {measured:?}");
        assert_eq!(measured.round, paper.round(), "section 6: rounds do not grow with the group");
        let median = measured.failovers[measured.failovers.len() / 2];
        assert!(median <= Duration::from_millis(2500), "{median:?}");
    }
}

/// Section 6 goes up to 800, and its rounds and failovers grow from 200 on.
#[test]
fn work_grows_with_the_group_and_failover_does_not_up_to_five_thousand_members() {
    check(&[2, 100, 200, 800, 2000, 5000]);
    let lan = figures(10, &Config::lan(member(0)), 50);
    assert!(lan.failovers[25] <= Duration::from_millis(200), "{:?}", lan.failovers[25]);
}
