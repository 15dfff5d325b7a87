//! `mandate node`: the daemon of one member.

use std::sync::Arc;

use anyhow::Context;
use mandate_peer::links::Identity;
use mandate_peer::{Peer, PeerSetup};
use mandate_proto::identity::Term;
use mandate_proto::nfd_l::Reason;
use mandate_proto::oracle::Oracle;
use mandate_runtime::event::State;
use mandate_runtime::{Event, Promise, Protocol, Start};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;

use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::logging;
use crate::output::{self, readable};
use crate::sql::words as sql_words;

pub(crate) mod access;
mod api;
mod certificates;
pub(crate) mod chronicle;
mod config;
pub(crate) mod document;
pub(crate) mod mandate_api;
mod metrics;
pub(crate) mod page;
pub(crate) mod quality;
pub(crate) mod serve;
mod tables;

use access::Access;
pub(crate) use api::openapi;
pub(crate) use certificates::follow as follow_certificates;
use chronicle::Chronicle;
pub(crate) use config::{EXAMPLE, NodeConfig};
use document::About;
use mandate_api::Holders;
use metrics::Metrics;
use serve::Door;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    logging::begin("info");
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(serve(config, args.start.start()))?;
    Ok(Exit::Success)
}

async fn serve(config: NodeConfig, start: Start) -> anyhow::Result<()> {
    let access = Access::load(&config.access, config.api)?;
    // Taken first: if the address is in use, nothing else has begun.
    let door = Door::open(config.api, config.access.tls.as_ref()).await?;
    let peer = start_peer(&config, start).await?;
    let about = Arc::new(About {
        group: config.group.clone(),
        me: config.protocol.me(),
        members: config.protocol.members().to_vec(),
        guarantee: match config.protocol.guarantee() {
            Promise::Overlap => "overlap".into(),
            Promise::Fenced => "fenced".into(),
            Promise::Leased { lease } => format!("leased, {}", readable(lease)),
        },
        oracle: match &config.protocol {
            Protocol::Pole(member) => member.oracle().clone(),
            Protocol::NfdL { .. } => Oracle::constant(),
        },
        lease: config.protocol.guarantee().lease(),
        has_terms: config.protocol.guarantee() != Promise::Overlap,
    });
    let peer = Arc::new(peer);
    tokio::spawn(follow_certificates(peer.renewal(config.identity_files()), true));
    let metrics = Arc::new(Metrics::new(peer.clone()));
    let chronicle = Arc::new(Chronicle::new());
    let holders = Arc::new(Holders::new(&config.protocol));
    let election = peer.election().clone();
    let node = api::Node {
        election: election.clone(),
        about,
        metrics,
        chronicle,
        holders: holders.clone(),
    };
    tokio::spawn(narrate(node.clone()));
    output::print(format!(
        "{} of {}: members at {}, api at {}",
        node.about.me,
        node.about.group,
        peer.local_addr(),
        door.url()?
    ))?;
    let mut served = tokio::spawn(door.serve(api::router(node, access)));
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        served = &mut served => served.context("the api ended")?,
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    let _ = output::print("stopping: leadership is given back");
    // While the api still answers, so that whoever holds the mandate hears of it.
    let _ending = holders.end().await;
    served.abort();
    peer.shutdown().await;
    Ok(())
}

/// Starts the member that a configuration describes.
pub(crate) async fn start_peer(config: &NodeConfig, start: Start) -> anyhow::Result<Peer> {
    let files = config.identity_files();
    let identity = Identity::from_files(&files.ca, &files.chain, &files.key)?;
    let setup = PeerSetup {
        group: config.group.clone(),
        listen: config.listen,
        peers: config.peers.clone(),
        identity,
        protocol: config.protocol.clone(),
        state: config.state.clone(),
        start,
    };
    Ok(Peer::start(setup).await?)
}

/// Takes note of what happens and says it, as it happens.
async fn narrate(node: api::Node) {
    let api::Node { election, about, metrics, chronicle, holders: _ } = node;
    let mut events = election.events();
    // The handle would keep the member alive.
    drop(election);
    loop {
        match events.recv().await {
            Ok(event) => {
                metrics.count(&event, about.me);
                let noted = chronicle.note(&event, &about);
                // Also when nobody reads what is printed, the page and Prometheus do.
                let _ = output::print(&noted.text);
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
        // Without terms, there is none to name.
        Event::Changed(State::Following { leader, term: Term::NONE }) => {
            format!("following {leader}")
        }
        Event::Changed(State::Following { leader, term }) => {
            format!("following {leader} in term {term}")
        }
        Event::Changed(State::Leading { term: Term::NONE }) => "LEADING".into(),
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
        Event::Unachievable { leader, reason } => format!(
            "the link from {leader} does not allow for the quality of detection that is wanted: {reason}"
        ),
        Event::Because(reason) => because(*reason).into(),
        Event::LeaderRestarted { leader } => format!("{leader} was restarted, and leads on"),
        Event::LeaderTooSlow { leader, interval } => format!(
            "{leader} sends heartbeats every {}, which is too seldom for [detection] within: are the \
             configurations the same?",
            readable(*interval)
        ),
        Event::ClockBehind { by } => format!(
            "the calendar clock is {} behind what it was when this member was first started",
            readable(*by)
        ),
        Event::OnDatabase(event) => sql_words::event_text(event),
        Event::DuplicateId => "another process uses this member's id: stop one of the two".into(),
    }
}

/// Why NFD-L named another leader, in words.
fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Heard => "a leader was heard",
        Reason::NoneHeard => "no leader was heard",
        Reason::Silence => "the leader fell silent",
        Reason::Seniority => "one that has led for longer was heard",
        Reason::Priority => "one of higher preference takes over",
        Reason::Resigned => "the leader resigned",
        Reason::Stalled => {
            "this member was stalled for so long that the others must have given it up"
        }
    }
}
