//! `mandate node`: the daemon of one member.

use std::sync::Arc;

use anyhow::Context;
use mandate_proto::identity::Term;
use mandate_proto::nfd_l::Reason;
use mandate_runtime::event::State;
use mandate_runtime::{Election, Event, Promise, Start};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::ledger::words as ledger_words;
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
mod member;
mod metrics;
pub(crate) mod page;
pub(crate) mod quality;
mod roles_api;
pub(crate) mod serve;
mod tables;

use access::Access;
pub(crate) use api::openapi;
pub(crate) use certificates::follow as follow_certificates;
use chronicle::Chronicle;
pub(crate) use config::{EXAMPLE, EngineConfig, NodeConfig, PeerConfig};
use document::About;
use mandate_api::Holders;
pub(crate) use member::{Member, start_peer};
use metrics::Metrics;
use serve::Door;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    logging::begin("info");
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    runtime.block_on(serve(config, args.start.start(), |_| ()))?;
    Ok(Exit::Success)
}

/// Runs a member until it is asked to stop. `accompany` is given its election, once it has begun.
pub(crate) async fn serve(
    config: NodeConfig,
    start: Start,
    accompany: impl FnOnce(Election),
) -> anyhow::Result<()> {
    let access = Access::load(&config.access, config.api)?;
    // Taken first: if the address is in use, nothing else has begun.
    let door = Door::open(config.api, config.access.tls.as_ref()).await?;
    let member = Arc::new(Member::start(&config, start).await?);
    let promise = member.promise();
    let about = Arc::new(About {
        group: config.group.clone(),
        me: member.me(),
        guarantee: match promise {
            Promise::Overlap => "overlap".into(),
            Promise::Fenced => "fenced".into(),
            Promise::Leased { lease } => format!("leased, {}", readable(lease)),
        },
        oracle: member.oracle().clone(),
        lease: promise.lease(),
        has_terms: promise != Promise::Overlap,
    });
    if let (Some(peer), EngineConfig::Peer(config)) = (member.peer(), &config.engine) {
        tokio::spawn(follow_certificates(peer.renewal(config.identity_files()), true));
    }
    let metrics = Arc::new(Metrics::new(member.clone()));
    let chronicle = Arc::new(Chronicle::new());
    let holders = Arc::new(Holders::new(promise, member.cannot_be_held()));
    let election = member.election().clone();
    let node = api::Node {
        election: election.clone(),
        member: member.clone(),
        about,
        metrics,
        chronicle,
        holders: holders.clone(),
    };
    tokio::spawn(narrate(node.clone()));
    accompany(election.clone());
    output::print(format!(
        "{} of {}: {}, api at {}",
        node.about.me,
        node.about.group,
        member.meets(),
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
    member.shutdown().await;
    Ok(())
}

/// Takes note of what happens and says it, as it happens.
async fn narrate(node: api::Node) {
    let api::Node { election, member, about, metrics, chronicle, holders: _ } = node;
    let take_note = move |event: Event| {
        metrics.count(&event, about.me);
        let noted = chronicle.note(&event, &about);
        // Also when nobody reads what is printed, the page and Prometheus do.
        let _ = output::print(&noted.text);
    };
    // The handles would keep the member alive.
    match member.on_a_ledger().map(|ledger| ledger.roles().changes()) {
        // Of all roles, not of the first alone.
        Some(changes) => {
            drop((election, member));
            listen(changes, |change| Event::OnLedger(change.event), take_note).await;
        }
        None => {
            let events = election.events();
            drop((election, member));
            listen(events, |event| event, take_note).await;
        }
    }
}

async fn listen<T: Clone>(
    mut told: Receiver<T>,
    event: impl Fn(T) -> Event,
    take_note: impl Fn(Event),
) {
    loop {
        match told.recv().await {
            Ok(one) => take_note(event(one)),
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
        Event::OnLedger(event) => ledger_words::event_text(event),
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
