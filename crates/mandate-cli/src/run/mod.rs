//! `mandate run`: a command that runs where leadership is, and nowhere else.
//!
//! The member joins its group, and starts the command when it leads. The command and everything it has
//! started are gone before leadership is: with leases, before the deadline. When the command ends,
//! leadership is given back at once, and its exit code is passed on.
//!
//! What that assumes: this process runs. If it is stopped (SIGSTOP) or starved for longer than a third of
//! the lease, nobody ends the command in time; if it is killed, the kernel kills the command itself but not
//! what that has started. Whoever cannot accept that checks terms where it matters.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_runtime::{Election, ElectionState, Mandate};
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    anyhow::ensure!(
        config.member.moves().is_none_or(|moves| moves.shadow),
        "[moves] hands leadership over before the command has ended: leave it out for `mandate run`, or set \
         shadow = true"
    );
    tree::adopt_orphans()?;
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        let peer = start_peer(&config, args.start.start()).await?;
        let ended = supervise(peer.election(), args).await;
        peer.shutdown().await;
        ended
    })
}

async fn supervise(election: &Election, args: &RunArgs) -> anyhow::Result<Exit> {
    let mut asked = Asked::listen()?;
    let others = tree::descendants_so_far();
    loop {
        let mandate = tokio::select! {
            mandate = election.led() => mandate?,
            () = asked.stop() => return Ok(Exit::Success),
        };
        output::complain(format!(
            "leading in term {}: starting {}",
            mandate.term(),
            args.command[0]
        ));
        let mut tree = Tree::start(&args.role, mandate.term(), &args.command, others.clone())?;
        let began = tokio::select! {
            biased;
            () = near_its_end(election, &mandate) => {
                output::complain(format!("leadership of term {} is ending: stopping the command", mandate.term()));
                tree.end(|| time_left(&mandate)).await?;
                if args.again {
                    continue;
                }
                return Ok(Exit::LeadershipLost);
            }
            status = tree.ended() => {
                // Whatever it has left behind must not act on without a leader's mandate.
                tree.end(|| Duration::ZERO).await?;
                return Ok(passed_on(status?));
            }
            () = asked.stop() => Instant::now(),
        };
        let grace = || GRACE.saturating_sub(began.elapsed()).min(time_left(&mandate));
        tree.end(grace).await?;
        return Ok(Exit::Success);
    }
}

/// Signals that ask this process to stop; those that would suspend it are ignored, since the command
/// would run on without it.
struct Asked {
    signals: Vec<Signal>,
    _ignored: Vec<Signal>,
}

impl Asked {
    fn listen() -> anyhow::Result<Self> {
        use SignalKind as Kind;
        let stops = [Kind::terminate(), Kind::interrupt(), Kind::hangup(), Kind::quit()];
        // SIGTSTP (Ctrl-Z), SIGTTIN, SIGTTOU.
        let suspends = [20, 21, 22].map(Kind::from_raw);
        let listen = |kinds: &[Kind]| kinds.iter().map(|kind| signal(*kind)).collect();
        let signals: Result<_, std::io::Error> = listen(&stops);
        let ignored: Result<_, std::io::Error> = listen(&suspends);
        Ok(Asked { signals: signals?, _ignored: ignored? })
    }

    async fn stop(&mut self) {
        std::future::poll_fn(|context| {
            let asked = self.signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if asked { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
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
