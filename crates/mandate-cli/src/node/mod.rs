//! `mandate node`: the daemon of one member.

use std::sync::Arc;

use anyhow::Context;
use mandate::{
    Election, ElectionState, Event, Guarantee, Mandate, Oracle, RosterId, Start, State, Term,
};
use mandate_proto::nfd_l::Reason;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::args::NodeArgs;
use crate::exit::Exit;
use crate::ledger::words as ledger_words;
use crate::logging;
use crate::output::{self, readable};
use crate::program_runtime::block_on;
use crate::sql::words as sql_words;
use crate::wait::WaitArgs;

pub mod access;
mod api;
pub mod chronicle;
mod config;
mod description;
pub mod document;
pub(crate) mod mandate_api;
pub(crate) mod member;
pub(crate) mod members_api;
mod metrics;
pub mod page;
pub mod quality;
mod reload;
mod roles_api;
pub mod serve;
mod value_api;

use access::Access;
pub(crate) use api::openapi;
use chronicle::Chronicle;
pub use config::NodeConfig;
use document::About;
use mandate_api::Holders;
use metrics::Metrics;
use serve::Door;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<Exit> {
    let config = NodeConfig::read(&args.config)?;
    logging::begin("info");
    block_on(serve(config, args.start.start(), args.wait, |_| ()))?;
    Ok(Exit::Success)
}

/// Runs a member until it is asked to stop. `accompany` is given its election, once it has begun.
pub async fn serve(
    config: NodeConfig,
    start: Start,
    wait: WaitArgs,
    accompany: impl FnOnce(Election),
) -> anyhow::Result<()> {
    let access = Access::load(&config.access, config.api)?;
    // Taken first: if the address is in use, nothing else has begun.
    let door = Door::open(config.api, config.access.tls.as_ref()).await?;
    // Heard also while what the member needs is not there yet.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let builder = member::starting(config.member, start)?;
    let member = tokio::select! {
        member = wait.until(async || Ok(builder.start().await?)) => member?,
        _ = interrupted.recv() => return Ok(()),
        _ = terminated.recv() => return Ok(()),
    };
    let guarantee = member.guarantee();
    let about = Arc::new(About {
        group: member.group().to_owned(),
        me: member.id(),
        guarantee: match guarantee {
            Guarantee::Overlap => "overlap".into(),
            Guarantee::Fenced => "fenced".into(),
            Guarantee::Leased { lease } => format!("leased, {}", readable(lease)),
        },
        oracle: member.oracle().cloned().unwrap_or_else(Oracle::constant),
        lease: guarantee.lease(),
        has_terms: guarantee != Guarantee::Overlap,
    });
    tokio::spawn(reload::certificates(member.clone()));
    let metrics = Arc::new(Metrics::new(member.clone()));
    let chronicle = Arc::new(Chronicle::new());
    let holders = Arc::new(Holders::new(guarantee, member::cannot_be_held(&member)));
    let election = member.election().clone();
    let held = holders.clone();
    // What another member asks for waits as well until nobody acts on the mandate any more.
    election.set_gate(move || {
        let held = held.clone();
        async move { held.end().await }
    });
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
        member::meets(&member),
        door.url()?
    ))?;
    let access = Arc::new(access);
    tokio::spawn(reload::follow(config.access.clone(), access.clone(), door.tls()));
    let mut served = tokio::spawn(door.serve(api::router(node, access)));
    tokio::select! {
        served = &mut served => served.context("the api ended")?,
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        // A supervisor starts it again; a daemon that answers without a member would stay as it is.
        reason = member::until_ended(&member) => anyhow::bail!("the member has ended: {reason}"),
        () = stopped(&election) => {
            // Nobody asked for it. Its supervisor is to start it again, or an operator to look.
            served.abort();
            member.shutdown().await;
            let why = member.ended().unwrap_or("its driver ended: see the log".into());
            anyhow::bail!("the member stopped by itself: {why}");
        }
    }
    let leads = match member.kafka() {
        Some(ledger) => !ledger.roles().owned().is_empty(),
        None => election.state().borrow().mandate().is_some_and(Mandate::check),
    };
    let _ = output::print(if leads { "stopping: leadership is given back" } else { "stopping" });
    // While the api still answers, so that the holders of the mandate hear of it.
    let _ending = holders.end().await;
    served.abort();
    member.shutdown().await;
    Ok(())
}

/// Waits until a member has ended, however that came about.
async fn stopped(election: &Election) {
    let mut state = election.state();
    let _ = state.wait_for(|state| matches!(state, ElectionState::Stopped)).await;
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
    match member.kafka().map(|ledger| ledger.roles().changes()) {
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
        Event::Published { leader, term, value } => {
            format!("{leader} has published with term {term}: {value}")
        }
        Event::Elected(record) => format!(
            "election over: {} leads in term {}, as {} (selection {}, installation {})",
            record.leader,
            record.term,
            document::why(record),
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
        Event::Recovered => "all others have answered: this member has a vote".into(),
        Event::WentBack { member, term } => format!(
            "the state on {member}'s disk is older than what it has promised (term {term}): it was restored from a copy, or \
             another process uses its id. It has no vote until all others have told it what they promised"
        ),
        Event::Differs { member } => format!(
            "{member} has another list of members or another guarantee: neither counts the other's votes. `mandate status` \
             shows both; give all members the same"
        ),
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
            "the wall clock is {} behind what it was when this member was first started",
            readable(*by)
        ),
        Event::OnDatabase(event) => sql_words::event_text(event),
        Event::OnLedger(event) => ledger_words::event_text(event),
        Event::DuplicateId => "another process uses this member's id: stop one of the two".into(),
        Event::Twin { member } => {
            format!("two processes show the id {member}, and one was refused: stop one of the two")
        }
        Event::RosterChanged(list) if list.id() == RosterId::NONE => {
            "this member waits to be added to the group".into()
        }
        Event::RosterChanged(list) => format!("the members are {list} now, by list {}", list.id()),
        Event::RosterSettled(list) => {
            format!("a quorum has list {list} on disk: it will not be undone")
        }
        Event::NotChanged { change, reason } => {
            format!("no change of {}: {reason}", change.member())
        }
        // Events that have no words here yet.
        event => format!("{event:?}"),
    }
}

/// Why NFD-L named another leader, in words.
fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Heard => "a leader was heard",
        Reason::NoneHeard => "no leader was heard",
        Reason::Silence => "the leader fell silent",
        Reason::Seniority => {
            "another leader comes first: it has led for longer, or as long and its id decides"
        }
        Reason::Priority => "one of higher preference takes over",
        Reason::Resigned => "the leader resigned",
        Reason::Stalled => {
            "this member was stalled for so long that the others must have given it up"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate::runtime::EngineSide;

    #[tokio::test]
    async fn a_driver_that_ends_ends_the_wait_and_the_probe_of_life() {
        let (election, side) = EngineSide::open(None);
        assert!(api::is_live(&election));
        let waiting = tokio::spawn(async move {
            stopped(&election).await;
            election
        });
        // As a panic in a driver does.
        drop(side);
        assert!(!api::is_live(&waiting.await.unwrap()));
    }
}
