//! One run of section 4.4: servers are outdated when p5 is killed, and whoever is elected has to be brought up to date,
//! or has to bring others, before it serves.

use std::fmt;
use std::time::{Duration, Instant};

use super::Settings;
use super::crash::{ByOracle, clients, is_request};
use super::deployment::{Deployment, FIRST, Shares};
use super::stage::{Program, Stage};
use crate::load::Pace;
use crate::wan::fault::Fault;

/// The log keeps less than what fills the state, so that whoever was away needs a snapshot, and more than what clients
/// write while that is sent, so that it needs no other.
const SNAPSHOTS: [&str; 4] = ["--snapshot-every", "500", "--keep-entries", "1000"];

/// Values that fill the state: small, so that they are many entries.
const VALUE: usize = 5_000;

/// Clients that fill it at once; writes of as many go into one entry.
const FILLERS: u32 = 8;

/// So often clients write while a leader is looked for, in all.
const RATE: f64 = 20.0;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long servers that are back have to find the others before the crash.
const TAKES_PART: Duration = Duration::from_secs(2);

/// A setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Where servers are.
    pub deployment: Deployment,
    /// Where requests arrive.
    pub shares: Shares,
    /// How leaders are chosen.
    pub oracle: ByOracle,
    /// Who was away, and comes back just before the crash.
    pub outdated: Vec<u32>,
    /// What they lack, in megabytes.
    pub megabytes: u32,
    /// Whether another serves until the winner is up to date.
    pub interim: bool,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interim = if self.interim { "" } else { ", no interim" };
        let (place, oracle) = (&self.deployment.name, self.oracle.name());
        write!(f, "{place}, {oracle}, {} MB are lacking{interim}", self.megabytes)
    }
}

/// What came of it. Times are from the crash, in milliseconds.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The case.
    pub case: Case,
    /// When the first member knew itself elected, whoever leads in the end.
    pub first_elected_ms: f64,
    /// Who was elected in the end,
    pub elected: u32,
    /// and when it knew,
    pub elected_ms: f64,
    /// when it led the service,
    pub led_ms: f64,
    /// and who led it before, if anyone.
    pub interim: Option<u32>,
    /// When the first write that was sent after the crash was done.
    pub served_ms: f64,
    /// The mean latency of writes under the winner, once all is quiet.
    pub steady_ms: f64,
    /// What arithmetic says of that.
    pub predicted_ms: f64,
}

impl Recovered {
    /// The paper's recovery time: from a new leader knowing itself leader to the first request served. Counted from the
    /// first one that knew, since an interim or a leader that was replaced may have served it. `None` if a request was
    /// served before anyone was seen to know: then the time was not measured.
    pub fn service_recovery_ms(&self) -> Option<f64> {
        Some(self.served_ms - self.first_elected_ms).filter(|ms| *ms >= 0.0)
    }

    /// Until the chosen leader itself leads.
    pub fn leader_recovery_ms(&self) -> Option<f64> {
        Some(self.led_ms - self.elected_ms).filter(|ms| *ms >= 0.0)
    }
}

/// Runs a case.
pub fn run(program: &Program, case: &Case, settings: &Settings) -> anyhow::Result<Recovered> {
    let Case { deployment, shares, oracle, outdated, interim, .. } = case;
    let topology = deployment.topology(shares, settings.rate, &Default::default());
    let flags = |server| {
        let mut flags = oracle.flags(server);
        flags.extend(SNAPSHOTS.map(str::to_owned));
        flags.extend((!interim).then(|| "--no-interim".to_owned()));
        flags
    };
    let mut stage = Stage::start(program, &topology, settings.seed, flags)?;
    stage.place(FIRST)?;
    outdated.iter().for_each(|server| stage.kill(*server));
    fill(&stage, case.megabytes)?;
    all_have_what(&stage, FIRST)?;
    // Requests arrive for a while: oracles look at where.
    let load = clients(&stage, deployment, |centre| Pace::Steady(RATE * shares.0[centre]))?;
    std::thread::sleep(settings.before);
    // They are back, but get nothing from whoever is about to crash.
    for server in outdated {
        let (a, b) = (format!("p{server}"), format!("p{FIRST}"));
        stage.wan().inflict(&Fault::Cut { a, b })?;
        stage.restart(*server)?;
    }
    std::thread::sleep(TAKES_PART);
    load.take();
    let killed = Instant::now();
    stage.kill(FIRST);
    let watched = watch(&stage, killed)?;
    let settled = stage.settled()?;
    anyhow::ensure!(
        settled == watched.elected,
        "p{} was elected, and then p{settled}",
        watched.elected
    );
    let served = loop {
        let first = load.take().into_iter().filter(|write| write.sent >= killed);
        if let Some(served) = first.map(|write| write.sent + write.took).min() {
            break served;
        }
        anyhow::ensure!(killed.elapsed() < PATIENCE, "no write was done after the crash");
        std::thread::sleep(Duration::from_millis(20));
    };
    // Whoever was outdated besides gets its snapshot, too, before latency is taken.
    all_have_what(&stage, settled)?;
    std::thread::sleep(Duration::from_secs(1));
    let steady = load.measure(settings.length);
    let predicted = deployment.predict(settled, shares, &stage.down());
    let since = |at: Instant| at.saturating_duration_since(killed).as_secs_f64() * 1000.0;
    Ok(Recovered {
        case: case.clone(),
        first_elected_ms: since(watched.first_elected_at),
        elected: watched.elected,
        elected_ms: since(watched.elected_at),
        led_ms: since(watched.led_at),
        interim: watched.interim,
        served_ms: since(served),
        steady_ms: steady.of(is_request).mean_ms(None).unwrap_or(f64::NAN),
        predicted_ms: predicted.mean_ms,
    })
}

struct Watched {
    first_elected_at: Instant,
    elected: u32,
    elected_at: Instant,
    led_at: Instant,
    interim: Option<u32>,
}

/// Looks until the elected one leads. All are asked at once, so that one that answers late delays no look at the others.
fn watch(stage: &Stage, killed: Instant) -> anyhow::Result<Watched> {
    let mut first_elected_at = None;
    let mut elected: Option<(u32, Instant)> = None;
    let mut interim = None;
    loop {
        let statuses = stage.statuses();
        let now = Instant::now();
        let knows_itself = statuses.values().find(|it| it.elected == Some(it.member));
        if let Some(status) =
            knows_itself.filter(|it| elected.is_none_or(|(id, _)| id != it.member))
        {
            elected = Some((status.member, now));
            first_elected_at = first_elected_at.or(Some(now));
        }
        let leader = statuses.values().find(|it| it.leads).map(|it| it.member);
        match (leader, elected) {
            (Some(leader), Some((elected, elected_at))) if leader == elected => {
                let interim = interim.filter(|it| *it != elected);
                let first_elected_at = first_elected_at.unwrap_or(elected_at);
                return Ok(Watched { first_elected_at, elected, elected_at, led_at: now, interim });
            }
            (Some(leader), _) => interim = Some(leader),
            (None, _) => {}
        }
        anyhow::ensure!(
            killed.elapsed() < PATIENCE,
            "the winner does not come to lead: {statuses:#?}"
        );
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Waits until all that are up have what this one has now.
fn all_have_what(stage: &Stage, server: u32) -> anyhow::Result<()> {
    let target = stage.status(server).and_then(|status| status.applied);
    for server in stage.up().collect::<Vec<_>>() {
        stage.until(server, "catches up", |status| status.applied >= target)?;
    }
    Ok(())
}

/// Writes so much, beside the leader.
fn fill(stage: &Stage, megabytes: u32) -> anyhow::Result<()> {
    let writes = u64::from(megabytes) * 1_000_000 / VALUE as u64;
    let runtime = stage.host(FIRST).runtime()?;
    let fillers = (0..FILLERS).map(|filler| {
        let _inside = runtime.enter();
        let client = stage.client(&[FIRST], PATIENCE);
        runtime.spawn(async move {
            let mut client = client?;
            for number in (u64::from(filler)..writes).step_by(FILLERS as usize) {
                client.put(format!("fill {number}"), vec![7; VALUE]).await?;
            }
            anyhow::Ok(())
        })
    });
    let fillers: Vec<_> = fillers.collect();
    let filled = runtime.block_on(async {
        for filler in fillers {
            filler.await??;
        }
        anyhow::Ok(())
    });
    runtime.shutdown_background();
    filled
}
