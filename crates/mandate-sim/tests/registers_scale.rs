//! Large groups on a database: the figures in docs/registers.md.
//!
//! `cargo test -p mandate-sim --test registers_scale -- --nocapture` prints the rows of its table.

use std::time::Duration;

use mandate_proto::registers::Config;
use mandate_sim::member;
use mandate_sim::registers::scale::{ScaleFigures, measure};

const GUIDE: &str = include_str!("../../../docs/registers.md");

/// The failover that this share of them was not longer than.
fn failover(figures: &ScaleFigures, share: f64) -> Duration {
    let place = (figures.failovers.len() as f64 * share) as usize;
    figures.failovers[place.min(figures.failovers.len() - 1)]
}

fn grouped(number: f64) -> String {
    match number.round() as u64 {
        small @ ..1000 => small.to_string(),
        large => format!("{},{:03}", large / 1000, large % 1000),
    }
}

/// A row of the guide's table.
fn row(name: &str, figures: &ScaleFigures) -> String {
    let [median, p95] = [0.5, 0.95].map(|share| failover(figures, share).as_secs_f64());
    let times = match median {
        ..1.0 => format!("{:.0} / {:.0} ms", median * 1000.0, p95 * 1000.0),
        _ => format!("{median:.2} / {p95:.2} s"),
    };
    let statements = grouped(figures.statements_per_second);
    let rows = grouped(figures.rows_per_second);
    format!("| {name} | {statements} | {rows} | {times} | {:.1} |", figures.takeovers_asked)
}

fn check(size: usize) -> String {
    let paper = Config::paper(member(0));
    let measured = measure(size, &paper, 20, 1);
    let n = size as f64;
    // A heartbeat of each member a round; of the leader four renewals and a sweep; of three successors
    // a few looks.
    assert!(measured.statements_per_second < n / 2.0 + 12.0, "{measured:?}");
    // A heartbeat is two rows, and the leader reads one of each member.
    assert!(measured.rows_per_second < n * 1.5 + 24.0, "{measured:?}");
    assert!(measured.takeovers_asked < 4.0, "no storm: {measured:?}");
    assert_eq!(measured.round, paper.round(), "section 6: rounds do not grow with the group");
    assert!(failover(&measured, 0.5) <= Duration::from_millis(2500), "{measured:?}");
    row(&grouped(n), &measured)
}

/// Section 6 goes up to 800, and its rounds and failovers grow from 200 on.
#[test]
fn work_grows_with_the_group_and_failover_does_not_up_to_five_thousand_members() {
    let mut rows: Vec<String> = [2, 100, 200, 800, 2000, 5000].map(check).into();
    let lan = measure(10, &Config::lan(member(0)), 50, 1);
    assert!(failover(&lan, 0.5) <= Duration::from_millis(200), "{lan:?}");
    rows.push(row("10, rounds of 100 ms", &lan));
    println!("{}", rows.join("\n"));
    rows.retain(|row| !GUIDE.lines().any(|line| line == row));
    assert_eq!(rows, [""; 0], "rows that the guide has otherwise");
}
