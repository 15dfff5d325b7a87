//! One run of section 4.4: servers are outdated when p5 is killed, and the elected server has to be brought up to date,
//! or has to bring others, before it serves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_kv::KvStatus;

use super::PoleSettings;
use super::controller::{PoleController, Program};
use super::crash::{ByOracle, clients, is_request};
use super::deployment::{Deployment, FIRST, Shares};
use crate::load::Pace;
use crate::wan::fault::NetworkFault;

/// The log keeps less than what fills the state, so that a member that was away needs a snapshot, and more than what clients
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
pub struct RecoveryCase {
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

impl fmt::Display for RecoveryCase {
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
    pub case: RecoveryCase,
    /// When the first member knew itself elected, even if another leads in the end.
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
pub fn run(
    program: &Program,
    case: &RecoveryCase,
    settings: &PoleSettings,
) -> anyhow::Result<Recovered> {
    let RecoveryCase { deployment, shares, oracle, outdated, interim, .. } = case;
    let topology = deployment.topology(shares, settings.rate, &Default::default());
    let flags = |server| {
        let mut flags = oracle.flags(server);
        flags.extend(SNAPSHOTS.map(str::to_owned));
        flags.extend((!interim).then(|| "--no-interim".to_owned()));
        flags
    };
    let mut stage = PoleController::start(program, &topology, settings.seed, flags)?;
    stage.place(FIRST)?;
    outdated.iter().for_each(|server| stage.kill(*server));
    fill(&stage, case.megabytes)?;
    all_have_what(&stage, FIRST)?;
    // Requests arrive for a while: oracles look at where.
    let load = clients(&stage, deployment, |centre| Pace::Steady(RATE * shares.0[centre]))?;
    std::thread::sleep(settings.before);
    // They are back, but get nothing from the member that is about to crash.
    for server in outdated {
        let (a, b) = (format!("p{server}"), format!("p{FIRST}"));
        stage.wan().inflict(&NetworkFault::Cut { a, b })?;
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
    // Any other outdated member gets its snapshot, too, before latency is taken.
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

/// Looks until the elected one leads. Each member is asked by itself, so that one that answers late delays no look at the
/// others.
fn watch(stage: &PoleController, killed: Instant) -> anyhow::Result<Watched> {
    let mut watch = Watch::default();
    let left = PATIENCE.saturating_sub(killed.elapsed());
    let found = stage.watch(left, |status, at| watch.sees(status, at));
    found.with_context(|| format!("the winner does not come to lead: {:#?}", watch.last))
}

/// What was seen of the members, one answer after the other.
#[derive(Default)]
struct Watch {
    first_elected_at: Option<Instant>,
    /// Who knows itself elected, and since when. A deposed leader may not know it yet.
    elected: BTreeMap<u32, Instant>,
    interim: Option<u32>,
    /// The last answer of each.
    last: BTreeMap<u32, KvStatus>,
}

impl Watch {
    /// A member has answered; what it comes to once an elected one leads.
    fn sees(&mut self, status: KvStatus, at: Instant) -> Option<Watched> {
        let (member, leads) = (status.member, status.leads);
        if status.elected == Some(member) {
            self.elected.entry(member).or_insert(at);
            self.first_elected_at.get_or_insert(at);
        } else {
            self.elected.remove(&member);
        }
        self.last.insert(member, status);
        match (self.elected.get(&member), self.first_elected_at) {
            (Some(&elected_at), Some(first_elected_at)) if leads => {
                let interim = self.interim.filter(|it| *it != member);
                Some(Watched { first_elected_at, elected: member, elected_at, led_at: at, interim })
            }
            _ => {
                self.interim = leads.then_some(member).or(self.interim);
                None
            }
        }
    }
}

/// Waits until all that are up have what this one has now.
fn all_have_what(stage: &PoleController, server: u32) -> anyhow::Result<()> {
    let target = stage.status(server).and_then(|status| status.applied);
    for server in stage.up().collect::<Vec<_>>() {
        stage.until(server, "catches up", |status| status.applied >= target)?;
    }
    Ok(())
}

/// Writes so much, beside the leader.
fn fill(stage: &PoleController, megabytes: u32) -> anyhow::Result<()> {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A recovery in which a member was elected, led and served so many milliseconds after the crash.
    pub(in crate::pole) fn recovered(
        case: RecoveryCase,
        elected: u32,
        elected_ms: f64,
        served_ms: f64,
        led_ms: f64,
    ) -> Recovered {
        Recovered {
            case,
            first_elected_ms: elected_ms,
            elected,
            elected_ms,
            led_ms,
            interim: None,
            served_ms,
            steady_ms: 50.0,
            predicted_ms: 49.0,
        }
    }

    /// A case of figure 8a.
    pub(in crate::pole) fn case(oracle: ByOracle, megabytes: u32, interim: bool) -> RecoveryCase {
        RecoveryCase {
            deployment: Deployment::two(20.75),
            shares: Shares::even(2),
            oracle,
            outdated: vec![1],
            megabytes,
            interim,
        }
    }

    #[test]
    fn recovery_counts_from_the_first_that_knew_itself_elected() {
        let mut it = recovered(case(ByOracle::History, 0, true), 4, 300.0, 450.0, 500.0);
        it.first_elected_ms = 100.0;
        assert_eq!(it.service_recovery_ms(), Some(350.0));
        assert_eq!(it.leader_recovery_ms(), Some(200.0));
        // Served before anyone was seen to know: that is no time at all, and not zero.
        it.served_ms = 90.0;
        assert_eq!(it.service_recovery_ms(), None);
        it.led_ms = 299.0;
        assert_eq!(it.leader_recovery_ms(), None);
    }

    fn status(member: u32, elected: Option<u32>, leads: bool) -> KvStatus {
        KvStatus {
            member,
            leader: None,
            raft_term: 1,
            leads,
            elected,
            term: 1,
            last_index: None,
            applied: None,
            driver: String::new(),
            moves: 0,
            own_elections: false,
            requests: 0,
            failed: None,
            latency_us: None,
        }
    }

    #[test]
    fn who_leads_before_the_elected_one_is_the_interim() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut watch = Watch::default();
        assert!(watch.sees(status(4, None, true), at(1)).is_none());
        assert!(watch.sees(status(2, Some(2), false), at(2)).is_none());
        assert!(watch.sees(status(1, Some(1), false), at(3)).is_none(), "another was elected");
        assert!(watch.sees(status(2, Some(2), false), at(5)).is_none(), "who does not know it yet");
        let watched = watch.sees(status(1, Some(1), true), at(9)).unwrap();
        assert_eq!((watched.elected, watched.interim), (1, Some(4)));
        assert_eq!(
            (watched.first_elected_at, watched.elected_at, watched.led_at),
            (at(2), at(3), at(9))
        );
    }
}
