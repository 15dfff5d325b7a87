//! The claims on handles: whatever future is dropped, wherever it waits, leaks nothing.
//!
//! No other process can drop one's futures, so these run members in one process, on a runtime of their
//! own whose tasks can be counted. A future is polled so many times and then dropped, for every number of
//! times up to more than any of them waits.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use mandate_proto::election::NoTransfer;
use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::{Election, ElectionState, LeadError};
use tokio::time::timeout;

use crate::subject::{Ability, EngineUnderTest, SetupError};
use crate::suite::{CheckFailure, CheckOutcome, CheckVerdict};

/// What makes members in this process.
pub trait Handles: EngineUnderTest {
    /// A member.
    type Handle: Handle;

    /// Starts members p1 to p`size` for the first time on the current runtime. The directory is empty,
    /// private, and removed in the end.
    fn start(
        &self,
        size: u32,
        directory: &Path,
    ) -> impl Future<Output = Result<Vec<Self::Handle>, SetupError>>;
}

/// A member in this process.
pub trait Handle {
    /// Who it is.
    fn member(&self) -> MemberId;

    /// Its handle.
    fn election(&self) -> &Election;

    /// Ends it and all that the engine runs beside it.
    fn shutdown(&self) -> impl Future<Output = ()>;
}

/// More than any future of the handle waits: dropped at each of these polls, it was dropped everywhere.
const POLLS: usize = 4;

/// How long a future that waits for something else is let wait before it is dropped.
const WAIT: Duration = Duration::from_millis(10);

/// Whatever must happen, happens within this.
const PATIENCE: Duration = Duration::from_secs(120);

/// Cycles after which a leak of one a cycle could not be overlooked.
const CYCLES: usize = 100;

/// If more is held after the first round than before it, the second tells why.
const ROUNDS: u32 = 2;

const SIZE: u32 = 3;

/// Tries every claim whose name is wanted, and tells of each as soon as it is known. Makes a runtime, so it
/// must not be called within one.
pub fn run(
    handles: &impl Handles,
    wanted: impl Fn(&str) -> bool,
    mut tell: impl FnMut(&CheckOutcome),
) -> Vec<CheckOutcome> {
    let mut outcomes = Vec::new();
    macro_rules! claim {
        ($name:literal, $show:expr) => {
            if wanted($name) {
                let began = Instant::now();
                let verdict = on_a_group(handles, $show)
                    .map_or_else(CheckVerdict::Fails, CheckVerdict::Holds);
                let outcome = CheckOutcome { claim: $name, verdict, took: began.elapsed() };
                tell(&outcome);
                outcomes.push(outcome);
            }
        };
    }
    claim!("any future may be dropped wherever it waits", dropped_anywhere);
    claim!("dropped futures leave no task and no descriptor", nothing_left);
    claim!("a handle that was shut down answers every call", after_shutdown);
    outcomes
}

/// Members in this process, and what their engine can do.
struct Members<H> {
    all: Vec<H>,
    knows_leader: bool,
    transfers: bool,
}

/// Shows a claim on a group on a runtime of its own, and ends both.
fn on_a_group<H: Handles>(
    handles: &H,
    show: impl AsyncFnOnce(&Members<H::Handle>) -> Result<String, CheckFailure>,
) -> Result<String, CheckFailure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        CheckFailure::Otherwise(format!("could not {what}: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| failed("start a runtime", &error))?;
    let directory =
        tempfile::tempdir().map_err(|error| failed("make a private directory", &error))?;
    runtime.block_on(async {
        let group = handles.start(SIZE, directory.path()).await;
        let group = Members {
            all: group.map_err(|error| failed("start a group", &error))?,
            knows_leader: handles.lacks(Ability::KnowTheLeader).is_none(),
            transfers: handles.lacks(Ability::Transfer).is_none(),
        };
        let shown = show(&group).await;
        for member in &group.all {
            member.shutdown().await;
        }
        shown
    })
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), CheckFailure> {
    if holds { Ok(()) } else { Err(CheckFailure::Otherwise(otherwise())) }
}

/// Polls a future so many times and drops it; its output if it came to an end before.
async fn abandon<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    let polled = poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    });
    timeout(WAIT, polled).await.ok().flatten()
}

/// Waits until one leads and all others follow it in the same term: its place, and the term.
async fn settled<H: Handle>(group: &Members<H>) -> Result<(usize, Term), CheckFailure> {
    let found = async {
        loop {
            if let Some(found) = leader(group) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let late =
        |_| CheckFailure::Otherwise(format!("not within {PATIENCE:?}: one leads and all follow"));
    timeout(PATIENCE, found).await.map_err(late)
}

fn leader<H: Handle>(group: &Members<H>) -> Option<(usize, Term)> {
    let states: Vec<_> =
        group.all.iter().map(|member| member.election().state().borrow().clone()).collect();
    let leads = |state: &ElectionState| state.mandate().is_some_and(|mandate| mandate.check());
    let place = states.iter().position(leads)?;
    let term = states[place].mandate()?.term();
    let agrees = |(at, state): (usize, &ElectionState)| match state {
        ElectionState::Following { leader, term: known, .. } => {
            *leader == group.all[place].member() && *known == term
        }
        ElectionState::Electing => at != place && !group.knows_leader,
        _ => at == place,
    };
    states.iter().enumerate().all(agrees).then_some((place, term))
}

/// Every call of the handle, dropped after so many polls.
async fn drop_each(election: &Election, other: MemberId, polls: usize) {
    let state = election.state().borrow().clone();
    abandon(election.status(), polls).await;
    abandon(election.led(), polls).await;
    if let Some(mandate) = state.mandate() {
        abandon(election.lost(mandate), polls).await;
    }
    abandon(election.transfer(MemberId::new(99)), polls).await;
    abandon(election.lead(async |_| std::future::pending::<()>().await), polls).await;
    abandon(election.lead(async |_| tokio::task::yield_now().await), polls).await;
    abandon(election.resign(), polls).await;
    abandon(election.transfer(other), polls).await;
}

async fn dropped_anywhere<H: Handle>(group: &Members<H>) -> Result<String, CheckFailure> {
    let (_, first) = settled(group).await?;
    let mut dropped = 0;
    for polls in 0..=POLLS {
        for place in 0..group.all.len() {
            let other = group.all[(place + 1) % group.all.len()].member();
            // As a leader, if that is where leadership is, and as a follower.
            drop_each(group.all[place].election(), other, polls).await;
            dropped += 8;
        }
        settled(group).await?;
    }
    for place in 0..group.all.len() {
        let led = timeout(PATIENCE, leads_again(group, place)).await;
        let late =
            |_| CheckFailure::Otherwise(format!("{} cannot lead", group.all[place].member()));
        led.map_err(late)??;
    }
    let (_, last) = settled(group).await?;
    Ok(format!("{dropped} futures dropped; terms {first} to {last}"))
}

/// Has a member lead once more, by transfer and by work. What was dropped may still move leadership, and a
/// transfer may be refused honestly: it is tried until it succeeds. Where there is none, others resign until it is
/// this one's turn.
async fn leads_again<H: Handle>(group: &Members<H>, place: usize) -> Result<(), CheckFailure> {
    let member = &group.all[place];
    loop {
        let (leader, _) = settled(group).await?;
        if leader != place {
            let election = group.all[leader].election();
            let moves = match group.transfers {
                true => election.transfer(member.member()).await.is_ok(),
                false => {
                    election.resign().await;
                    false
                }
            };
            if !moves {
                tokio::time::sleep(WAIT).await;
                continue;
            }
        }
        let work = member.election().lead(async |mandate| mandate.check());
        if let Ok(Ok(true)) = timeout(Duration::from_secs(2), work).await {
            return Ok(());
        }
    }
}

async fn nothing_left<H: Handle>(group: &Members<H>) -> Result<String, CheckFailure> {
    let (place, _) = settled(group).await?;
    let other = group.all[(place + 1) % group.all.len()].member();
    // What is made once, and then kept, is made now: also what a member makes when it leads for the first time.
    drop_each(group.all[place].election(), other, 1).await;
    for place in 0..group.all.len() {
        let led = timeout(PATIENCE, leads_again(group, place)).await;
        led.map_err(|_| CheckFailure::Otherwise("not every member came to lead".into()))??;
    }
    settled(group).await?;
    let mut before = held()?;
    let mut rounds = 0;
    // What a member holds differs a little with who leads and who comes next; what leaks, leaks in every round.
    loop {
        let after = after_dropping(group, other, before).await?;
        rounds += 1;
        let text = format!(
            "tasks {} to {}, descriptors {} to {}, over {CYCLES} cycles",
            before.0, after.0, before.1, after.1
        );
        let holds = after.0 <= before.0 && after.1 <= before.1;
        if holds || rounds == ROUNDS {
            return ensure(holds, || text.clone()).map(|()| text);
        }
        before = after;
    }
}

/// Drops futures, again and again, and waits until no more is held than before, if that comes.
async fn after_dropping<H: Handle>(
    group: &Members<H>,
    other: MemberId,
    before: (usize, usize),
) -> Result<(usize, usize), CheckFailure> {
    for cycle in 0..CYCLES {
        let election = group.all[cycle % group.all.len()].election();
        let polls = cycle % (POLLS + 1);
        abandon(election.status(), polls).await;
        abandon(election.led(), polls).await;
        abandon(election.lead(async |_| std::future::pending::<()>().await), polls).await;
        let _ = (election.state(), election.events());
        if cycle % 10 == 0 {
            drop_each(election, other, polls).await;
            settled(group).await?;
        }
    }
    settled(group).await?;
    let began = Instant::now();
    let mut after = held()?;
    while (after.0 > before.0 || after.1 > before.1) && began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(20)).await;
        after = held()?;
    }
    Ok(after)
}

/// Tasks of this runtime, and open descriptors of this process.
fn held() -> Result<(usize, usize), CheckFailure> {
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let descriptors = std::fs::read_dir("/proc/self/fd").map_err(|error| {
        CheckFailure::Otherwise(format!("could not count descriptors: {error}"))
    })?;
    Ok((tasks, descriptors.count()))
}

async fn after_shutdown<H: Handle>(group: &Members<H>) -> Result<String, CheckFailure> {
    let (place, term) = settled(group).await?;
    let member = &group.all[place];
    let election = member.election();
    let mandate = election.led().await;
    let waiting = tokio::spawn({
        let election = election.clone();
        async move { election.lead(async |_| std::future::pending::<()>().await).await }
    });
    // One that is dropped half-way, and one that is not.
    abandon(election.shutdown(), 1).await;
    let began = Instant::now();
    member.shutdown().await;
    let took = began.elapsed();
    ensure(mandate.is_ok_and(|mandate| !mandate.check()), || "its mandate still holds".into())?;
    let ended = timeout(PATIENCE, waiting).await;
    ensure(matches!(ended, Ok(Ok(Err(_)))), || format!("`lead` went on: {ended:?}"))?;
    let calls = async {
        election.resign().await;
        let transferred = election.transfer(MemberId::new(1)).await;
        (election.status().await.is_none(), election.led().await.err(), transferred)
    };
    let answers = timeout(PATIENCE, calls).await;
    let expected = (true, Some(LeadError::Stopped), Err(NoTransfer::NotLeading));
    ensure(answers.as_ref() == Ok(&expected), || format!("it answers {answers:?}"))?;
    let others: Vec<_> =
        group.all.iter().filter(|other| other.member() != member.member()).collect();
    let took_over = async {
        while !others.iter().any(|other| {
            let state = other.election().state().borrow().clone();
            state.mandate().is_some_and(|mandate| mandate.check() && mandate.term() > term)
        }) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let late = |_| CheckFailure::Otherwise("nobody took over".into());
    timeout(PATIENCE, took_over).await.map_err(late)?;
    Ok(format!("it ended within {took:.1?}"))
}
