//! `mandate lab steer`: what steering brings to etcd, over the POLE paper's three data centres.
//!
//! Five real members of etcd on an emulated wide-area network, clients beside them. First every member leads in turn,
//! and writes are timed: what one gets if nobody steers is one of these, by chance. Then sidecars are started, and
//! the best has to lead; then it is killed, or another where it has no neighbour, and the best of the rest has to lead.
//! The best is what arithmetic says.

mod controller;
mod deployment;
mod load;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::value_parser;
use mandate_lab::load::MeasuredWrites;
use mandate_lab::pole::deployment::{Deployment, FIRST, SERVERS};
use serde::Serialize;

use controller::SteerController;
use deployment::{DISTRIBUTIONS, Distribution, serves};
use load::Clients;
use mandate_cli::args::positive_duration;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

/// Clients and connections get used to a new leader before they are timed.
const SETTLES: Duration = Duration::from_secs(1);

/// How the sidecars elect. Moves are made sooner than anyone would want in use, so that a trial is short.
const TABLES: &str = "\
[detection]
interval = \"330ms\"
within = \"1s\"

[election]
guarantee = \"fenced\"
timeout = \"500ms\"
oracle = \"latency\"

[moves]
every = \"1s\"
threshold = 0.05
tenure = \"2s\"
";

/// Steering should reach at most this share of the latency of the worst place, with all requests at one.
const GOAL: f64 = 0.6;

/// etcd over three emulated data centres, with and without steering. Needs root, and the package etcd-server.
#[derive(Debug, clap::Args)]
pub(crate) struct TrialArgs {
    /// Which of the paper's deployments.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=3), value_name = "N")]
    deployment: u8,
    /// Only where requests arrive so: even, "all at D1" and so on. Default: each in turn.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Writes of one kilobyte a second, in all.
    #[arg(long, default_value_t = 90, value_parser = value_parser!(u32).range(1..=2000), value_name = "N")]
    rate: u32,
    /// How long each leader is timed.
    #[arg(long, default_value = "5s", value_parser = positive_duration, value_name = "TIME")]
    length: Duration,
    /// Decides jitter.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Document {
    deployment: u8,
    rate: u32,
    settings: Vec<Setting>,
    /// Whether everything was as it should be.
    holds: bool,
}

/// One way for requests to arrive.
#[derive(Serialize)]
struct Setting {
    requests: &'static str,
    /// Each member as leader, without steering.
    placed: Vec<Row>,
    /// The worst of them.
    worst_ms: f64,
    /// Whom the sidecars made leader,
    steered: Row,
    /// and in what time from their start.
    steered_in_ms: f64,
    /// Who was killed then,
    killed: String,
    /// whether it led,
    killed_leader: bool,
    /// who leads now,
    after: Row,
    /// and how long after the death.
    after_in_ms: f64,
    /// The steered leader's mean latency by that of the worst place.
    share_of_worst: f64,
    /// Whether the best led each time.
    best_led: bool,
}

/// A leader, and how long writes took.
#[derive(Clone, Serialize)]
struct Row {
    leader: String,
    arithmetic_ms: f64,
    mean_ms: f64,
    /// At D1 to D3.
    at_ms: [Option<f64>; 3],
}

pub(crate) fn run(args: &TrialArgs, format: Format) -> anyhow::Result<Exit> {
    let wanted = |it: &&Distribution| args.only.as_deref().is_none_or(|name| name == it.name);
    let wanted: Vec<_> = DISTRIBUTIONS.iter().filter(wanted).collect();
    anyhow::ensure!(
        !wanted.is_empty(),
        "requests do not arrive like that here: {}",
        DISTRIBUTIONS.map(|it| it.name).join(", ")
    );
    // Seven leaders each.
    let bar = crate::progress::bar(wanted.len() as u64 * 7, "leaders");
    let mut settings = Vec::new();
    for distribution in wanted {
        settings.push(setting(args, *distribution, || bar.inc(1))?);
    }
    bar.finish_and_clear();
    let holds = settings.iter().all(Setting::holds);
    let document = Document { deployment: args.deployment, rate: args.rate, settings, holds };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(text(&document))?,
    }
    Ok(if holds { Exit::Success } else { Exit::ClaimFailed })
}

impl Setting {
    fn holds(&self) -> bool {
        self.best_led
            && (self.requests == "even" || self.share_of_worst <= GOAL || self.is_central())
    }

    /// Where requests arrive near all places, no leader is much worse than another.
    fn is_central(&self) -> bool {
        let worst = self.placed.iter().map(|row| row.arithmetic_ms).fold(0.0, f64::max);
        self.steered.arithmetic_ms > GOAL * worst
    }
}

/// One way for requests to arrive, from an empty cluster to the death of a member.
fn setting(
    args: &TrialArgs,
    distribution: Distribution,
    mut tell: impl FnMut(),
) -> anyhow::Result<Setting> {
    let rate = f64::from(args.rate);
    let (deployment, shares) = (Deployment::numbered(args.deployment), distribution.shares());
    let latency =
        |leader: u32, down: &BTreeSet<u32>| deployment.predict(leader, &shares, down).mean_ms;
    let best = |down: &BTreeSet<u32>| deployment.best(&shares, down, |it| it.mean_ms);
    let nobody = BTreeSet::new();
    let mut stage =
        SteerController::start(&deployment.topology(&shares, rate, &nobody), args.seed)?;
    let serving = [0, 1, 2].map(|centre| serves(&deployment, centre, &nobody).unwrap_or(0));
    let clients = Clients::start(&stage.etcd, &shares, rate, serving)?;
    let mut time = |leader: u32, arithmetic_ms: f64| {
        std::thread::sleep(SETTLES);
        let row = row(leader, arithmetic_ms, &clients.measure(args.length));
        tell();
        row
    };
    let mut placed = Vec::new();
    for server in SERVERS {
        stage.etcd.place(server)?;
        placed.push(time(server, latency(server, &nobody))?);
    }
    let wanted = best(&nobody);
    // From the worst place, whatever was tried last.
    let worst = SERVERS.max_by(|a, b| latency(*a, &nobody).total_cmp(&latency(*b, &nobody)));
    stage.etcd.place(worst.unwrap_or(1))?;
    stage.steer(TABLES)?;
    let steered_in = stage.until_leads(&wanted)?;
    let leader = stage.etcd.leader().unwrap_or(wanted[0]);
    let steered = time(leader, latency(leader, &nobody))?;
    // Of two that are equal, either may lead, and noise may move it.
    let leader = stage.etcd.leader().unwrap_or(leader);
    let stayed = wanted.contains(&leader);

    // Someone whose data centre has another member.
    let has_neighbour = deployment.centres[deployment.centre_of(leader)].len() > 1;
    let victim = if has_neighbour { leader } else { FIRST };
    stage.crash(victim)?;
    let down = stage.etcd.down();
    for centre in 0..3 {
        clients.aim(centre, serves(&deployment, centre, &down));
    }
    let wanted = best(&down);
    let after_in = stage.until_leads(&wanted)?;
    let next = stage.etcd.leader().unwrap_or(wanted[0]);
    let after = time(next, latency(next, &down))?;
    let stayed = stayed && stage.etcd.leader().is_some_and(|leader| wanted.contains(&leader));
    let worst_ms = placed.iter().map(|row| row.mean_ms).fold(0.0, f64::max);
    Ok(Setting {
        requests: distribution.name,
        worst_ms,
        share_of_worst: steered.mean_ms / worst_ms,
        placed,
        steered,
        steered_in_ms: output::ms(steered_in),
        killed: format!("p{victim}"),
        killed_leader: victim == leader,
        after,
        after_in_ms: output::ms(after_in),
        best_led: stayed,
    })
}

fn row(leader: u32, arithmetic_ms: f64, measured: &MeasuredWrites) -> anyhow::Result<Row> {
    let mean_ms = measured.mean_ms(None).ok_or_else(|| anyhow::anyhow!("no write was done"))?;
    Ok(Row {
        leader: format!("p{leader}"),
        arithmetic_ms,
        mean_ms,
        at_ms: [0, 1, 2].map(|centre| measured.mean_ms(Some(centre))),
    })
}

fn text(document: &Document) -> String {
    let mut text = format!(
        "etcd at three data centres, deployment {}, {} writes a second of 1 kB:\n",
        document.deployment, document.rate
    );
    for setting in &document.settings {
        text += &format!("\nrequests: {}\n\n", setting.requests);
        text += "  leader              arithmetic   mean ms       D1       D2       D3\n";
        for row in &setting.placed {
            text += &line("", row);
        }
        text += &line("steered", &setting.steered);
        text += &line("after a death", &setting.after);
        text += &format!(
            "\n  the best led {} after sidecars were started at the worst place, and {} after {} died, which {}\n  \
             steered: {:.0} % of the worst place{}\n",
            seconds(setting.steered_in_ms),
            seconds(setting.after_in_ms),
            setting.killed,
            if setting.killed_leader { "led" } else { "did not lead" },
            setting.share_of_worst * 100.0,
            if setting.holds() { "" } else { "   NOT AS IT SHOULD BE" },
        );
    }
    text
}

fn line(what: &str, row: &Row) -> String {
    let at = row.at_ms.map(|at| at.map_or("-".to_owned(), |at| format!("{at:.1}")));
    format!(
        "  {:<4}{what:<16}{:>10.1}{:>10.1}{:>9}{:>9}{:>9}\n",
        row.leader, row.arithmetic_ms, row.mean_ms, at[0], at[1], at[2]
    )
}

fn seconds(ms: f64) -> String {
    format!("{:.2} s", ms / 1000.0)
}
