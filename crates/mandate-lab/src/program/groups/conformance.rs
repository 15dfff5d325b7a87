//! `mandate lab conformance`: whether an engine keeps its promises, shown claim by claim.

use mandate_conformance::cancellation::Handles;
use mandate_conformance::subject::EngineUnderTest;
use mandate_conformance::suite::{CheckOutcome, CheckVerdict};
use mandate_conformance::{cancellation, suite};
use serde::Serialize;

use super::{Engine, EngineArgs, Peers};
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// Member processes on this host, killed, stopped, cut off and restarted; handles whose futures are dropped.
#[derive(Debug, clap::Args)]
pub(crate) struct ConformanceArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// Only claims whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Have leaders look at their mandate once and then act without end, to see that this is noticed.
    #[arg(long, hide = true)]
    careless: bool,
}

#[derive(Serialize)]
struct Document {
    subject: String,
    claims: Vec<ClaimDocument>,
}

#[derive(Serialize)]
struct ClaimDocument {
    claim: &'static str,
    verdict: &'static str,
    seen: String,
    seconds: f64,
}

pub(crate) fn run(args: &ConformanceArgs, format: Format) -> anyhow::Result<Exit> {
    let wanted = |name: &str| args.only.as_deref().is_none_or(|text| name.contains(text));
    let tell = |outcome: &CheckOutcome| {
        if format == Format::Text {
            // Told as it comes; if nobody reads it, the exit code still says it.
            let _ = output::print(outcome.to_string());
        }
    };
    let guarantee = args.engine.guarantee();
    let (name, outcomes) = match args.engine.engine {
        Engine::Peer => {
            let peers = Peers { guarantee, with_cables: true };
            (peers.name(), all(&peers, args.careless, wanted, tell))
        }
        Engine::Sql => {
            let on_database = args.engine.on_database(true)?;
            (on_database.name(), all(&on_database, args.careless, wanted, tell))
        }
        #[cfg(feature = "kafka")]
        Engine::Ledger => match args.engine.ledger.in_memory() {
            Some(in_memory) => (in_memory.name(), all(&in_memory, args.careless, wanted, tell)),
            None => {
                let on_ledger = args.engine.ledger.subject(true)?;
                (on_ledger.name(), all(&on_ledger, args.careless, wanted, tell))
            }
        },
    };
    anyhow::ensure!(
        !outcomes.is_empty(),
        "no claim has {:?} in its name",
        args.only.as_deref().unwrap_or_default()
    );
    let failed = outcomes.iter().filter(|outcome| !outcome.passes()).count();
    match format {
        Format::Json => output::print_json(&document(name, &outcomes))?,
        Format::Text => output::print(format!(
            "\n{}: {} tried, {failed} failed",
            name,
            output::plural(outcomes.len() as u64, "claim")
        ))?,
    }
    Ok(if failed == 0 { Exit::Success } else { Exit::ClaimFailed })
}

/// Claims on processes, and on futures that are dropped.
fn all<S: EngineUnderTest + Handles>(
    subject: &S,
    careless: bool,
    wanted: impl Fn(&str) -> bool + Copy,
    tell: impl FnMut(&CheckOutcome) + Copy,
) -> Vec<CheckOutcome> {
    let mut outcomes = suite::run(subject, careless, wanted, tell);
    outcomes.extend(cancellation::run(subject, wanted, tell));
    outcomes
}

fn document(subject: String, outcomes: &[CheckOutcome]) -> Document {
    let claim = |outcome: &CheckOutcome| {
        let (verdict, seen) = match &outcome.verdict {
            CheckVerdict::Holds(seen) => ("holds", seen.clone()),
            CheckVerdict::Fails(failure) => ("fails", failure.to_string()),
            CheckVerdict::DoesNotApply(reason) => ("does not apply", (*reason).to_owned()),
        };
        ClaimDocument { claim: outcome.claim, verdict, seen, seconds: outcome.took.as_secs_f64() }
    };
    Document { subject, claims: outcomes.iter().map(claim).collect() }
}
