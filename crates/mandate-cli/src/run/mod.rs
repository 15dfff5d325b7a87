//! `mandate run`: a command that runs where leadership is, and nowhere else.
//!
//! The member joins its group, and starts the command when it leads. The command and everything it has
//! started are gone before leadership is: with leases, before the deadline. When the command ends,
//! leadership is given back at once, and its exit code is passed on.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use mandate_runtime::{Election, ElectionState, Mandate, Start};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::node::{NodeConfig, start_peer};
use crate::output;

mod tree;

use tree::Tree;
pub(crate) use tree::become_command;

/// How long a command that is asked to end may take without leases, and when the operator asks.
const GRACE: Duration = Duration::from_secs(5);

/// What of a lease is kept for the killing itself: a tree of processes is gone in a few milliseconds,
/// on a busy host in a few dozen.
const RESERVE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    let start = match (args.new, args.lost) {
        (true, _) => Start::New,
        (_, true) => Start::Lost,
        _ => Start::Stored,
    };
    tree::adopt_orphans()?;
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        let peer = start_peer(&config, start).await?;
        let ended = supervise(peer.election(), args).await;
        peer.shutdown().await;
        ended
    })
}

async fn supervise(election: &Election, args: &RunArgs) -> anyhow::Result<Exit> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    loop {
        let mandate = tokio::select! {
            mandate = election.led() => mandate?,
            _ = terminated.recv() => return Ok(Exit::Success),
            _ = interrupted.recv() => return Ok(Exit::Success),
        };
        output::complain(format!(
            "leading in term {}: starting {}",
            mandate.term(),
            args.command[0]
        ));
        let mut tree = Tree::start(&args.role, mandate.term(), &args.command)?;
        tokio::select! {
            biased;
            () = near_its_end(election, &mandate) => {
                output::complain(format!("leadership of term {} is ending: stopping the command", mandate.term()));
                tree.end(time_left(&mandate)).await;
                if !args.again {
                    return Ok(Exit::LeadershipLost);
                }
            }
            status = tree.ended() => {
                // Whatever it has left behind must not act on without a leader's mandate.
                tree.end(Duration::ZERO).await;
                return Ok(passed_on(status?));
            }
            _ = terminated.recv() => {
                tree.end(GRACE.min(time_left(&mandate))).await;
                return Ok(Exit::Success);
            }
            _ = interrupted.recv() => {
                tree.end(GRACE.min(time_left(&mandate))).await;
                return Ok(Exit::Success);
            }
        }
    }
}

/// Waits until leadership is lost or, with leases, until the lease is in jeopardy: the command needs
/// what is left of it to end.
async fn near_its_end(election: &Election, mandate: &Mandate) {
    let mut state = election.state();
    let jeopardy = state.wait_for(|state| match state {
        ElectionState::Leading(held) => held.term() != mandate.term(),
        _ => true,
    });
    tokio::select! {
        _ = jeopardy => {}
        () = election.lost(mandate) => {}
    }
}

/// How long the command may take to end.
fn time_left(mandate: &Mandate) -> Duration {
    mandate.remaining().map_or(GRACE, |left| left.saturating_sub(RESERVE))
}

/// The command's exit code, or 128 and the signal that ended it, as shells do.
fn passed_on(status: ExitStatus) -> Exit {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Exit::Command(u8::try_from(code).unwrap_or(1))
}
