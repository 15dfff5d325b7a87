//! `mandate node`: the daemon of one member.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use mandate_peer::links::Identity;
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::pole::installation::Guarantee;
use mandate_proto::pole::member::{Event, State};
use mandate_runtime::{Election, Start};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::output::{self, readable};

mod api;
mod config;
pub(crate) mod document;
mod metrics;

pub(crate) use config::{EXAMPLE, NodeConfig};
use document::About;
use metrics::Metrics;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("MANDATE_LOG").unwrap_or("info".into()),
        )
        .with_target(false)
        .init();
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(serve(config, args.start.start()))?;
    Ok(Exit::Success)
}

async fn serve(config: NodeConfig, start: Start) -> anyhow::Result<()> {
    // Taken first: if the address is in use, nothing else has begun.
    let listener = TcpListener::bind(config.api);
    let listener =
        listener.await.with_context(|| format!("could not listen on {} (api)", config.api))?;
    let peer = start_peer(&config, start).await?;
    let about = Arc::new(About {
        group: config.group.clone(),
        me: config.member.me(),
        members: config.member.members().to_vec(),
        guarantee: match config.member.guarantee() {
            Guarantee::Fenced => "fenced".into(),
            Guarantee::Leased { lease, .. } => format!("leased, {}", readable(lease)),
        },
        oracle: config.member.oracle().clone(),
    });
    let metrics = Arc::new(Metrics::default());
    let election = peer.election().clone();
    tokio::spawn({
        let (metrics, election) = (metrics.clone(), election.clone());
        async move { metrics.count(election).await }
    });
    tokio::spawn(narrate(election.clone()));
    output::print(format!(
        "{} of {}: members at {}, api at http://{}",
        about.me,
        about.group,
        peer.local_addr(),
        listener.local_addr()?
    ))?;
    let node = api::Node { election, about, metrics };
    let served = axum::serve(listener, api::router(node));
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        served = served => served.context("the api ended")?,
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    let _ = output::print("stopping: leadership is given back");
    peer.shutdown().await;
    Ok(())
}

/// Starts the member that a configuration describes.
pub(crate) async fn start_peer(config: &NodeConfig, start: Start) -> anyhow::Result<Peer> {
    let identity = Identity::from_files(&config.ca, &config.certificate, &config.key)?;
    let setup = PeerSetup {
        group: config.group.clone(),
        listen: config.listen,
        peers: config.peers.clone(),
        identity,
        member: config.member.clone(),
        state: config.state.clone(),
        start,
    };
    Ok(Peer::start(setup).await?)
}

/// Says what happens, as it happens.
async fn narrate(election: Election) {
    let mut events = election.events();
    drop(election);
    loop {
        match events.recv().await {
            Ok(event) => {
                if output::print(event_text(&event)).is_err() {
                    return;
                }
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "events were missed"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// An event in words.
fn event_text(event: &Event) -> String {
    match event {
        Event::Changed(State::Electing) => "no leader".into(),
        Event::Changed(State::Following { leader, term }) => {
            format!("following {leader} in term {term}")
        }
        Event::Changed(State::Leading { term }) => format!("LEADING in term {term}"),
        Event::Elected(record) => format!(
            "election over: {} leads in term {} (cause {:?}; selection {}, installation {})",
            record.leader,
            record.term,
            record.cause,
            readable(record.selection),
            readable(record.installation)
        ),
        Event::Suspected { member, suspected: true } => format!("{member} does not answer"),
        Event::Suspected { member, .. } => format!("{member} answers again"),
        Event::NoTransfer { to, reason } => format!("no transfer to {to}: {reason}"),
        Event::Advised(advice) => format!(
            "{} would serve better than {}: {} {:.2} instead of {:.2}{}",
            advice.to,
            advice.from,
            advice.measure.name(),
            advice.predicted,
            advice.present,
            if advice.shadow { " (shadow mode: nothing is done)" } else { "" }
        ),
        Event::Moved(effect) => match effect.realised {
            Some(realised) => format!(
                "the move to {} brought {} {realised:.2}; predicted {:.2}",
                effect.advice.to,
                effect.advice.measure.name(),
                effect.advice.predicted
            ),
            None => format!("the move to {} came to nothing", effect.advice.to),
        },
        Event::Recovered => "the lost disk is recovered from the others".into(),
    }
}
