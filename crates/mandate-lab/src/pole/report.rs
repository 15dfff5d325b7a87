//! Results as a page in Markdown, tables in CSV and diagrams.

use std::fmt::Write;

use super::crash::{ByOracle, Latencies, Ran};
use super::deployment::{Deployment, Shares};
use super::figures::{Figure, TUD_CERN, paper_by_leader, paper_by_oracle};
use super::recovery::Recovered;
use super::results::{PoleResults, fits};
use crate::picture::{Panel, PlotKind, Series};

/// The page. Diagrams are named by figure, beside it.
pub fn markdown(results: &PoleResults, how: &str) -> String {
    let mut page = format!(
        "# Leaders by application scores, over wide-area links\n\n{how}\n\n## Findings\n\n"
    );
    for finding in results.findings() {
        let held = match finding.holds {
            Some(true) => "held",
            Some(false) => "**not held**",
            None => "**not observed**",
        };
        let _ = writeln!(page, "- {held}: {}. {}", finding.claim, finding.figures);
    }
    for failure in &results.failures {
        let _ = writeln!(page, "- **could not be run**: {failure}");
    }
    for figure in &results.figures {
        let (title, table) = match figure {
            Figure::F4b => (
                "latency before and after the crash of p5, two data centres",
                by_oracle(results, &two()),
            ),
            Figure::F6 => {
                ("latency by leader, three data centres, even requests", by_leader(results))
            }
            Figure::F7a => ("uneven requests, two data centres", by_oracle(results, &two())),
            Figure::F7b => {
                ("uneven requests, three data centres: mean latency", by_oracle(results, &three()))
            }
            Figure::F7c => {
                ("uneven requests, three data centres: worst case", worst_by_oracle(results))
            }
            Figure::F8a => (
                "recovery by size of the snapshot, two data centres; p1 is outdated",
                recoveries(results, |it| it.case.deployment.centres.len() == 2),
            ),
            Figure::F8b => (
                "recovery, three data centres; p2 and p3 are outdated",
                recoveries(results, |it| it.case.outdated.len() == 2),
            ),
            Figure::Open => (
                "open in the paper: recovery and steady state together; all requests at D3 of Deployment 1, whose p1 is outdated",
                recoveries(results, |it| it.case.deployment == Deployment::numbered(1)),
            ),
        };
        let _ = write!(
            page,
            "\n## Figure {figure}: {title}\n\n![Figure {figure}](figure-{figure}.svg)\n\n{table}"
        );
    }
    page
}

fn two() -> Vec<Deployment> {
    vec![Deployment::two(TUD_CERN)]
}

fn three() -> Vec<Deployment> {
    (1..=3).map(Deployment::numbered).collect()
}

fn text(ms: Option<f64>) -> String {
    ms.map_or("".into(), |ms| format!("{ms:.1}"))
}

fn verdict(measured: f64, arithmetic: f64) -> &'static str {
    if fits(measured, arithmetic) { "" } else { "off" }
}

fn servers(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("p{id}")).collect::<Vec<_>>().join(" or ")
}

/// Whom an oracle should have elected.
fn expected(ran: &Ran) -> String {
    let expected = ran.case.oracle.elects(&ran.case.deployment, &ran.case.shares);
    expected.map_or("any".into(), |expected| servers(&expected))
}

fn slashed(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("p{id}")).collect::<Vec<_>>().join("/")
}

fn by_leader(results: &PoleResults) -> String {
    let mut table = "| deployment | leader | elected by | requests at | arithmetic ms | paper ms | measured ms | |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for deployment in three() {
        for leader in 1..=4 {
            let under = results.under(&deployment, leader);
            let Some(first) = under.first() else { continue };
            let mean = |figure: &dyn Fn(&Latencies) -> f64| {
                results.mean_under(&deployment, leader, figure).unwrap_or_default()
            };
            let even = Shares::even(3);
            let by = ByOracle::ALL.into_iter().filter(|oracle| {
                results.runs(&deployment, &even, *oracle).any(|ran| ran.elected == leader)
            });
            let by = by.map(ByOracle::name).collect::<Vec<_>>().join(", ");
            let mut row = |place: &str, arithmetic: f64, paper: Option<f64>, measured: f64| {
                let _ = writeln!(
                    table,
                    "| {} | p{leader} | {by} | {place} | {arithmetic:.1} | {} | {measured:.1} | {} |",
                    deployment.name,
                    text(paper),
                    verdict(measured, arithmetic)
                );
            };
            for centre in 0..3 {
                let paper = paper_by_leader(&deployment.name, leader, Some(centre));
                let measured = mean(&|it| it.at_ms[centre]);
                row(&format!("D{}", centre + 1), first.predicted.at_ms[centre], paper, measured);
            }
            let paper = paper_by_leader(&deployment.name, leader, None);
            row("all: mean", first.predicted.mean_ms, paper, mean(&|it| it.mean_ms));
        }
    }
    table
}

fn by_oracle(results: &PoleResults, deployments: &[Deployment]) -> String {
    let mut table = "| deployment | requests | oracle | elects | elected | arithmetic ms | paper ms | measured ms | | before the crash, arithmetic | measured |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for ran in results.crashes.iter().filter(|ran| deployments.contains(&ran.case.deployment)) {
        let Ran { case, after, before, .. } = ran;
        let paper = paper_by_oracle(case).or_else(|| {
            let is_even_two = case.shares == Shares::even(2);
            is_even_two.then_some(30.0)
        });
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | p{} | {:.1} | {} | {:.1} | {} | {:.1} | {:.1} |",
            case.deployment.name,
            case.shares,
            case.oracle.name(),
            expected(ran),
            ran.elected,
            after.predicted.mean_ms,
            text(paper),
            after.mean_ms,
            verdict(after.mean_ms, after.predicted.mean_ms),
            before.predicted.mean_ms,
            before.mean_ms,
        );
    }
    table
}

fn worst_by_oracle(results: &PoleResults) -> String {
    let mut table =
        "| deployment | requests | oracle | elected | arithmetic ms | paper ms | measured ms | |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for ran in results.crashes.iter().filter(|ran| ran.case.deployment.centres.len() == 3) {
        let (arithmetic, measured) = (ran.after.predicted.worst_ms, ran.after.worst_ms());
        let _ = writeln!(
            table,
            "| {} | {} | {} | p{} | {arithmetic:.1} | | {measured:.1} | {} |",
            ran.case.deployment.name,
            ran.case.shares,
            ran.case.oracle.name(),
            ran.elected,
            verdict(measured, arithmetic),
        );
    }
    table
}

fn recoveries(results: &PoleResults, chosen: impl Fn(&Recovered) -> bool) -> String {
    let mut table = "| deployment | outdated | MB | oracle | interim | elected | serves after the crash, ms | serves after the election, ms | elected leads, ms | steady state ms, arithmetic | measured |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for it in results.recoveries.iter().filter(|it| chosen(it)) {
        let interim = match (it.case.interim, it.interim) {
            (false, _) => "does not serve".to_owned(),
            (true, Some(interim)) => format!("p{interim}"),
            (true, None) => "none needed".to_owned(),
        };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {interim} | p{} | {:.0} | {} | {} | {:.1} | {:.1} |",
            it.case.deployment.name,
            servers(&it.case.outdated),
            it.case.megabytes,
            it.case.oracle.name(),
            it.elected,
            it.served_ms,
            measured(it.service_recovery_ms()),
            measured(it.leader_recovery_ms()),
            it.predicted_ms,
            it.steady_ms,
        );
    }
    table
        + "\nTimes after the election count from the moment in which the first new leader knows that it was elected, as in the paper; \
           the last one, from when the one that leads in the end knows. Members are asked every few milliseconds.\n"
}

/// A time, if it was measured.
fn measured(ms: Option<f64>) -> String {
    ms.map_or("not measured".into(), |ms| format!("{ms:.0}"))
}

/// Every run with its figures, and every recovery, as two tables.
pub fn csv(results: &PoleResults) -> [(&'static str, String); 4] {
    let mut crashes = String::from(
        "deployment,shares,oracle,elected,expected,elected_after_ms,when,place,arithmetic_ms,measured_ms\n",
    );
    for ran in &results.crashes {
        let expected = ran.case.oracle.elects(&ran.case.deployment, &ran.case.shares);
        let expected = expected.map_or("any".into(), |expected| slashed(&expected));
        let key = format!(
            "\"{}\",{},{},p{},{},{:.1}",
            ran.case.deployment.name,
            shares_text(&ran.case.shares),
            ran.case.oracle.name(),
            ran.elected,
            expected,
            ran.elected_after_ms,
        );
        for (when, it) in [("before", &ran.before), ("after", &ran.after)] {
            for (centre, measured) in it.at_ms.iter().enumerate() {
                let arithmetic = it.predicted.at_ms[centre];
                let _ =
                    writeln!(crashes, "{key},{when},D{},{arithmetic:.2},{measured:.3}", centre + 1);
            }
            let _ = writeln!(
                crashes,
                "{key},{when},mean,{:.2},{:.3}",
                it.predicted.mean_ms, it.mean_ms
            );
        }
    }
    let mut course = String::from("deployment,shares,oracle,second,centre,mean_ms\n");
    for ran in results.crashes.iter().filter(|ran| ran.case.deployment.centres.len() == 2) {
        for (second, centre, ms) in &ran.course {
            let (deployment, oracle) = (&ran.case.deployment.name, ran.case.oracle.name());
            let shares = shares_text(&ran.case.shares);
            let _ = writeln!(
                course,
                "\"{deployment}\",{shares},{oracle},{second:.0},D{},{ms:.3}",
                centre + 1
            );
        }
    }
    let mut recoveries = String::from(
        "deployment,outdated,megabytes,oracle,interim_serves,elected,interim,first_elected_ms,elected_ms,served_ms,led_ms,steady_ms,arithmetic_ms\n",
    );
    for it in &results.recoveries {
        let interim = it.interim.map_or(String::new(), |interim| format!("p{interim}"));
        let _ = writeln!(
            recoveries,
            "\"{}\",{},{},{},{},p{},{interim},{:.1},{:.1},{:.1},{:.1},{:.3},{:.2}",
            it.case.deployment.name,
            slashed(&it.case.outdated),
            it.case.megabytes,
            it.case.oracle.name(),
            it.case.interim,
            it.elected,
            it.first_elected_ms,
            it.elected_ms,
            it.served_ms,
            it.led_ms,
            it.steady_ms,
            it.predicted_ms,
        );
    }
    let mut leaders = String::from("deployment,leader,place,arithmetic_ms,measured_ms\n");
    for (deployment, it) in &results.leaders {
        let name = &deployment.name;
        for (centre, measured) in it.at_ms.iter().enumerate() {
            let arithmetic = it.predicted.at_ms[centre];
            let _ = writeln!(
                leaders,
                "\"{name}\",p{},D{},{arithmetic:.2},{measured:.3}",
                it.leader,
                centre + 1
            );
        }
        let (arithmetic, measured) = (it.predicted.mean_ms, it.mean_ms);
        let _ = writeln!(leaders, "\"{name}\",p{},mean,{arithmetic:.2},{measured:.3}", it.leader);
    }
    [
        ("crashes.csv", crashes),
        ("course.csv", course),
        ("leaders.csv", leaders),
        ("recoveries.csv", recoveries),
    ]
}

fn shares_text(shares: &Shares) -> String {
    shares.0.iter().map(|share| format!("{share:.3}")).collect::<Vec<_>>().join("/")
}

/// A figure's diagrams.
pub fn panels(results: &PoleResults, figure: Figure) -> Vec<Panel> {
    match figure {
        Figure::F4b => vec![
            course_panel(results, ByOracle::History),
            course_panel(results, ByOracle::Rotating),
        ],
        Figure::F6 => three().iter().map(|deployment| leader_panel(results, deployment)).collect(),
        Figure::F7a => vec![share_panel(
            results,
            &Deployment::two(TUD_CERN),
            1,
            "mean",
            |it| it.mean_ms,
            |it| it.predicted.mean_ms,
        )],
        Figure::F7b => [(1, 2), (3, 1)]
            .map(|(number, centre)| {
                share_panel(
                    results,
                    &Deployment::numbered(number),
                    centre,
                    "mean",
                    |it| it.mean_ms,
                    |it| it.predicted.mean_ms,
                )
            })
            .into(),
        Figure::F7c => [(1, 2), (3, 1)]
            .map(|(number, centre)| {
                share_panel(
                    results,
                    &Deployment::numbered(number),
                    centre,
                    "worst-case",
                    Latencies::worst_ms,
                    |it| it.predicted.worst_ms,
                )
            })
            .into(),
        Figure::F8a => recovery_panels(results),
        Figure::F8b => vec![size_panel(
            "Until the service serves, three data centres",
            &[("history", ByOracle::History, true), ("rotating: p1", ByOracle::Rotating, true)],
            |oracle, interim| {
                results.recovered(&Deployment::of_figure_8b(), &[2, 3], oracle, interim)
            },
            Recovered::service_recovery_ms,
        )],
        Figure::Open => vec![trade_panel(results)],
    }
}

fn course_panel(results: &PoleResults, oracle: ByOracle) -> Panel {
    let (deployment, shares) = (Deployment::two(TUD_CERN), Shares::even(2));
    let series = |centre: usize| {
        let run = results.runs(&deployment, &shares, oracle).next();
        let points = run.map_or(Vec::new(), |ran| {
            let here = ran.course.iter().filter(|(_, at, _)| *at == centre);
            here.map(|(second, _, ms)| (*second, *ms)).collect()
        });
        Series { name: format!("D{}", centre + 1), kind: PlotKind::Line, colour: centre, points }
    };
    Panel {
        title: format!("{}: latency around the crash of p5", oracle.name()),
        x: "seconds from the crash".into(),
        y: "mean of a second, ms".into(),
        names: Vec::new(),
        series: vec![series(0), series(1)],
    }
}

fn leader_panel(results: &PoleResults, deployment: &Deployment) -> Panel {
    let leaders: Vec<u32> =
        (1..=4).filter(|leader| !results.under(deployment, *leader).is_empty()).collect();
    let mean = |leader: u32, figure: &dyn Fn(&Latencies) -> f64| {
        results.mean_under(deployment, leader, figure).unwrap_or_default()
    };
    let points = |figure: &dyn Fn(&Latencies) -> f64| {
        let each = leaders.iter().enumerate();
        each.map(|(place, leader)| (place as f64, mean(*leader, figure))).collect::<Vec<_>>()
    };
    let mut series: Vec<_> = (0..3)
        .map(|centre| Series {
            name: format!("D{}", centre + 1),
            kind: PlotKind::Bars,
            colour: centre,
            points: points(&|it| it.at_ms[centre]),
        })
        .collect();
    series.push(Series {
        name: "mean".into(),
        kind: PlotKind::Points,
        colour: 5,
        points: points(&|it| it.mean_ms),
    });
    series.push(Series {
        name: "mean, arithmetic".into(),
        kind: PlotKind::Expected,
        colour: 5,
        points: points(&|it| it.predicted.mean_ms),
    });
    Panel {
        title: deployment.name.clone(),
        x: "leader".into(),
        y: "latency, ms".into(),
        names: leaders.iter().map(|leader| format!("p{leader}")).collect(),
        series,
    }
}

fn share_panel(
    results: &PoleResults,
    deployment: &Deployment,
    centre: usize,
    what: &str,
    measured: fn(&Latencies) -> f64,
    arithmetic: fn(&Latencies) -> f64,
) -> Panel {
    let mut series = Vec::new();
    for (colour, oracle) in ByOracle::ALL.into_iter().enumerate() {
        let runs = results.crashes.iter().filter(|ran| {
            let others = ran.case.shares.0.iter().enumerate().filter(|(at, _)| *at != centre);
            let others: Vec<_> = others.map(|(_, share)| *share).collect();
            (&ran.case.deployment, ran.case.oracle) == (deployment, oracle)
                && others.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-9)
        });
        let of = |figure: fn(&Latencies) -> f64| {
            let mut points: Vec<_> =
                runs.clone().map(|ran| (ran.case.shares.0[centre], figure(&ran.after))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let (points, expected) = (of(measured), of(arithmetic));
        if points.is_empty() {
            continue;
        }
        let name = oracle.name().to_owned();
        series.push(Series {
            name: format!("{name}, arithmetic"),
            kind: PlotKind::Expected,
            colour,
            points: expected,
        });
        series.push(Series { name, kind: PlotKind::Line, colour, points });
    }
    Panel {
        title: format!("{}: {what} latency", deployment.name),
        x: format!("share of requests at D{} (p)", centre + 1),
        y: "ms".into(),
        names: Vec::new(),
        series,
    }
}

fn size_panel<'a>(
    title: &str,
    which: &[(&str, ByOracle, bool)],
    of: impl Fn(ByOracle, bool) -> Vec<&'a Recovered>,
    figure: fn(&Recovered) -> Option<f64>,
) -> Panel {
    let mut series = Vec::new();
    for (colour, (name, oracle, interim)) in which.iter().enumerate() {
        let mut points: Vec<_> = of(*oracle, *interim)
            .into_iter()
            .filter_map(|it| Some((f64::from(it.case.megabytes), figure(it)? / 1000.0)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        series.push(Series { name: (*name).into(), kind: PlotKind::Line, colour, points });
    }
    Panel {
        title: title.into(),
        x: "snapshot, MB".into(),
        y: "seconds".into(),
        names: Vec::new(),
        series,
    }
}

fn recovery_panels(results: &PoleResults) -> Vec<Panel> {
    let panel = |ms: &f64,
                 what: &str,
                 which: &[(&str, ByOracle, bool)],
                 figure: fn(&Recovered) -> Option<f64>| {
        let deployment = Deployment::two(*ms);
        let of = |oracle, interim| results.recovered(&deployment, &[1], oracle, interim);
        size_panel(&format!("{what}, {ms} ms"), which, of, figure)
    };
    let both = |ms: &f64| {
        let outdated = [
            ("rotating: p1, interim p2", ByOracle::Rotating, true),
            ("preferred: p1, interim p4", ByOracle::Preference, true),
            ("preferred: p1, nobody serves before", ByOracle::Preference, false),
            ("history", ByOracle::History, true),
        ];
        [
            panel(ms, "Until the elected leads", &outdated, Recovered::leader_recovery_ms),
            panel(ms, "Until the service serves", &outdated, Recovered::service_recovery_ms),
        ]
    };
    results.round_trips().iter().flat_map(both).collect()
}

fn trade_panel(results: &PoleResults) -> Panel {
    let which = [
        ("history", ByOracle::History, true),
        ("best directly: p1", ByOracle::Preference, false),
        ("best, with an interim: p1", ByOracle::Preference, true),
    ];
    let deployment = Deployment::numbered(1);
    let series = which.iter().enumerate().map(|(colour, (name, oracle, interim))| {
        let found = results.recovered(&deployment, &[1], *oracle, *interim);
        let points =
            found.iter().filter_map(|it| Some((it.service_recovery_ms()? / 1000.0, it.steady_ms)));
        Series { name: (*name).into(), kind: PlotKind::Points, colour, points: points.collect() }
    });
    Panel {
        title: "Recovery and steady state together: towards the lower left is better".into(),
        x: "until the service serves, seconds".into(),
        y: "mean latency then, ms".into(),
        names: Vec::new(),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recovery::tests::{case, recovered};
    use super::super::results::tests::ran;
    use super::*;

    /// Each row has as many fields as its table has columns; names with commas are quoted.
    #[test]
    fn rows_of_tables_have_the_columns_of_their_heads() {
        let results = PoleResults {
            crashes: vec![
                ran(Deployment::two(TUD_CERN), Shares::even(2), ByOracle::History, 4, 30.0, 40.0),
                ran(Deployment::numbered(1), Shares::even(3), ByOracle::Worst, 3, 30.0, 40.0),
            ],
            leaders: vec![(
                Deployment::numbered(1),
                ran(Deployment::numbered(1), Shares::even(3), ByOracle::Worst, 3, 1.0, 2.0).after,
            )],
            recoveries: vec![recovered(case(ByOracle::History, 100, true), 4, 1.0, 2.0, 3.0)],
            ..PoleResults::default()
        };
        for (name, table) in csv(&results) {
            let columns = |line: &str| {
                let mut quoted = false;
                let commas = line.chars().filter(|it| {
                    quoted ^= *it == '"';
                    *it == ',' && !quoted
                });
                commas.count() + 1
            };
            let head = table.lines().next().unwrap();
            assert!(table.lines().count() > 1, "{name} is empty");
            for line in table.lines() {
                assert_eq!(columns(line), columns(head), "{name}: {line}");
            }
        }
        let tables = csv(&results);
        let field = |name: &str, line: usize, column: &str| {
            let table = &tables.iter().find(|(it, _)| *it == name).unwrap().1;
            let place = table.lines().next().unwrap().split(',').position(|it| it == column);
            let row = table.lines().nth(line).unwrap().replace("data centres, ", "data centres ");
            row.split(',').nth(place.unwrap()).unwrap().to_owned()
        };
        assert_eq!(field("crashes.csv", 1, "expected"), "any");
        assert_eq!(field("crashes.csv", 1, "elected"), "p4");
        assert_eq!(field("recoveries.csv", 1, "outdated"), "p1");
        assert_eq!(field("recoveries.csv", 1, "first_elected_ms"), "1.0");
        assert_eq!(field("recoveries.csv", 1, "served_ms"), "2.0");
        assert_eq!(field("recoveries.csv", 1, "led_ms"), "3.0");
        assert_eq!(field("course.csv", 1, "shares"), "0.500/0.500");
        assert_eq!(field("leaders.csv", 4, "place"), "mean");
    }
}
