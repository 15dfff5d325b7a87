//! How long no write is served while leadership moves.

use std::time::Duration;

use super::PoleSettings;
use super::controller::{PoleController, Program};
use super::crash::{ByOracle, clients};
use super::deployment::{Deployment, Shares};
use crate::load::{Pace, longest_gap_ms};

/// How long is looked after a move has begun.
const WINDOW: Duration = Duration::from_secs(1);

/// Who leads in turn: members of different data centres.
const LEADERS: [u32; 3] = [4, 3, 1];

/// Gaps in the writes that are served, in milliseconds, sorted.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Where the members and clients were.
    pub deployment: Deployment,
    /// The longest gap in a second in which leadership moved,
    pub gaps_ms: Vec<f64>,
    /// and in seconds in which it did not.
    pub usual_ms: Vec<f64>,
    /// Writes that failed.
    pub failed: u64,
}

/// Moves leadership so often.
pub fn run(
    program: &Program,
    deployment: &Deployment,
    times: usize,
    settings: &PoleSettings,
    mut tell: impl FnMut(),
) -> anyhow::Result<Moved> {
    let shares = Shares::even(deployment.centres.len());
    let topology = deployment.topology(&shares, settings.rate, &Default::default());
    let oracle = ByOracle::History;
    let stage =
        PoleController::start(program, &topology, settings.seed, |server| oracle.flags(server))?;
    stage.place(LEADERS[LEADERS.len() - 1])?;
    let load =
        clients(&stage, deployment, |centre| Pace::Steady(settings.rate * shares.0[centre]))?;
    std::thread::sleep(WINDOW);
    let (mut gaps_ms, mut usual_ms) = (Vec::new(), Vec::new());
    for next in (0..times).map(|number| LEADERS[number % LEADERS.len()]) {
        load.take();
        std::thread::sleep(WINDOW);
        usual_ms.extend(longest_gap_ms(&load.take()));
        stage.place(next)?;
        std::thread::sleep(WINDOW);
        gaps_ms.extend(longest_gap_ms(&load.take()));
        tell();
    }
    gaps_ms.sort_by(f64::total_cmp);
    usual_ms.sort_by(f64::total_cmp);
    Ok(Moved { deployment: deployment.clone(), gaps_ms, usual_ms, failed: load.failed() })
}
