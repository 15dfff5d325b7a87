//! Signals to the wrapper, and what they mean for the command.

use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

pub(crate) const TERM: i32 = 15;

/// HUP: many services read their configuration anew. USR1, USR2, WINCH: theirs to know.
const PASSED_ON: [i32; 4] = [1, 10, 12, 28];

/// INT, QUIT, TERM.
const STOPS: [i32; 3] = [2, 3, TERM];

/// TSTP (Ctrl-Z), TTIN, TTOU: a wrapper that is suspended renews nothing.
const SUSPENDS: [i32; 3] = [20, 21, 22];

const HUP: i32 = 1;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// That all end.
    Stop(i32),
    /// That the command is told.
    PassOn(i32),
}

impl Asked {
    /// How a wrapper ends that has no command to pass it on to, if the signal ends it: as one that the signal has ended.
    fn ends_the_wait(self) -> Option<Exit> {
        match self {
            Asked::Stop(signal) | Asked::PassOn(signal @ HUP) => Some(ended_by(signal)),
            Asked::PassOn(_) => None,
        }
    }
}

/// As shells say it: 128 and the signal.
pub(crate) fn ended_by(signal: i32) -> Exit {
    Exit::Command(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

pub(crate) struct Signals {
    listened: Vec<(i32, Signal)>,
    _ignored: Vec<Signal>,
}

impl Signals {
    /// Listens, but not for what is ignored already: `nohup` means it, for the command too.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let ignored = ignored_so_far();
        let heard = STOPS.into_iter().chain(PASSED_ON).filter(|kind| !ignored(*kind));
        let listen = |kind: i32| signal(SignalKind::from_raw(kind));
        let listened = heard.map(|kind| Ok((kind, listen(kind)?)));
        let listened = listened.collect::<std::io::Result<_>>()?;
        let suspends = SUSPENDS.into_iter().map(listen).collect::<std::io::Result<_>>()?;
        Ok(Signals { listened, _ignored: suspends })
    }

    /// Waits for a signal that ends a wrapper without a command; the exit code that it means. One that came before is
    /// found at once.
    pub(crate) async fn stopped(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.next().await.ends_the_wait() {
                return exit;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Asked {
        std::future::poll_fn(|context| {
            for (kind, signal) in &mut self.listened {
                if signal.poll_recv(context).is_ready() {
                    let stops = STOPS.contains(kind);
                    let asked = if stops { Asked::Stop(*kind) } else { Asked::PassOn(*kind) };
                    return Poll::Ready(asked);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Which signals this process was started to ignore.
fn ignored_so_far() -> impl Fn(i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |kind| mask & (1 << (kind - 1)) != 0
}
