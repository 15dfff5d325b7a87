//! Has a change carried out, and waits until what it begins is done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use mandate_proto::identity::MemberId;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::show;
use crate::args::positive_duration;
use crate::client::DaemonClient;
use crate::exit::Exit;
use crate::node::document::{ListNumber, PeerDocument};
use crate::node::members_api::{ChangeRequest, ChangedDocument};
use crate::output::{self, Format, readable};
use crate::program_runtime::block_on;

/// Between two looks at the list.
const PAUSE: Duration = Duration::from_millis(100);

/// For how long the daemon may fail to answer.
const ABSENCE: Duration = Duration::from_secs(10);

/// How long the command waits until what it has begun is done.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct PatienceArgs {
    /// Do not wait until the new member has caught up: the group goes on by itself.
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
    /// How long to wait for it at most. The group goes on after that. Without it, for as long as it takes.
    #[arg(long, value_parser = positive_duration, value_name = "TIME")]
    wait: Option<Duration>,
}

/// What a daemon is asked for.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Change(ChangeRequest),
    Remove(MemberId),
}

/// When it is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    Votes(MemberId),
    Observes(MemberId),
    Replaces { old: MemberId, new: MemberId },
    Gone(MemberId),
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Done(String),
    Waits(String),
    /// The one that is to leave leads.
    Leads(String),
    /// Somebody else has changed the list again.
    Undone(String),
}

impl Order {
    fn give(&self, client: &DaemonClient) -> anyhow::Result<ChangedDocument> {
        match self {
            Order::Change(change) => client.post_for("/v1/members", change),
            Order::Remove(member) => client.delete(&format!("/v1/members/{member}")),
        }
    }
}

impl Goal {
    fn member(self) -> MemberId {
        match self {
            Goal::Votes(member) | Goal::Observes(member) | Goal::Gone(member) => member,
            Goal::Replaces { new, .. } => new,
        }
    }

    /// How far it is by this list, which may be older than the change, `since`.
    fn progress(self, members: &[PeerDocument], since: ListNumber) -> Progress {
        let entry = |id: MemberId| members.iter().find(|it| it.id == id.to_string());
        let listed = |id: MemberId| entry(id).filter(|it| it.part.is_some());
        let known = members.iter().find(|it| it.is_asked).and_then(|it| it.list);
        let is_known =
            known.is_some_and(|list| (list.term, list.version) >= (since.term, since.version));
        let member = self.member();
        if !is_known {
            return Progress::Waits(format!("the list that names {member} is on its way"));
        }
        let part = listed(member).and_then(|it| it.part.as_deref());
        match (self, part) {
            (Goal::Gone(_), None) => Progress::Done(format!("{member} is no member any more")),
            (Goal::Gone(_), Some(_)) => Progress::Undone(format!("{member} is a member again")),
            (_, None) => Progress::Undone(format!("{member} was removed again, by somebody else")),
            (Goal::Observes(_), Some(_)) => Progress::Done(format!("{member} observes")),
            (Goal::Votes(_), Some("voter")) => Progress::Done(format!("{member} votes")),
            (Goal::Replaces { old, .. }, Some("voter")) => match listed(old) {
                None => Progress::Done(format!("{member} votes in the place of {old}")),
                Some(old) if old.leads => Progress::Leads(old.id.clone()),
                Some(_) => Progress::Waits(format!("{member} votes; {old} leaves now")),
            },
            (_, Some(_)) => Progress::Waits(learns(member, entry(member))),
        }
    }

    /// What goes on without this command.
    fn goes_on(self) -> String {
        let back = match self {
            Goal::Gone(_) => String::new(),
            _ => format!(", and `mandate member remove {}` takes it back", self.member()),
        };
        format!("the change goes on: `mandate member list` shows how far it is{back}")
    }
}

fn learns(member: MemberId, entry: Option<&PeerDocument>) -> String {
    match entry {
        Some(PeerDocument { suspected: Some(true), address, .. }) => format!(
            "{member} is a learner, and does not answer: has it been started with --join, and is it reached at {}?",
            address.as_deref().unwrap_or("its address")
        ),
        _ => format!("{member} is a learner; it votes once it follows"),
    }
}

/// Has a daemon carry out an order, and waits until its goal is reached.
pub(super) fn carry_out(
    client: DaemonClient,
    order: Order,
    goal: Goal,
    patience: PatienceArgs,
    format: Format,
) -> anyhow::Result<Exit> {
    let client = Arc::new(client);
    block_on(async move {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            done = follow(client, order, goal, patience, format) => done,
            _ = interrupted.recv() => {
                output::complain(goal.goes_on());
                Ok(Exit::Command(130))
            }
            _ = terminated.recv() => {
                output::complain(goal.goes_on());
                Ok(Exit::Command(143))
            }
        }
    })
}

async fn follow(
    client: Arc<DaemonClient>,
    order: Order,
    goal: Goal,
    patience: PatienceArgs,
    format: Format,
) -> anyhow::Result<Exit> {
    let say = |text: &str| match format {
        Format::Text => output::print(text),
        Format::Json => Ok(()),
    };
    let began = Instant::now();
    let changed = asked(&client, move |client| order.give(client)).await?;
    if let Some(to) = &changed.handed_over_to {
        say(&format!("{} led, and has handed leadership over to {to} first", goal.member()))?;
    }
    let (mut said, mut heard) = (String::new(), Instant::now());
    loop {
        let members = asked(&client, |client| client.get::<Vec<PeerDocument>>("/v1/members")).await;
        let members = match members {
            Ok(members) => members,
            Err(error) if heard.elapsed() > ABSENCE => return Err(error.context(goal.goes_on())),
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        heard = Instant::now();
        let text = match goal.progress(&members, changed.list) {
            Progress::Done(text) => {
                say(&text)?;
                if format == Format::Json {
                    show::list(&members, format)?;
                }
                return Ok(Exit::Success);
            }
            Progress::Undone(text) => anyhow::bail!(text),
            Progress::Waits(text) => text,
            Progress::Leads(old) => {
                let to = goal.member().to_string();
                let text = format!("{old} leads: leadership is handed over to {to} first");
                // If it cannot be now, it can be a moment later.
                let order = serde_json::json!({ "to": to });
                let _ = asked(&client, move |client| client.post("/v1/transfer", &order)).await;
                text
            }
        };
        if text != said {
            say(&text)?;
            said = text;
        }
        if patience.no_wait {
            if format == Format::Json {
                show::list(&members, format)?;
            }
            return Ok(Exit::Success);
        }
        if patience.wait.is_some_and(|wait| began.elapsed() >= wait) {
            let waited = readable(patience.wait.unwrap_or_default());
            anyhow::bail!("not done within {waited}: {said}. {}", goal.goes_on());
        }
        sleep(PAUSE).await;
    }
}

/// Asks the daemon on a thread, so that a signal is heard meanwhile.
async fn asked<T: Send + 'static>(
    client: &Arc<DaemonClient>,
    question: impl FnOnce(&DaemonClient) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let client = client.clone();
    tokio::task::spawn_blocking(move || question(&client))
        .await
        .context("the question was dropped")?
}
