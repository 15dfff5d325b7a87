//! The key-value service and etcd, one after the other: the same network, the same leader, the same clients.

use std::time::Duration;

use super::PoleSettings;
use super::controller::{PoleController, Program};
use super::crash::{ByOracle, VALUE, clients, is_request};
use super::deployment::{Deployment, Shares};
use super::etcd::EtcdStage;
use crate::load::{Load, MeasuredWrites, Pace, quantile};

/// Clients get used to where they are before they are timed.
const SETTLES: Duration = Duration::from_secs(2);

/// Who leads both.
const LEADER: u32 = 4;

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// So many writes a second, in all.
    Rate(f64),
    /// So many clients at each data centre, each as fast as it is answered.
    Clients(u32),
}

impl Demand {
    fn pace(self, share: f64) -> Pace {
        match self {
            Demand::Rate(rate) => Pace::Steady(rate * share),
            Demand::Clients(clients) => Pace::Closed(clients),
        }
    }
}

/// How one of them did.
#[derive(Clone, Debug)]
pub struct ElectionFigures {
    /// Writes a second.
    pub rate: f64,
    /// Mean latency at each data centre,
    pub at_ms: Vec<f64>,
    /// of all,
    pub mean_ms: f64,
    /// and quantiles.
    pub median_ms: f64,
    /// 99 of 100 take less.
    pub p99_ms: f64,
}

impl ElectionFigures {
    fn of(measured: &MeasuredWrites, centres: usize) -> anyhow::Result<Self> {
        let sorted = measured.sorted_ms(None);
        let nothing = || anyhow::anyhow!("no write was done");
        let mut at_ms = Vec::new();
        for centre in 0..centres {
            at_ms.push(measured.mean_ms(Some(centre)).ok_or_else(nothing)?);
        }
        Ok(ElectionFigures {
            rate: measured.rate(),
            at_ms,
            mean_ms: measured.mean_ms(None).ok_or_else(nothing)?,
            median_ms: quantile(&sorted, 0.5).ok_or_else(nothing)?,
            p99_ms: quantile(&sorted, 0.99).ok_or_else(nothing)?,
        })
    }
}

/// The service.
pub fn ours(
    program: &Program,
    deployment: &Deployment,
    demand: Demand,
    settings: &PoleSettings,
) -> anyhow::Result<ElectionFigures> {
    let shares = Shares::even(deployment.centres.len());
    let topology = deployment.topology(&shares, settings.rate, &Default::default());
    let oracle = ByOracle::History;
    let stage =
        PoleController::start(program, &topology, settings.seed, |server| oracle.flags(server))?;
    stage.place(LEADER)?;
    let load = clients(&stage, deployment, |centre| demand.pace(shares.0[centre]))?;
    std::thread::sleep(SETTLES);
    let measured = load.measure(settings.length).of(is_request);
    ElectionFigures::of(&measured, deployment.centres.len())
}

/// etcd.
pub fn etcd(
    deployment: &Deployment,
    demand: Demand,
    settings: &PoleSettings,
) -> anyhow::Result<ElectionFigures> {
    let shares = Shares::even(deployment.centres.len());
    let topology = deployment.topology(&shares, settings.rate, &Default::default());
    let stage = EtcdStage::start(&topology, settings.seed)?;
    stage.place(LEADER)?;
    let mut load = Load::new();
    for (centre, servers) in deployment.centres.iter().enumerate() {
        let make = |number: u32| {
            let server = servers[number as usize % servers.len()];
            let key = format!("{centre}-{number}");
            stage.writer(server, key, &VALUE).expect("every server is up")
        };
        load.add(stage.host(servers[0]), centre, demand.pace(shares.0[centre]), make)?;
    }
    std::thread::sleep(SETTLES);
    let measured = load.measure(settings.length);
    let figures = ElectionFigures::of(&measured, deployment.centres.len())?;
    let leader = stage.leader();
    anyhow::ensure!(leader == Some(LEADER), "{leader:?} leads etcd in the end");
    Ok(figures)
}
