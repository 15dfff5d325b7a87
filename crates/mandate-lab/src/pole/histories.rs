//! What clients see while members are killed, paused and cut off and leadership moves: whether it can have happened.

use std::time::Duration;

use mandate_kv::linearizable::NotLinearizable;
use mandate_kv::witness::Witnesses;
use mandate_sim::random::{Random, Stream};
use rustix::process::Signal;
use tokio::runtime::Runtime;

use super::controller::{PoleController, Program};
use super::deployment::{Deployment, SERVERS, Shares};
use crate::wan::fault::NetworkFault;

/// Clients at each data centre.
const CLIENTS: usize = 3;

/// They give a request up after this.
const PATIENCE: Duration = Duration::from_secs(3);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The leader is killed, and started again.
    Kill,
    /// The leader is stopped for longer than it takes to elect another.
    Pause,
    /// The leader is cut off from all others, but not from its clients.
    CutOff,
    /// A data centre is cut off from another.
    Cut,
    /// Leadership moves.
    Move,
}

impl Strike {
    /// All of them.
    pub const ALL: [Strike; 5] =
        [Strike::Kill, Strike::Pause, Strike::CutOff, Strike::Cut, Strike::Move];
}

/// What clients saw.
#[derive(Debug)]
pub struct Judged {
    /// How many operations.
    pub operations: usize,
    /// How often each fault was injected.
    pub strikes: Vec<(Strike, usize)>,
    /// Whether it can have happened.
    pub verdict: Result<(), NotLinearizable>,
}

/// Injects so many faults, in an order that the seed decides, and judges. `bug` is one to put back.
pub fn run(
    program: &Program,
    deployment: &Deployment,
    faults: usize,
    seed: u64,
    bug: Option<&str>,
    mut tell: impl FnMut(),
) -> anyhow::Result<Judged> {
    let topology = deployment.topology(&Shares::even(deployment.centres.len()), 0.0, &[].into());
    let flags = |_| {
        let bug = bug.into_iter().flat_map(|bug| ["--mutant".to_owned(), bug.to_owned()]);
        bug.collect()
    };
    let mut stage = PoleController::start(program, &topology, seed, flags)?;
    stage.settled()?;
    let (runtimes, witnesses) = watch(&stage, deployment)?;
    let mut random = Random::new(seed, Stream::Faults);
    let mut counts = Strike::ALL.map(|fault| (fault, 0));
    for number in 0..faults {
        // Each as often as the others, whatever the seed.
        let fault = Strike::ALL[number % Strike::ALL.len()];
        let leader = stage.settled()?;
        let pause = Duration::from_millis(500 + random.below(1500));
        carry_out(&mut stage, deployment, fault, leader, pause, &mut random)?;
        counts[number % Strike::ALL.len()].1 += 1;
        tell();
    }
    stage.settled()?;
    std::thread::sleep(Duration::from_millis(500));
    let (operations, verdict) = runtimes[0].block_on(witnesses.judge());
    runtimes.into_iter().for_each(Runtime::shutdown_background);
    Ok(Judged { operations, strikes: counts.into(), verdict })
}

/// Starts clients at each data centre.
fn watch(
    stage: &PoleController,
    deployment: &Deployment,
) -> anyhow::Result<(Vec<Runtime>, Witnesses)> {
    let mut witnesses = Witnesses::default();
    let mut runtimes = Vec::new();
    for servers in &deployment.centres {
        let runtime = stage.host(servers[0]).runtime()?;
        let _inside = runtime.enter();
        for number in 0..CLIENTS {
            let mut order = servers.clone();
            order.rotate_left(number % servers.len());
            witnesses.add(stage.client(&order, PATIENCE)?);
        }
        drop(_inside);
        runtimes.push(runtime);
    }
    Ok((runtimes, witnesses))
}

fn carry_out(
    stage: &mut PoleController,
    deployment: &Deployment,
    fault: Strike,
    leader: u32,
    pause: Duration,
    random: &mut Random,
) -> anyhow::Result<()> {
    match fault {
        Strike::Kill => {
            stage.kill(leader);
            std::thread::sleep(pause);
            stage.restart(leader)?;
        }
        Strike::Pause => {
            stage.signal(leader, Signal::STOP)?;
            std::thread::sleep(pause + Duration::from_secs(1));
            stage.signal(leader, Signal::CONT)?;
        }
        Strike::CutOff => {
            for other in SERVERS.filter(|other| *other != leader) {
                let (a, b) = (format!("p{leader}"), format!("p{other}"));
                stage.wan().inflict(&NetworkFault::Cut { a, b })?;
            }
            std::thread::sleep(pause + Duration::from_secs(1));
            stage.wan().heal();
        }
        Strike::Cut => {
            let centres = deployment.centres.len() as u64;
            let a = random.below(centres);
            let b = (a + 1 + random.below(centres - 1)) % centres;
            let (a, b) = (format!("d{a}"), format!("d{b}"));
            stage.wan().inflict(&NetworkFault::Cut { a, b })?;
            std::thread::sleep(pause);
            stage.wan().heal();
        }
        Strike::Move => {
            let others: Vec<_> = SERVERS.filter(|other| *other != leader).collect();
            stage.ask_to_move(leader, others[random.below(others.len() as u64) as usize]);
            std::thread::sleep(pause);
        }
    }
    Ok(())
}
