//! The side of the member: drives an [`Election`] handle by the lines of the [`protocol`](crate::protocol).
//!
//! It acts on a thread of its own, because an act must not wait for the driver, nor a driver for an act:
//! `check()` is what the application calls wherever it is. It waits for leadership with
//! [`led`](Election::led); `lead` and `cancel` run a second future beside that, whose only purpose is to
//! be dropped.

use std::future::poll_fn;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use mandate_proto::election::Figures;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Entry, MemberChange, Membership, RosterId};
use mandate_proto::value::Value;
use mandate_runtime::{ChangeError, Election, ElectionState, Event, Mandate};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::history::now;
use crate::protocol::{ActorReport, Instruction, Seen};
use crate::register::RegisterWriter;

/// How a member behaves; see [`protocol`](crate::protocol) for how it is told.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Who it is.
    pub member: MemberId,
    /// Between two acts.
    pub pace: Duration,
    /// Where to write at every act.
    pub register: Option<PathBuf>,
    /// Look at the mandate once, and then believe it and act without end.
    pub careless: bool,
}

/// How long a member that was shut down may take to see it.
const LAST_VIEW: Duration = Duration::from_secs(1);

/// Runs a member until its input ends or it is asked to end, and shuts it down. Takes standard input and
/// output for itself.
pub async fn run(
    election: Election,
    behaviour: Behaviour,
    shutdown: impl AsyncFnOnce(),
) -> std::io::Result<()> {
    die_with_parent()?;
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut orders = read_orders();
    let ends = Arc::new(AtomicBool::new(false));
    say(&ActorReport::Ready);
    let observing = tokio::spawn(observe(election.clone()));
    let member = behaviour.member;
    let acting = tokio::spawn(act(election.clone(), behaviour, ends.clone()));
    let settled = settled(&election);
    let mut actor = Actor { member, election, settled, leading: None };
    loop {
        let line = tokio::select! {
            _ = terminated.recv() => break,
            line = orders.recv() => line,
        };
        let Some(line) = line else { break };
        if let Some(report) = actor.obey(&line).await {
            say(&report);
        }
    }
    drop(actor);
    shutdown().await;
    ends.store(true, Ordering::Release);
    // The last thing that it sees is that it has stopped, unless its driver was let go of.
    let _ = timeout(LAST_VIEW, observing).await;
    acting.abort();
    say(&ActorReport::Stopped);
    Ok(())
}

/// A member that is stopped does not read that its input has ended: without this it would outlive a
/// harness that was killed.
pub fn die_with_parent() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// Orders as they come; a thread, since reading standard input blocks.
fn read_orders() -> mpsc::UnboundedReceiver<String> {
    let (orders, received) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if orders.send(line).is_err() {
                return;
            }
        }
    });
    received
}

/// Nobody to say it to is no error: then the input ends soon, too.
fn say(report: &ActorReport) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{report}").and_then(|()| out.flush());
}

/// What a member sees of who leads.
fn seen(state: &ElectionState) -> Seen {
    match state {
        ElectionState::Electing => Seen::Electing,
        ElectionState::Following { leader, term, .. } => {
            Seen::Following { leader: *leader, term: *term }
        }
        ElectionState::Leading(mandate) => Seen::Leading { term: mandate.term() },
        ElectionState::Jeopardy(mandate) => Seen::Jeopardy { term: mandate.term() },
        _ => Seen::Stopped,
    }
}

async fn observe(election: Election) {
    let mut state = election.state();
    // The handle would keep the member alive.
    drop(election);
    loop {
        let seen = seen(&state.borrow_and_update());
        say(&ActorReport::View { at: now(), seen });
        if seen == Seen::Stopped || state.changed().await.is_err() {
            return;
        }
    }
}

/// Follows which of its lists the member, as the leader, knows to be on the disks of a quorum.
fn settled(election: &Election) -> watch::Receiver<Option<RosterId>> {
    let (found, settled) = watch::channel(None);
    let mut events = election.events();
    tokio::spawn(async move {
        loop {
            match events.recv().await {
                Ok(Event::RosterSettled(roster)) => _ = found.send(Some(roster)),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    });
    settled
}

async fn act(election: Election, behaviour: Behaviour, ends: Arc<AtomicBool>) {
    let register = behaviour.register.as_deref().map(RegisterWriter::connect);
    let mut register = register.and_then(|connected| {
        connected.inspect_err(|error| eprintln!("no register: {error}")).ok()
    });
    while let Ok(mandate) = election.led().await {
        let (behaviour, ends) = (behaviour.clone(), ends.clone());
        let acted = tokio::task::spawn_blocking(move || {
            act_while_it_holds(&mandate, &behaviour, &mut register, &ends);
            register
        });
        match acted.await {
            Ok(writer) => register = writer,
            Err(_) => return,
        }
    }
}

fn act_while_it_holds(
    mandate: &Mandate,
    behaviour: &Behaviour,
    register: &mut Option<RegisterWriter>,
    ends: &AtomicBool,
) {
    let term = mandate.term();
    let mut looked = false;
    while !ends.load(Ordering::Acquire) {
        let at = now();
        let trusts = behaviour.careless && looked;
        if !trusts && !mandate.check() {
            return;
        }
        looked = true;
        say(&ActorReport::Act { term, at });
        match register.as_mut().map(|register| register.write(behaviour.member, term)) {
            Some(Ok(Err(highest))) => {
                let held = behaviour.careless || mandate.check();
                say(&ActorReport::Refused { term, highest, held });
            }
            // The harness has ended, and so will this.
            Some(Err(_)) => *register = None,
            Some(Ok(Ok(()))) | None => {}
        }
        std::thread::sleep(behaviour.pace);
    }
}

struct Actor {
    member: MemberId,
    election: Election,
    /// The last list that this member, as the leader, knew a quorum to have on disk.
    settled: watch::Receiver<Option<RosterId>>,
    /// What `lead` has begun.
    leading: Option<JoinHandle<()>>,
}

impl Actor {
    /// Carries out a line; `None` for a line without a number, which cannot be answered, and for one whose answer comes later.
    async fn obey(&mut self, line: &str) -> Option<ActorReport> {
        let (number, order) = line.split_once(' ')?;
        let number = number.parse().ok()?;
        let answer = match order.parse() {
            Ok(Instruction::Change(change)) => {
                self.change(number, change).await;
                return None;
            }
            Ok(order) => self.carry_out(order).await,
            Err(error) => Err(format!("{error}")),
        };
        Some(ActorReport::Done { number, answer })
    }

    async fn carry_out(&mut self, order: Instruction) -> Result<String, String> {
        match order {
            Instruction::Resign => self.election.resign().await,
            Instruction::Transfer(to) => {
                self.election.transfer(to).await.map_err(|reason| reason.to_string())?;
            }
            Instruction::Lead => self.lead(),
            Instruction::Cancel => self.cancel().await?,
            Instruction::Figures { history, requests } => {
                let history = Some(history);
                self.election.set_figures(Figures { history, requests, ..Figures::default() });
            }
            Instruction::Publish(value) => {
                let value = Value::new(&value).map_err(|error| error.to_string())?;
                self.election.publish(value).await.map_err(|reason| reason.to_string())?;
            }
            Instruction::Value => return Ok(self.value()),
            Instruction::Status => return self.status().await,
            Instruction::Stall(ms) => stall(Duration::from_millis(ms)),
            Instruction::Members => return self.members(),
            Instruction::Change(_) => return Err("it is carried out on its own".into()),
        }
        Ok(String::new())
    }

    /// Asks for a change, and does not wait until it is settled or refused: that may take as long as it takes a quorum to answer.
    async fn change(&self, number: u64, change: MemberChange) {
        let mut changing = Box::pin(change_members(self.election.clone(), number, change));
        // It is asked for at once, so that of two the first comes first.
        if poll_fn(|context| Poll::Ready(changing.as_mut().poll(context))).await.is_pending() {
            tokio::spawn(changing);
        }
    }

    fn lead(&mut self) {
        let election = self.election.clone();
        let leading = tokio::spawn(async move {
            let work = async |mandate: Mandate| {
                say(&ActorReport::Working { term: mandate.term() });
                std::future::pending::<()>().await
            };
            let _ = election.lead(work).await;
        });
        if let Some(earlier) = self.leading.replace(leading) {
            earlier.abort();
        }
    }

    async fn cancel(&mut self) -> Result<(), String> {
        let leading = self.leading.take().ok_or("nothing was begun")?;
        leading.abort();
        // When this returns, the future has been dropped.
        let _ = leading.await;
        Ok(())
    }

    /// Leader, term and value, if a value is shown.
    fn value(&self) -> String {
        let state = self.election.state().borrow().clone();
        let Some(value) = state.value() else { return String::new() };
        match seen(&state).leader(self.member) {
            Some((leader, term)) => format!("{leader} {term} {value}"),
            None => String::new(),
        }
    }

    /// The number of the list that it goes by, whether it has settled that itself, and who is on it.
    fn members(&self) -> Result<String, String> {
        let roster = self.election.members().borrow().clone();
        let roster = roster.ok_or("its engine keeps no list of members")?;
        let is_settled = *self.settled.borrow() == Some(roster.id());
        let mut text = format!("{} {}", roster.id(), if is_settled { "settled" } else { "open" });
        for entry in roster.entries() {
            text += &format!(" {}", word(entry));
        }
        Ok(text)
    }

    async fn status(&self) -> Result<String, String> {
        let status = self.election.status().await.ok_or("the member does not answer")?;
        let mut text = format!("{} suspects", seen(&status.state));
        for member in status.suspected.unwrap_or_default() {
            text += &format!(" {member}");
        }
        Ok(text)
    }
}

/// A line of the list of members.
fn word(entry: &Entry) -> String {
    let part = match entry.part {
        Membership::Voter { .. } => "voter",
        Membership::Learner { .. } => "learner",
        Membership::Observer => "observer",
    };
    let replaces = entry.replaces().map(|old| format!(">{old}")).unwrap_or_default();
    format!("{}:{part}{replaces}", entry.id)
}

/// Changes the members and tells what came of it.
async fn change_members(election: Election, number: u64, change: MemberChange) {
    let answer = match election.change_members(change).await {
        Ok(roster) => Ok(roster.id().to_string()),
        Err(error @ ChangeError::Refused(_)) => Err(format!("refused: {error}")),
        Err(error) => Err(format!("unknown: {error}")),
    };
    say(&ActorReport::Done { number, answer });
}

/// Keeps every worker of the runtime busy, and with them the engine's driver. Its own threads run on, such as those
/// by which a client tells its broker that it is alive; so does the thread that acts.
fn stall(length: Duration) {
    for _ in 0..tokio::runtime::Handle::current().metrics().num_workers() {
        tokio::spawn(async move { std::thread::sleep(length) });
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(leading) = self.leading.take() {
            leading.abort();
        }
    }
}
