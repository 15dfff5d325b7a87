//! Commands that ask the local daemon: `status`, `history`, `explain`, `observe`, `resign`, `transfer`.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;

use crate::args::{AskArgs, ExplainArgs, ResignArgs, TransferArgs};
use crate::client::DaemonClient;
use crate::exit::Exit;
use crate::ledger::{RoleMapDocument, show as ledger};
use crate::node::chronicle::EventDocument;
use crate::node::document::{ElectionDocument, StatusDocument};
use crate::output::{self, Format};
use crate::sql::{self, show};

pub(crate) fn status(args: &AskArgs, format: Format) -> anyhow::Result<Exit> {
    if args.ledger.brokers.is_some() {
        return ledger::status(&args.ledger, args.database.group.as_deref(), format);
    }
    if let Some(address) = args.database.address()? {
        return show::status(&address, &args.database, format);
    }
    let status: StatusDocument = DaemonClient::new(&args.api)?.get("/v1/status")?;
    match format {
        Format::Json => output::print_json(&status)?,
        Format::Text => output::print(status_text(&status))?,
    }
    Ok(Exit::Success)
}

fn status_text(status: &StatusDocument) -> String {
    let StatusDocument { member, group, .. } = status;
    if let Some(map) = &status.role_map {
        return map_text(status, map);
    }
    // Not with NFD-L.
    let term = status.term.map_or_else(String::new, |term| format!(" in term {term}"));
    let mut text = match &status.leader {
        Some(leader) if leader == member => format!("{member} of {group} LEADS{term}"),
        Some(leader) => format!("{member} of {group} follows {leader}{term}"),
        None => format!("{member} of {group} knows of no leader"),
    };
    if status.state == "jeopardy" {
        text += ", in jeopardy: renewals fail";
    }
    if let Some(left) = status.lease_remaining_ms {
        text += &format!("; the lease lasts {left:.0} ms more");
    }
    text += "\n\n";
    if let Some(leader) = &status.leader {
        text += &reign_text(leader, status);
    }
    if let Some(value) = &status.value {
        text += &format!("  value       {}\n", output::indented(value));
    }
    text += &format!("  guarantee   {}\n  oracle      {}\n", status.guarantee, status.oracle);
    if let (Some(release), Some(protocol)) = (&status.release, status.protocol) {
        text += &format!("  release     {release}, protocol {protocol}\n");
    }
    for (name, value) in &status.figures {
        text += &format!("  {name:<11} {value}\n");
    }
    if let Some(reason) = &status.not_a_candidate {
        text += &format!("  no candidate: it {reason}\n");
    }
    text += &members_text(status);
    for trouble in status.no_vote.iter().chain(&status.troubles) {
        text += &format!("\n\n  WARNING: {trouble}");
    }
    for other in &status.differing {
        text += &format!(
            "\n\n  {} is refused: it is configured with {}, and this member with {}; give all the same",
            other.member, other.theirs, other.ours
        );
    }
    text
}

/// Who leads, since when and why, as far as the member that is asked knows.
fn reign_text(leader: &str, status: &StatusDocument) -> String {
    let since = status.since_ms.map_or_else(String::new, |at| {
        let lasts = Duration::from_millis(status.now_ms.saturating_sub(at));
        let at = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(at));
        format!(" since {at} ({})", output::readable(lasts))
    });
    let why = status.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match since.is_empty() && why.is_empty() {
        true => String::new(),
        false => format!("  leader      {leader}{since}{why}\n"),
    }
}

/// The others, as the member that is asked knows them.
fn members_text(status: &StatusDocument) -> String {
    let mut text = String::new();
    if let Some(list) = status.list.filter(|list| list.term > 0) {
        text += &format!("  list        {list}\n");
    }
    for peer in &status.members {
        let answers = match peer.suspected {
            Some(true) => "does not answer",
            Some(false) => "answers",
            None => "",
        };
        let time = peer.round_trip_ms.map(|time| format!("round trip {time:.2} ms"));
        let protocol = peer.protocol.map(|version| format!("protocol {version}"));
        let release = peer.release.as_ref().map(|release| format!("release {release}"));
        let said: Vec<_> = [time, protocol, release].into_iter().flatten().collect();
        let line = format!("\n  {:<5} {answers:<16} {}", peer.id, said.join(", "));
        text += line.trim_end();
        let differs = peer.list.filter(|theirs| Some(*theirs) != status.list);
        let notes = [
            peer.part.as_deref().and_then(|part| match part {
                "learner" => Some("it learns, and does not vote yet".to_owned()),
                _ => None,
            }),
            peer.no_vote.clone().filter(|_| peer.part.as_deref() != Some("learner")),
            differs.map(|list| format!("it goes by list {list}")),
            peer.trouble.clone(),
        ];
        for note in notes.into_iter().flatten() {
            text += &format!("\n        {note}");
        }
    }
    text
}

/// The same, of a member of a group on a ledger.
fn map_text(status: &StatusDocument, map: &RoleMapDocument) -> String {
    let StatusDocument { member, group, guarantee, .. } = status;
    let does = match (map.waiting_ms, map.roles_led, map.roles) {
        (Some(_), ..) => "waits to be assigned something".into(),
        (None, 0, _) => "stands by".into(),
        (None, _, 1) => "LEADS".into(),
        (None, led, roles) => format!("LEADS {led} of {roles} roles"),
    };
    format!("{member} of {group} {does}\n\n  guarantee   {guarantee}\n{}", map.text())
        .trim_end()
        .to_owned()
}

pub(crate) fn history(args: &AskArgs, format: Format) -> anyhow::Result<Exit> {
    if args.ledger.brokers.is_some() {
        return ledger::history(&args.ledger, args.database.group.as_deref(), format);
    }
    if let Some(address) = args.database.address()? {
        return show::history(&address, &args.database, format);
    }
    let elections: Vec<ElectionDocument> = DaemonClient::new(&args.api)?.get("/v1/elections")?;
    match format {
        Format::Json => output::print_json(&elections)?,
        Format::Text if elections.is_empty() => output::print("no election has ended yet")?,
        Format::Text => {
            for election in &elections {
                output::print(history_line(election))?;
            }
        }
    }
    Ok(Exit::Success)
}

fn history_line(election: &ElectionDocument) -> String {
    let ElectionDocument { term, leader, why, .. } = election;
    match election.partition {
        Some(partition) => format!(
            "partition {partition:<5} term {term:<8} {leader}, {}",
            election.ended.as_deref().map_or("leads".into(), |how| format!("ended: {how}"))
        ),
        None => format!(
            "term {term:<4} {}  {leader:<5} {why} (selection {:.1} ms, installation {:.1} ms)",
            humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(election.at_ms)),
            election.selection_ms,
            election.installation_ms
        ),
    }
}

pub(crate) fn explain(args: &ExplainArgs, format: Format) -> anyhow::Result<Exit> {
    let AskArgs { api, database, ledger } = &args.ask;
    if ledger.brokers.is_some() {
        return ledger::explain();
    }
    if let Some(address) = database.address()? {
        return show::explain(&address, database, args.term, format);
    }
    let elections: Vec<ElectionDocument> = DaemonClient::new(api)?.get("/v1/elections")?;
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
    if let Some(partition) = election.partition {
        return format!(
            "{} led partition {partition} in term {}: {}. On a ledger nobody stands for election, and there are no scores.",
            election.leader, election.term, election.why
        );
    }
    let after = match election.former.as_deref() {
        Some(former) => format!("after {former}"),
        None => "and no leader was known before".into(),
    };
    let mut text = format!(
        "{} leads in term {}, {after}. Cause: {}.\nSelection took {:.1} ms{}, installation {:.1} ms.\n",
        election.leader,
        election.term,
        election.why,
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
    if election.handed_over_by.is_some() && election.candidates.is_empty() {
        text += "Nobody stood for election, and no scores were compared.\n";
    } else if election.handed_over_by.is_some() {
        text += "Nobody stood for election. What everyone would be worth in the former leader's place, as this member \
                 knew it:\n";
    } else if election.ended.is_none() && !election.candidates.is_empty() {
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

pub(crate) fn observe(args: &AskArgs, format: Format) -> anyhow::Result<Exit> {
    if args.ledger.brokers.is_some() {
        return ledger::observe(&args.ledger, args.database.group.as_deref(), format);
    }
    if let Some(address) = args.database.address()? {
        return show::observe(&address, &args.database, format);
    }
    let args = &args.api;
    for line in DaemonClient::new(args)?.lines("/v1/events")? {
        let line = line.context("the daemon has gone")?;
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let event: EventDocument =
            serde_json::from_str(data).context("the answer is not that of a mandate daemon")?;
        match format {
            Format::Json => output::print_json_line(&event)?,
            Format::Text => output::print(event.text)?,
        }
    }
    Ok(Exit::Success)
}

pub(crate) fn resign(args: &ResignArgs) -> anyhow::Result<Exit> {
    if let Some(address) = args.database.address()? {
        return sql::request(&address, &args.database, None);
    }
    DaemonClient::new(&args.api)?.post("/v1/resign", &serde_json::json!({}))?;
    output::print("leadership is given back; the others elect")?;
    Ok(Exit::Success)
}

pub(crate) fn transfer(args: &TransferArgs) -> anyhow::Result<Exit> {
    let TransferArgs { ask, to } = args;
    if let Some(address) = ask.database.address()? {
        return sql::request(&address, &ask.database, Some(*to));
    }
    let to = to.to_string();
    DaemonClient::new(&ask.api)?.post("/v1/transfer", &serde_json::json!({ "to": to }))?;
    output::print(format!("handed over to {to}"))?;
    Ok(Exit::Success)
}
