//! `mandate qos plan`: bounds and link in, parameters out.

use std::time::Duration;

use mandate_proto::detector::configurator::{
    Bounds, Infeasible, LinkQuality, Nearest, Plan, Quantity, plan,
};
use serde::Serialize;

use crate::args::PlanArgs;
use crate::exit::Exit;
use crate::output::{self, Format, ms, readable, readable_seconds};

/// A plan as JSON carries it.
#[derive(Serialize)]
pub(crate) struct PlanDocument {
    feasible: bool,
    interval_ms: f64,
    margin_ms: f64,
    detect_ms: f64,
    heartbeats_per_second: f64,
    predicted: PredictionDocument,
}

/// What a plan promises. A time without end is `null`.
#[derive(Serialize)]
struct PredictionDocument {
    mistake_every_s: Option<f64>,
    mistake_lasts_ms: f64,
    query_accuracy: f64,
}

impl PlanDocument {
    pub(crate) fn new(plan: &Plan) -> Self {
        let every = plan.prediction.mistake_every;
        PlanDocument {
            feasible: true,
            interval_ms: ms(plan.interval),
            margin_ms: ms(plan.margin),
            detect_ms: ms(plan.detect()),
            heartbeats_per_second: 1.0 / plan.interval.as_secs_f64(),
            predicted: PredictionDocument {
                mistake_every_s: every.is_finite().then_some(every),
                mistake_lasts_ms: plan.prediction.mistake_lasts * 1000.0,
                query_accuracy: plan.prediction.accuracy,
            },
        }
    }
}

/// Why there is no plan, as JSON carries it.
#[derive(Serialize)]
pub(crate) struct InfeasibleDocument {
    feasible: bool,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    needed_interval_ms: Option<f64>,
    nearest: NearestDocument,
}

/// For each bound the nearest possible value with the others kept.
#[derive(Default, Serialize)]
struct NearestDocument {
    detect_ms: Option<f64>,
    mistake_every_s: Option<f64>,
    mistake_lasts_ms: Option<f64>,
}

impl InfeasibleDocument {
    pub(crate) fn new(why: &Infeasible) -> Self {
        let (needed, nearest) = match why {
            Infeasible::IntervalTooShort { needed, nearest, .. } => (*needed, *nearest),
            _ => (None, Nearest::default()),
        };
        InfeasibleDocument {
            feasible: false,
            reason: why.to_string(),
            needed_interval_ms: needed.map(ms),
            nearest: NearestDocument {
                detect_ms: nearest.detect.map(ms),
                mistake_every_s: nearest.mistake_every.map(|every| every.as_secs_f64()),
                mistake_lasts_ms: nearest.mistake_lasts.map(ms),
            },
        }
    }
}

pub(crate) fn run(args: &PlanArgs, format: Format) -> anyhow::Result<Exit> {
    let mistakes = &args.mistakes;
    let bounds = Bounds::new(args.detect, mistakes.mistake_every, mistakes.mistake_lasts)?;
    let link = LinkQuality::new(args.loss, args.variance_ms2 * 1e-6, args.limits.delay)?;
    match plan(&bounds, &link, args.limits.min_interval) {
        Ok(plan) => {
            match format {
                Format::Json => output::print_json(&PlanDocument::new(&plan))?,
                Format::Text => output::print(format!(
                    "Wanted: {}\nLink:   {}\n\n{}",
                    wanted(&bounds),
                    described(&link),
                    text(&plan)
                ))?,
            }
            Ok(Exit::Success)
        }
        Err(why) => {
            match format {
                Format::Json => output::print_json(&InfeasibleDocument::new(&why))?,
                Format::Text => output::complain(explain(&why)),
            }
            Ok(Exit::Infeasible)
        }
    }
}

fn wanted(bounds: &Bounds) -> String {
    format!(
        "notice a crash within {}; at most one mistake every {}, corrected within {}",
        readable(bounds.detect()),
        readable(bounds.mistake_every()),
        readable(bounds.mistake_lasts())
    )
}

fn described(link: &LinkQuality) -> String {
    let variance = link.variance() * 1e6;
    let deviation = variance.sqrt();
    format!(
        "{:.4} % lost, delay varies by {deviation:.2} ms (variance {variance:.4} ms2)",
        link.loss() * 100.0
    )
}

/// A plan for reading.
pub(crate) fn text(plan: &Plan) -> String {
    let promise = &plan.prediction;
    let mistakes = if promise.mistake_every.is_finite() {
        format!("a mistake at most every   {}", readable_seconds(promise.mistake_every))
    } else {
        "no mistake is expected, ever".into()
    };
    format!(
        "  interval  {:9.2} ms   between heartbeats: {:.2} a second to each monitor\n\
         \x20 margin    {:9.2} ms   that a heartbeat may be late\n\n\
         Promised, if losses and delays are independent of each other:\n\
         \x20 a crash is noticed within {} (counted from the expected arrival)\n\
         \x20 {mistakes}\n\
         \x20 corrected within          {}\n\
         \x20 right at a random time    {:.6} % of the time",
        ms(plan.interval),
        1.0 / plan.interval.as_secs_f64(),
        ms(plan.margin),
        readable(plan.detect()),
        readable_seconds(promise.mistake_lasts),
        promise.accuracy * 100.0,
    )
}

/// Why there is no plan, for reading.
pub(crate) fn explain(why: &Infeasible) -> String {
    let mut text = format!("not achievable on this link: {}", reason(why));
    let Infeasible::IntervalTooShort { needed, nearest, .. } = why else { return text };
    if let Some(needed) = needed {
        text += &format!("\nIt would take a heartbeat every {needed:.1?} (see --min-interval).");
    }
    let options = [
        nearest.detect.map(|t| format!("--detect {}", spelled(t, true))),
        nearest.mistake_every.map(|t| format!("--mistake-every {}", spelled(t, false))),
        nearest.mistake_lasts.map(|t| format!("--mistake-lasts {}", spelled(t, true))),
    ];
    let options: Vec<_> = options.into_iter().flatten().collect();
    if !options.is_empty() {
        text += "\nThe nearest that is possible, with the other bounds kept:";
        options.iter().for_each(|option| text += &format!("\n  {option}"));
    }
    text
}

fn reason(why: &Infeasible) -> String {
    match why {
        Infeasible::IntervalTooShort { min_interval, limit, .. } => {
            let limit = match limit {
                Quantity::Detection => "the detection time is shorter than that",
                Quantity::MistakeRecurrence => "mistakes would come too often",
                Quantity::MistakeDuration => "mistakes would last too long",
            };
            format!("with heartbeats {} apart or more, {limit}", readable(*min_interval))
        }
        other => other.to_string(),
    }
}

/// A bound as it can be given back on the command line: rounded to the easier side, to the
/// microsecond or, if it is long, to the second.
fn spelled(bound: Duration, up: bool) -> String {
    let fine = bound < Duration::from_secs(10);
    let unit = if fine { Duration::from_micros(1) } else { Duration::from_secs(1) };
    let eased = if up { bound.saturating_add(unit - Duration::from_nanos(1)) } else { bound };
    let rounded = if fine {
        Duration::from_micros(eased.as_micros() as u64)
    } else {
        Duration::from_secs(eased.as_secs())
    };
    humantime::format_duration(rounded).to_string().replace(' ', "")
}
