//! The experiment as a Markdown page, and the claims that can be read off it.

use std::fmt::Write;

use mandate_proto::detector::quartiles::Quartiles;

use super::comparison::Row;
use super::{LOSS, MEMBERS, NfdLResults, VARIANCE, bounds};

/// Table 1 of the paper, in milliseconds: quartiles of mistake duration, detection and recovery.
pub const PAPER_MISTAKE_DURATION_MS: [f64; 3] = [20.0, 98.223, 146.03];
/// Detection time.
pub const PAPER_DETECTION_MS: [f64; 3] = [735.0, 741.5, 754.25];
/// Recovery detection time.
pub const PAPER_RECOVERY_MS: [f64; 3] = [113.0, 570.5, 595.0];

/// Something the experiment should show.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The claim, as a sentence.
    pub claim: &'static str,
    /// Whether it does.
    pub holds: bool,
    /// The figures behind it.
    pub figures: String,
}

/// What the paper promises, against what was measured.
pub fn claims(results: &NfdLResults) -> Vec<Expectation> {
    let detect_ms = bounds().detect().as_secs_f64() * 1000.0;
    let lasts_ms = bounds().mistake_lasts().as_secs_f64() * 1000.0;
    let interval_ms = results.plan.interval.as_secs_f64() * 1000.0;
    let detection = results.speed.detection_quartiles().map(in_ms);
    let recovery = results.speed.recovery_quartiles().map(in_ms);
    let lasted = results.accuracy.mistake_duration().map(in_ms);
    let rate = results.accuracy.mistake_rate();
    let missed = results.speed.missed;
    let claim = |claim, holds, figures| Expectation { claim, holds, figures };
    vec![
        claim(
            "every crash is noticed within the detection time",
            missed == 0 && detection.is_some_and(|found| found.max <= detect_ms),
            detection.map_or("nothing measured".into(), |found| {
                format!("slowest {:.1} ms of {detect_ms} ms, {missed} missed", found.max)
            }),
        ),
        claim(
            "the median of the mistake rate is 0",
            rate.is_some_and(|rate| rate.median == 0.0),
            format!(
                "mistakes in all: {}, monitor runs: {}",
                results.accuracy.mistakes(),
                results.accuracy.monitors.len()
            ),
        ),
        claim(
            "mistakes last less than their bound",
            lasted.is_none_or(|lasted| lasted.max <= lasts_ms),
            lasted.map_or("no mistakes".into(), |lasted| {
                format!("longest average {:.1} ms of {lasts_ms} ms", lasted.max)
            }),
        ),
        claim(
            "recoveries are noticed within 1 s",
            recovery.is_some_and(|found| found.max < 1000.0),
            recovery
                .map_or("nothing measured".into(), |found| format!("slowest {:.1} ms", found.max)),
        ),
        claim(
            "detection is not slower than the paper's median by more than the interval",
            detection.is_some_and(|found| found.median <= PAPER_DETECTION_MS[1] + interval_ms),
            detection.map_or("nothing measured".into(), |found| {
                let allowed = PAPER_DETECTION_MS[1] + interval_ms;
                format!("median {:.1} ms of {allowed:.1} ms", found.median)
            }),
        ),
        claim(
            "one broadcaster: N-1 messages an interval",
            (results.accuracy.messages_per_interval - (MEMBERS as f64 - 1.0)).abs() < 0.01,
            format!(
                "{:.4} messages an interval, {} are needed",
                results.accuracy.messages_per_interval,
                MEMBERS - 1
            ),
        ),
    ]
}

/// Seconds as milliseconds.
pub(super) fn in_ms(seconds: Quartiles) -> Quartiles {
    seconds.scaled(1000.0)
}

/// The whole page.
pub fn markdown(results: &NfdLResults) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, results);
    page
}

fn write_page(page: &mut String, results: &NfdLResults) -> std::fmt::Result {
    let (settings, plan) = (&results.settings, &results.plan);
    writeln!(page, "# NFD-L: the quality of service of a leader election\n")?;
    writeln!(
        page,
        "{MEMBERS} members in simulated time; loss {LOSS}, delay variance {:.4} ms squared, mean \
         delay 0.33 ms. Interval {:.2} ms, margin {:.2} ms: the detection time of 1 s, less {:?} \
         for the delay, which the paper neglects. Accuracy: {} runs of {:?}. Speed: {} cycles of \
         crash and recovery. Seed {}.\n",
        VARIANCE * 1e6,
        plan.interval.as_secs_f64() * 1000.0,
        plan.margin.as_secs_f64() * 1000.0,
        super::DELAY_ALLOWANCE,
        settings.runs,
        settings.length,
        settings.cycles,
        settings.seed,
    )?;
    write_table_1(page, results)?;
    writeln!(page, "\n## What it shows\n")?;
    for claim in claims(results) {
        let mark = if claim.holds { "holds" } else { "**does not hold**" };
        writeln!(page, "- {}: {mark} ({}).", claim.claim, claim.figures)?;
    }
    write_comparison(page, results)
}

fn write_table_1(page: &mut String, results: &NfdLResults) -> std::fmt::Result {
    writeln!(page, "## Beside the paper's Table 1\n")?;
    writeln!(page, "First quartile / median / third quartile.\n")?;
    writeln!(page, "| metric | paper | measured | slowest | bound |")?;
    writeln!(page, "| --- | --- | --- | --- | --- |")?;
    let ms = |values: [f64; 3]| values.map(|value| format!("{value:.1}")).join(" / ");
    let line = |page: &mut String, metric, paper, found: Option<Quartiles>, bound| match found {
        Some(q) => {
            let measured = ms([q.first, q.median, q.third]);
            writeln!(page, "| {metric} | {paper} | {measured} | {:.1} | {bound} |", q.max)
        }
        None => writeln!(page, "| {metric} | {paper} | no mistakes | | {bound} |"),
    };
    let rate = results.accuracy.mistake_rate().map_or("".into(), |q| {
        format!("{:.6} / {:.6} / {:.6} | {:.6}", q.first, q.median, q.third, q.max)
    });
    writeln!(page, "| mistake rate, 1/s | 0 / 0 / 0 | {rate} | 0.000278 |")?;
    let duration = results.accuracy.mistake_duration().map(in_ms);
    line(page, "mistake duration, ms", ms(PAPER_MISTAKE_DURATION_MS), duration, 1000)?;
    let detection = results.speed.detection_quartiles().map(in_ms);
    line(page, "detection time, ms", ms(PAPER_DETECTION_MS), detection, 1000)?;
    let recovery = results.speed.recovery_quartiles().map(in_ms);
    line(page, "recovery detection, ms", ms(PAPER_RECOVERY_MS), recovery, 1000)?;
    writeln!(
        page,
        "\nCrashes fall anywhere in the interval here, so detection times spread evenly from the \
         margin to the detection time; the paper's crashes came at one phase of it. Query \
         accuracy {:.6}; mistakes per monitor and hour {:.3} (bound 1), and with bursts on the \
         links {:.3}, query accuracy {:.6}.",
        results.accuracy.query_accuracy(),
        results.accuracy.mistakes_per_hour(),
        results.accuracy_in_bursts.mistakes_per_hour(),
        results.accuracy_in_bursts.query_accuracy(),
    )
}

fn write_comparison(page: &mut String, results: &NfdLResults) -> std::fmt::Result {
    let comparison = &results.comparison;
    writeln!(page, "\n## Detectors side by side\n")?;
    writeln!(
        page,
        "Four monitors a run on the same arrivals; phi-accrual (window 1000) and the fixed \
         timeout are tuned to NFD-E's average detection time on the calm link. Detection is \
         averaged over every moment at which a crash might have come.\n"
    )?;
    writeln!(page, "On the paper's link:\n")?;
    write_rows(page, &comparison.calm)?;
    writeln!(
        page,
        "\nWith bursts (about once a minute, 1.5 s on average: half is lost, the rest 300 ms \
         late on average), nothing retuned:\n"
    )?;
    write_rows(page, &comparison.bursts)?;
    writeln!(page, "\n## What bursts do\n")?;
    let bound = 3600.0 / bounds().mistake_every().as_secs_f64();
    for (calm, bursty) in comparison.calm.iter().zip(&comparison.bursts) {
        let verdict = |row: &Row| if row.mistakes_per_hour <= bound { "within" } else { "beyond" };
        writeln!(
            page,
            "- {}: mistakes per hour from {:.2} ({} the bound of {bound}) to {:.2} ({} it); mean \
             detection from {:.0} to {:.0} ms, longest from {:.0} to {:.0} ms.",
            calm.detector,
            calm.mistakes_per_hour,
            verdict(calm),
            bursty.mistakes_per_hour,
            verdict(bursty),
            calm.detection_mean * 1000.0,
            bursty.detection_mean * 1000.0,
            calm.detection_max * 1000.0,
            bursty.detection_max * 1000.0,
        )?;
    }
    let Some(estimate) = comparison.bursty_estimate else { return Ok(()) };
    writeln!(
        page,
        "\nThe formulas assume that losses and delays are independent; in a burst they are not. \
         Measured over an hour the bursty link has a loss of {:.4} and a variance of {:.1} ms \
         squared.",
        estimate.loss,
        estimate.variance * 1e6
    )?;
    match &comparison.renewed {
        Some((plan, row)) => writeln!(
            page,
            "A plan renewed for that (interval {:.1} ms, margin {:.1} ms) promises {:.0} s between \
             mistakes; it makes {:.2} an hour.",
            plan.interval.as_secs_f64() * 1000.0,
            plan.margin.as_secs_f64() * 1000.0,
            plan.prediction.mistake_every,
            row.mistakes_per_hour,
        )?,
        None => writeln!(page, "No plan meets the bounds on a link like that.")?,
    }
    writeln!(
        page,
        "With the interval kept, a detection time of {:.2} s would stay within the bound in spite \
         of the bursts.",
        comparison.needed_detect
    )
}

fn write_rows(page: &mut String, rows: &[Row]) -> std::fmt::Result {
    writeln!(
        page,
        "| detector | detection mean, ms | longest, ms | mistakes / h | mistake duration, ms | \
         query accuracy |"
    )?;
    writeln!(page, "| --- | --- | --- | --- | --- | --- |")?;
    for row in rows {
        let duration = row.mistake_duration.map_or("none".into(), |q| {
            format!("{:.0} / {:.0} / {:.0}", q.first * 1e3, q.median * 1e3, q.third * 1e3)
        });
        writeln!(
            page,
            "| {} | {:.1} | {:.1} | {:.3} | {duration} | {:.6} |",
            row.detector,
            row.detection_mean * 1000.0,
            row.detection_max * 1000.0,
            row.mistakes_per_hour,
            row.accuracy,
        )?;
    }
    Ok(())
}
