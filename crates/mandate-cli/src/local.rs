//! Commands that ask the local daemon: `status`, `history`, `explain`, `observe`, `resign`, `transfer`.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::{ApiArgs, ExplainArgs, TransferArgs};
use crate::exit::Exit;
use crate::node::document::{ElectionDocument, StatusDocument};
use crate::output::{self, Format};

/// A daemon that does not answer for so long is not there.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn status(args: &ApiArgs, format: Format) -> anyhow::Result<Exit> {
    let status: StatusDocument = get(args, "/v1/status")?;
    match format {
        Format::Json => output::print_json(&status)?,
        Format::Text => output::print(status_text(&status))?,
    }
    Ok(Exit::Success)
}

fn status_text(status: &StatusDocument) -> String {
    let StatusDocument { member, group, .. } = status;
    let mut text = match (&status.leader, status.term) {
        (Some(leader), Some(term)) if leader == member => {
            format!("{member} of {group} LEADS in term {term}")
        }
        (Some(leader), Some(term)) => {
            format!("{member} of {group} follows {leader} in term {term}")
        }
        _ => format!("{member} of {group} knows of no leader"),
    };
    if status.state == "jeopardy" {
        text += ", in jeopardy: renewals fail";
    }
    if let Some(left) = status.lease_remaining_ms {
        text += &format!("; the lease lasts {left:.0} ms more");
    }
    text += &format!("\n\n  guarantee   {}\n  oracle      {}\n", status.guarantee, status.oracle);
    for (name, value) in &status.figures {
        text += &format!("  {name:<11} {value}\n");
    }
    if let Some(reason) = &status.not_a_candidate {
        text += &format!("  no candidate: it {reason}\n");
    }
    for peer in &status.members {
        let time = peer.round_trip_ms.map_or("unknown".into(), |time| format!("{time:.2} ms"));
        let answers = if peer.suspected { "does not answer" } else { "answers" };
        text += &format!("\n  {:<5} {answers:<16} round trip {time}", peer.id);
    }
    text
}

pub(crate) fn history(args: &ApiArgs, format: Format) -> anyhow::Result<Exit> {
    let elections: Vec<ElectionDocument> = get(args, "/v1/elections")?;
    match format {
        Format::Json => output::print_json(&elections)?,
        Format::Text if elections.is_empty() => output::print("no election has ended yet")?,
        Format::Text => {
            for election in &elections {
                output::print(format!(
                    "term {:<4} {:<5} {:<20} selection {:>8.1} ms, installation {:>8.1} ms",
                    election.term,
                    election.leader,
                    election.cause,
                    election.selection_ms,
                    election.installation_ms
                ))?;
            }
        }
    }
    Ok(Exit::Success)
}

pub(crate) fn explain(args: &ExplainArgs, format: Format) -> anyhow::Result<Exit> {
    let elections: Vec<ElectionDocument> = get(&args.api, "/v1/elections")?;
    let wanted = |election: &&ElectionDocument| args.term.is_none_or(|term| election.term == term);
    let election = elections.iter().find(wanted).context(match args.term {
        Some(term) => {
            format!("this member remembers no election of term {term}; see `mandate history`")
        }
        None => "no election has ended yet".into(),
    })?;
    match format {
        Format::Json => output::print_json(election)?,
        Format::Text => output::print(explain_text(election))?,
    }
    Ok(Exit::Success)
}

fn explain_text(election: &ElectionDocument) -> String {
    let former = election.former.as_deref().unwrap_or("nobody");
    let mut text = format!(
        "{} leads in term {}, after {former}. Cause: {}.\nSelection took {:.1} ms{}, installation {:.1} ms.\n",
        election.leader,
        election.term,
        election.cause,
        election.selection_ms,
        if election.rounds > 1 {
            format!(" and {} rounds", election.rounds)
        } else {
            String::new()
        },
        election.installation_ms
    );
    if !election.suspected.is_empty() {
        text += &format!(
            "Not waited for, as they did not answer: {}.\n",
            election.suspected.join(", ")
        );
    }
    if election.ended.is_none() && !election.candidates.is_empty() {
        text += "This member heard of the leader before it had heard everyone; the leader knows more.\n";
    }
    for candidate in &election.candidates {
        let figures: Vec<_> =
            candidate.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
        text +=
            &format!("\n  {:<5} {:<34} {}", candidate.id, figures.join(", "), candidate.outcome);
    }
    text
}

pub(crate) fn observe(args: &ApiArgs, format: Format) -> anyhow::Result<Exit> {
    let url = url(args, "/v1/events");
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_connect(Some(PATIENCE)).build().into();
    let mut response = agent.get(&url).call().with_context(|| absent(args))?;
    let lines = BufReader::new(response.body_mut().as_reader()).lines();
    for line in lines {
        let line = line.context("the daemon has gone")?;
        let Some(event) = line.strip_prefix("data: ") else { continue };
        match format {
            Format::Json => output::print_json_line(&serde_json::json!({ "event": event }))?,
            Format::Text => output::print(event)?,
        }
    }
    Ok(Exit::Success)
}

pub(crate) fn resign(args: &ApiArgs) -> anyhow::Result<Exit> {
    post(args, "/v1/resign", &serde_json::json!({}))?;
    output::print("given back; the others elect")?;
    Ok(Exit::Success)
}

pub(crate) fn transfer(args: &TransferArgs) -> anyhow::Result<Exit> {
    let to = args.to.to_string();
    post(&args.api, "/v1/transfer", &serde_json::json!({ "to": to }))?;
    output::print(format!("handed over to {to}"))?;
    Ok(Exit::Success)
}

fn url(args: &ApiArgs, path: &str) -> String {
    format!("http://{}{path}", args.api)
}

fn absent(args: &ApiArgs) -> String {
    format!(
        "no daemon answers at {}: is `mandate node` running, and is that its `api` address? Give another with --api",
        args.api
    )
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder();
    config.timeout_global(Some(PATIENCE)).http_status_as_error(false).build().into()
}

fn get<T: DeserializeOwned>(args: &ApiArgs, path: &str) -> anyhow::Result<T> {
    let mut response = agent().get(url(args, path)).call().with_context(|| absent(args))?;
    let text = response.body_mut().read_to_string().context("the daemon has gone")?;
    anyhow::ensure!(response.status().is_success(), "{}", text.trim_end());
    serde_json::from_str(&text).context("the answer is not that of a mandate daemon")
}

fn post(args: &ApiArgs, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
    let mut response =
        agent().post(url(args, path)).send_json(body).with_context(|| absent(args))?;
    let text = response.body_mut().read_to_string().context("the daemon has gone")?;
    anyhow::ensure!(response.status().is_success(), "{}", text.trim_end());
    Ok(())
}
