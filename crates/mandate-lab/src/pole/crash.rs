//! One run of sections 4.2 and 4.3: p5 leads, clients write, p5 is killed, an oracle elects, and writes are timed.

use std::fmt;
use std::time::{Duration, Instant};

use mandate_kv::KvClient;

use super::PoleSettings;
use super::controller::{PoleController, Program};
use super::deployment::{Deployment, FIRST, Predicted, SERVERS, Shares};
use crate::load::{Load, MeasuredWrites, Pace, Write, Writer};

/// As in the paper.
pub(super) static VALUE: [u8; 1000] = [b'x'; 1000];

/// A client gives a write up after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes a second at each data centre besides, so that latency is known where nobody else writes.
const PROBES: f64 = 4.0;

/// Places of those, behind the data centres'.
const PROBED: usize = 100;

/// Clients and connections get used to a new leader before they are timed.
const SETTLES: Duration = Duration::from_millis(1500);

/// How leaders are chosen. Histories count in classes of a hundred entries: live logs are never quite equal, the paper takes
/// servers that are a round trip's worth of writes apart for equal, and one that lacks more than that must lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByOracle {
    /// The longest log.
    History,
    /// Whose turn it is.
    Rotating,
    /// The least consensus latency.
    Consensus,
    /// The least worst-case request latency.
    Worst,
    /// The most requests.
    Requests,
    /// The least mean request latency.
    Latency,
    /// The operator's preference: p1, then p4, p3, p2 and p5. Not of the paper.
    Preference,
}

impl ByOracle {
    /// Those of the paper.
    pub const ALL: [ByOracle; 6] = [
        ByOracle::History,
        ByOracle::Rotating,
        ByOracle::Consensus,
        ByOracle::Worst,
        ByOracle::Requests,
        ByOracle::Latency,
    ];

    /// As members are told.
    pub fn text(self) -> &'static str {
        match self {
            ByOracle::History => "history/100",
            ByOracle::Rotating => "rotating",
            ByOracle::Consensus => "consensus",
            ByOracle::Worst => "worst",
            ByOracle::Requests => "requests",
            ByOracle::Latency => "latency",
            ByOracle::Preference => "preference",
        }
    }

    /// What this server is told.
    pub fn flags(self, server: u32) -> Vec<String> {
        let preference = match server {
            1 => 9,
            4 => 4,
            3 => 3,
            2 => 2,
            _ => 1,
        };
        let mut flags = vec!["--oracle".to_owned(), self.text().to_owned()];
        if self == ByOracle::Preference {
            flags.extend(["--preference".to_owned(), preference.to_string()]);
        }
        flags
    }

    /// As the paper names it.
    pub fn name(self) -> &'static str {
        match self {
            ByOracle::History => "history",
            ByOracle::Requests => "request",
            other => other.text(),
        }
    }

    /// Whom it should elect after the death of p5, by arithmetic: any of these, which nothing but noise tells apart. `None`
    /// for history: logs are equal but for what is under way, so any may be elected, and no election is wrong. Whether it
    /// looks at logs is judged where one is outdated (figures 8a and 8b).
    pub fn elects(self, deployment: &Deployment, shares: &Shares) -> Option<Vec<u32>> {
        let down = [FIRST].into();
        Some(match self {
            ByOracle::History => return None,
            ByOracle::Rotating | ByOracle::Preference => vec![1],
            ByOracle::Consensus => deployment.best(shares, &down, |it| it.consensus_ms),
            ByOracle::Worst => deployment.best(shares, &down, |it| it.worst_ms),
            // Scores leave the crashed leader out, and with it the clients it had.
            ByOracle::Latency => {
                deployment.best(&deployment.without(&down, shares), &down, |it| it.mean_ms)
            }
            ByOracle::Requests => {
                // What its clients sent before the crash: p5 had its part of its data centre's.
                let before = deployment.topology(shares, 1.0, &Default::default());
                let of = |server: u32| before.servers()[server as usize - 1].requests;
                let most = SERVERS.filter(|it| *it != FIRST).map(of).fold(0.0, f64::max);
                SERVERS.filter(|it| *it != FIRST && of(*it) > most - 1e-9).collect()
            }
        })
    }
}

/// A setting, and how leaders are chosen in it.
#[derive(Clone, Debug, PartialEq)]
pub struct CrashCase {
    /// Where servers are.
    pub deployment: Deployment,
    /// Where requests arrive.
    pub shares: Shares,
    /// How leaders are chosen.
    pub oracle: ByOracle,
}

impl fmt::Display for CrashCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, requests at {}, {}", self.deployment.name, self.shares, self.oracle.name())
    }
}

/// What came of a case.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The case.
    pub case: CrashCase,
    /// Who was elected after the crash.
    pub elected: u32,
    /// How long after the crash it led, in milliseconds.
    pub elected_after_ms: f64,
    /// Latencies before the crash, and with the new leader.
    pub before: Latencies,
    /// With the new leader.
    pub after: Latencies,
    /// Mean latency in each second of the run at each data centre: seconds from the crash, data centre, milliseconds.
    pub course: Vec<(f64, usize, f64)>,
}

/// How long writes took with one leader, and how long they should have.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Who led.
    pub leader: u32,
    /// By arithmetic.
    pub predicted: Predicted,
    /// The mean at each data centre.
    pub at_ms: Vec<f64>,
    /// The mean of all requests.
    pub mean_ms: f64,
}

impl Latencies {
    /// The highest mean of a data centre.
    pub fn worst_ms(&self) -> f64 {
        self.at_ms.iter().copied().fold(0.0, f64::max)
    }
}

struct Kv {
    client: KvClient,
    key: String,
}

impl Writer for Kv {
    async fn write(&mut self) -> bool {
        self.client.put(self.key.clone(), &VALUE[..]).await.is_ok()
    }
}

/// Starts clients at each data centre, spread over its servers. A client whose server dies goes to another of the same
/// data centre.
pub fn clients(
    stage: &PoleController,
    deployment: &Deployment,
    pace: impl Fn(usize) -> Pace,
) -> anyhow::Result<Load> {
    let mut load = Load::new();
    for (centre, servers) in deployment.centres.iter().enumerate() {
        let make = move |number: u32| {
            let mut order = servers.clone();
            order.rotate_left(number as usize % servers.len());
            let client = stage.client(&order, PATIENCE).expect("every server has a host");
            Kv { client, key: format!("{centre}-{number}") }
        };
        load.add(stage.host(servers[0]), centre, pace(centre), make)?;
        load.add(stage.host(servers[0]), PROBED + centre, Pace::Steady(PROBES), make)?;
    }
    Ok(load)
}

/// Whether a place of [`clients`] is one of requests, and not of the few that only look how long they take.
pub fn is_request(place: usize) -> bool {
    place < PROBED
}

/// Runs a case. `tell` is called when something of it is done; a case has [`STEPS`].
pub fn run(
    program: &Program,
    case: &CrashCase,
    settings: &PoleSettings,
    mut tell: impl FnMut(),
) -> anyhow::Result<Ran> {
    let CrashCase { deployment, shares, oracle } = case;
    let topology = deployment.topology(shares, settings.rate, &Default::default());
    let mut stage =
        PoleController::start(program, &topology, settings.seed, |server| oracle.flags(server))?;
    stage.place(FIRST)?;
    let load =
        clients(&stage, deployment, |centre| Pace::Steady(settings.rate * shares.0[centre]))?;
    std::thread::sleep(SETTLES);
    tell();
    let before = load.measure(settings.before);
    let with_first = latencies(&stage, case, FIRST, &before)?;
    tell();
    let killed = Instant::now();
    stage.kill(FIRST);
    let elected = stage.settled()?;
    let elected_after_ms = killed.elapsed().as_secs_f64() * 1000.0;
    std::thread::sleep(SETTLES);
    let between = load.take();
    let after = load.measure(settings.length);
    let course = course(killed, before.writes.iter().chain(&between).chain(&after.writes));
    let still = stage.settled()?;
    anyhow::ensure!(still == elected, "p{elected} was elected, and then p{still}");
    let after = latencies(&stage, case, elected, &after)?;
    tell();
    Ok(Ran { case: case.clone(), elected, elected_after_ms, before: with_first, after, course })
}

/// How often [`run`] tells.
pub const STEPS: u64 = 3;

/// Each leader in turn, moved there, after the death of p5.
pub fn each_leader(
    program: &Program,
    deployment: &Deployment,
    leaders: &[u32],
    settings: &PoleSettings,
    mut tell: impl FnMut(),
) -> anyhow::Result<Vec<Latencies>> {
    let shares = Shares::even(deployment.centres.len());
    let case = CrashCase { deployment: deployment.clone(), shares, oracle: ByOracle::History };
    let topology = deployment.topology(&case.shares, settings.rate, &Default::default());
    let mut stage = PoleController::start(program, &topology, settings.seed, |server| {
        case.oracle.flags(server)
    })?;
    stage.place(FIRST)?;
    stage.kill(FIRST);
    stage.settled()?;
    let load =
        clients(&stage, deployment, |centre| Pace::Steady(settings.rate * case.shares.0[centre]))?;
    let mut found = Vec::new();
    for leader in leaders {
        stage.place(*leader)?;
        std::thread::sleep(SETTLES);
        let measured = load.measure(settings.length);
        anyhow::ensure!(stage.settled()? == *leader, "p{leader} did not stay leader");
        found.push(latencies(&stage, &case, *leader, &measured)?);
        tell();
    }
    Ok(found)
}

fn latencies(
    stage: &PoleController,
    case: &CrashCase,
    leader: u32,
    measured: &MeasuredWrites,
) -> anyhow::Result<Latencies> {
    let nothing = || anyhow::anyhow!("no write was done");
    let mut at_ms = Vec::new();
    for centre in 0..case.deployment.centres.len() {
        let mean = measured.mean_ms(Some(centre)).or(measured.mean_ms(Some(PROBED + centre)));
        at_ms.push(mean.ok_or_else(nothing)?);
    }
    Ok(Latencies {
        leader,
        predicted: case.deployment.predict(leader, &case.shares, &stage.down()),
        at_ms,
        mean_ms: measured.of(is_request).mean_ms(None).ok_or_else(nothing)?,
    })
}

/// Means of each second at each data centre.
fn course<'a>(killed: Instant, writes: impl Iterator<Item = &'a Write>) -> Vec<(f64, usize, f64)> {
    let mut seconds = std::collections::BTreeMap::<(i64, usize), (f64, u32)>::new();
    for write in writes.filter(|write| is_request(write.place)) {
        let since = write.sent.saturating_duration_since(killed).as_secs_f64();
        let until = killed.saturating_duration_since(write.sent).as_secs_f64();
        let second = (since - until).floor() as i64;
        let (sum, count) = seconds.entry((second, write.place)).or_default();
        *sum += write.took.as_secs_f64() * 1000.0;
        *count += 1;
    }
    let mean = |((second, place), (sum, count)): ((i64, usize), (f64, u32))| {
        (second as f64, place, sum / f64::from(count))
    };
    seconds.into_iter().map(mean).collect()
}
