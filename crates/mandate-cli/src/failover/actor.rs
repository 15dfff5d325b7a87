//! A member that acts while it leads: one process of the experiment.
//!
//! It prints a line for each act, its term and the time, and obeys lines on its standard input: `transfer
//! p2`. When that ends, so does it: nothing outlives the experiment.

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::Context;
use mandate_runtime::{Election, Mandate};
use tokio::sync::mpsc;

use super::group::now;
use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::node::{NodeConfig, start_peer};

/// Between two acts.
const PAUSE: Duration = Duration::from_micros(250);

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    let (orders, mut received) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = orders.send(line);
        }
    });
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(async {
        let peer = start_peer(&config, args.start.start()).await?;
        let acting = tokio::spawn(act(peer.election().clone()));
        while let Some(order) = received.recv().await {
            if let Some(to) = order.strip_prefix("transfer ") {
                let _ = peer.election().transfer(to.parse()?).await;
            }
        }
        acting.abort();
        peer.shutdown().await;
        Ok(Exit::Success)
    })
}

async fn act(election: Election) {
    while let Ok(mandate) = election.led().await {
        // A thread of its own: an act must not wait for the driver.
        let _ = tokio::task::spawn_blocking(move || act_while_it_holds(&mandate)).await;
    }
}

fn act_while_it_holds(mandate: &Mandate) {
    let term = mandate.term();
    while mandate.check() {
        let at = now();
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{term} {at}").and_then(|()| out.flush()).is_err() {
            return;
        }
        drop(out);
        std::thread::sleep(PAUSE);
    }
}
