//! The list of members as a table.

use crate::node::document::PeerDocument;
use crate::output::{self, Format};

/// What is said of a group that has no list.
const NO_LIST: &str = "this group has no list of members: on a database and on Kafka each process that takes part is one, and with guarantee = \
    \"overlap\" the configuration files say who they are";

pub(super) fn list(members: &[PeerDocument], format: Format) -> anyhow::Result<()> {
    // Where there is a list, the one that is asked says by which it goes.
    anyhow::ensure!(members.iter().any(|member| member.is_asked), "{NO_LIST}");
    match format {
        Format::Json => output::print_json(&members)?,
        Format::Text => output::print(text(members))?,
    }
    Ok(())
}

fn text(members: &[PeerDocument]) -> String {
    let count =
        |part: &str| members.iter().filter(|member| member.part.as_deref() == Some(part)).count();
    let voters = count("voter");
    let mut text = match voters {
        1 => "1 member votes".to_owned(),
        _ => format!("{voters} members vote, and {} are a quorum", voters / 2 + 1),
    };
    for (part, does) in [("learner", "learning"), ("observer", "observing")] {
        if count(part) > 0 {
            text += &format!(", {} {does}", count(part));
        }
    }
    if let Some((asked, list)) =
        members.iter().find_map(|it| Some((&it.id, it.list?)).filter(|_| it.is_asked))
    {
        text += &match (list.term, list.version) {
            (0, 0) => format!("; {asked} has not been added to the group yet"),
            (0, _) => format!("; the list that the group was set up with, as {asked} knows it"),
            _ => format!("; list {list}, as {asked} knows it"),
        };
    }
    text.push('\n');
    let width = |of: fn(&PeerDocument) -> usize| members.iter().map(of).max().unwrap_or(0);
    let names = width(|it| it.label.as_deref().map_or(0, str::len));
    let addresses = width(|it| it.address.as_deref().map_or(0, str::len));
    for member in members {
        let line = format!(
            "\n  {:<5} {:<names$}{}{:<9} {:<addresses$}  {}",
            member.id,
            member.label.as_deref().unwrap_or_default(),
            if names > 0 { "  " } else { "" },
            part(member),
            member.address.as_deref().unwrap_or_default(),
            state(member)
        );
        text += line.trim_end();
    }
    text
}

fn part(member: &PeerDocument) -> &'static str {
    match member.part.as_deref() {
        Some("voter") => "votes",
        Some("learner") => "learns",
        Some("observer") => "observes",
        _ => "no member",
    }
}

/// What is known of how a member is.
pub(super) fn state(member: &PeerDocument) -> String {
    let answers = match member.suspected {
        _ if member.is_asked => Some("is asked"),
        Some(true) => Some("does not answer"),
        Some(false) => Some("answers"),
        None => None,
    };
    let replaces = member.replaces.as_ref().map(|old| format!("takes the place of {old}"));
    let replaced = member.replaced_by.as_ref().map(|new| format!("is to be replaced by {new}"));
    let leads = member.leads.then(|| "leads".to_owned());
    let said = leads.into_iter().chain(answers.map(str::to_owned)).chain(replaces).chain(replaced);
    said.chain(member.trouble.clone()).collect::<Vec<_>>().join(", ")
}
