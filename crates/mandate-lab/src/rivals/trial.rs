//! What is done to the leader of an election, again and again, and what is measured.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, Instant};

use mandate_conformance::history::now;
use rustix::process::Signal;

use super::environment::{FieldError, RivalAct, RivalEnvironment};
use super::figures::{IdleCost, Measured, RivalFigures, Seen};
use super::member_links::MemberLinks;

/// How long a leader is left in peace before the next fault, so that everyone has seen it lead.
const PEACE: Duration = Duration::from_millis(700);

/// A leader that has not acted for so long is not acting.
const SILENCE: Duration = Duration::from_millis(100);

/// How long a deposed leader stays stopped or cut off after its successor's first act, and is watched
/// afterwards.
const WATCHED: Duration = Duration::from_millis(500);

/// More single processes than faults: some may lose their places.
const SPARE: u64 = 2;

/// What an election stands on.
pub trait RivalSystem {
    /// Where its server listens on loopback, if it can be put behind a relay.
    fn port(&self) -> Option<u16>;

    /// A process with these members ([`members`](super::members)), which find the server behind the relay at this port,
    /// if there is one.
    fn members(&self, members: Range<u64>, port: Option<u16>) -> Command;

    /// What the server has used of the processors up to now, where that can be seen.
    fn cpu_time(&self) -> Option<Duration>;

    /// Transactions up to now, where they are counted.
    fn transactions(&self) -> Option<u64>;

    /// Has the server end the leader's session, as it does with one that it takes for dead.
    fn give_leader_up(&self) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RivalFault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and later SIGCONT.
    Pause,
    /// Its connection goes silent. Nobody is told.
    Cut,
    /// Its connection goes silent, and the server gives its session up.
    GivenUp,
    /// It is asked to hand over.
    Handover,
}

/// What is done.
#[derive(Clone, Copy, Debug)]
pub struct TrialPlan {
    /// How many members.
    pub members: u64,
    /// What happens to the leader.
    pub cause: RivalFault,
    /// How often.
    pub faults: u32,
    /// How long the next leader is waited for.
    pub bound: Duration,
    /// For how long the election is left alone and measured, once it is stable.
    pub standing: Duration,
    /// Over how long faults are spread, evenly, so that they do not all fall at the same point of a round.
    pub spread: Duration,
}

/// Why a trial could not be held.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The processes.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// What members elect by could not be put behind a relay.
    #[error("could not set up a relay: {0}")]
    Relay(#[from] std::io::Error),
    /// It is not known where the server listens.
    #[error("the way to this server cannot be cut: use a private one")]
    NoRelay,
    /// The server would not.
    #[error("the server could not be made to give the leader up: {0}")]
    GiveUp(Box<dyn Error + Send + Sync>),
}

/// Holds a trial. `tell` is called after each fault.
pub fn run(
    ground: &dyn RivalSystem,
    plan: &TrialPlan,
    mut tell: impl FnMut(),
) -> Result<RivalFigures, TrialError> {
    let mut trial = match Trial::start(ground, *plan) {
        Ok(trial) => trial,
        // An election that so many cannot even join is one that breaks there.
        Err(TrialError::Field(error @ FieldError::NotInTime { .. })) => {
            let standing = IdleCost { members: plan.members, ..IdleCost::default() };
            let stopped = Some(error.to_string());
            return Ok(Measured::default().figures(&standing, &Seen::default(), stopped));
        }
        Err(error) => return Err(error),
    };
    let standing = trial.stand();
    let mut measured = Measured::default();
    let mut stopped = None;
    for _ in 0..plan.faults {
        match trial.fault() {
            Ok(outcome) => measured.add(outcome),
            // There is no leader that could be made to fail: what was measured up to here still counts.
            Err(TrialError::Field(error @ FieldError::NotInTime { .. })) => {
                stopped = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
        tell();
    }
    let field = &trial.field;
    let seen = Seen { acts: field.counted(), evictions: field.evictions(), losses: field.losses() };
    Ok(measured.figures(&standing, &seen, stopped))
}

/// What one fault came to.
pub(super) struct Outcome {
    /// Until another acted, if one did in time.
    pub(super) took: Option<Duration>,
    /// For how long the old one acted beside the new.
    pub(super) overlap: Duration,
    /// How often.
    pub(super) stale_acts: u64,
}

struct Trial<'a> {
    // Before the cables that its members use.
    field: RivalEnvironment,
    cables: Option<MemberLinks>,
    ground: &'a dyn RivalSystem,
    plan: TrialPlan,
    next_member: u64,
    joining: Duration,
    faults: u32,
}

impl<'a> Trial<'a> {
    /// Starts the members: single ones first, so that one of them leads.
    fn start(ground: &'a dyn RivalSystem, plan: TrialPlan) -> Result<Self, TrialError> {
        let cables = match plan.cause {
            RivalFault::Cut | RivalFault::GivenUp => {
                let port = ground.port().ok_or(TrialError::NoRelay)?;
                Some(MemberLinks::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?)
            }
            RivalFault::Kill | RivalFault::Pause | RivalFault::Handover => None,
        };
        let field = RivalEnvironment::new()?;
        let joining = Duration::ZERO;
        let mut trial = Trial { field, cables, ground, plan, next_member: 1, joining, faults: 0 };
        let began = Instant::now();
        let singles = plan.members.min(u64::from(plan.faults) + 1 + SPARE);
        for _ in 0..singles {
            trial.add(1)?;
        }
        if singles < plan.members {
            trial.add(plan.members - singles)?;
        }
        trial.joining = began.elapsed();
        Ok(trial)
    }

    /// How long members may take to join.
    fn patience(&self) -> Duration {
        Duration::from_secs(30) + self.plan.bound + Duration::from_millis(20 * self.plan.members)
    }

    /// Starts a process with so many members.
    fn add(&mut self, number: u64) -> Result<(), TrialError> {
        let members = self.next_member..self.next_member + number;
        self.next_member = members.end;
        let port = match &mut self.cables {
            Some(cables) if number == 1 => Some(cables.lay(members.start)?),
            _ => None,
        };
        let command = self.ground.members(members.clone(), port);
        Ok(self.field.start(members, command, self.patience())?)
    }

    /// Waits until rounds last as long as they will, and measures what it costs to stand by.
    fn stand(&mut self) -> IdleCost {
        /// A round time that has not settled after so many periods never will.
        const PERIODS: u32 = 20;
        let mut standing = IdleCost::default();
        for period in 0..PERIODS {
            let (cpu, transactions) = (self.ground.cpu_time(), self.ground.transactions());
            let began = Instant::now();
            self.field.watch(self.plan.standing);
            let seconds = began.elapsed().as_secs_f64();
            let used = cpu.and_then(|before| Some(self.ground.cpu_time()?.saturating_sub(before)));
            let counted =
                transactions.and_then(|before| Some(self.ground.transactions()? - before));
            standing = IdleCost {
                members: self.plan.members,
                joined_in: self.joining,
                round: self.field.round().map(|(round, _)| round),
                transactions_per_s: counted.map(|counted| counted as f64 / seconds),
                cpu: used.map(|used| used.as_secs_f64() / seconds),
                evictions: self.field.evictions(),
                losses: self.field.losses(),
            };
            let settled = |(_, since): (Duration, Duration)| since >= self.plan.standing;
            // In the first, servers still count what it took to join.
            if period > 0 && self.field.round().is_none_or(settled) {
                break;
            }
        }
        standing
    }

    /// Makes the leader fail and waits for the next.
    fn fault(&mut self) -> Result<Outcome, TrialError> {
        let delay = self.delay();
        let mut leader = self.leader()?;
        self.field.watch(delay);
        if self.field.latest().is_none_or(|act| act.member != leader) {
            leader = self.leader()?;
        }
        self.field.forget_acts();
        let injected_at = self.inject(leader)?;
        let bound = self.plan.bound;
        let found =
            self.field.until("another leads", bound, |field| first(field, leader, injected_at));
        let next = match found {
            // What another process said meanwhile may be earlier.
            Ok(_) => {
                self.field.watch(Duration::from_millis(5));
                first(&self.field, leader, injected_at)
            }
            Err(FieldError::NotInTime { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        self.recover(leader)?;
        let stale =
            |act: &&RivalAct| act.member == leader && next.is_some_and(|next| act.at > next.at);
        let last = self.field.acts().iter().filter(stale).map(|act| act.at).max();
        let overlap = next.zip(last).map_or(0, |(next, last)| last - next.at);
        Ok(Outcome {
            took: next.map(|next| Duration::from_nanos(next.at - injected_at)),
            overlap: Duration::from_nanos(overlap),
            stale_acts: self.field.acts().iter().filter(stale).count() as u64,
        })
    }

    /// Waits until a member that can be made to fail has led for a while. A leader within the crowd is asked to go.
    fn leader(&mut self) -> Result<u64, TrialError> {
        let patience = self.plan.bound * 4 + PEACE;
        let (mut leader, mut since, mut asked) = (None, Instant::now(), None);
        let found = self.field.until("a single member leads", patience, |field| {
            let fresh = |act: &RivalAct| now().saturating_sub(act.at) < SILENCE.as_nanos() as u64;
            let leads = field.latest().filter(fresh).map(|act| act.member);
            if leads != leader {
                (leader, since) = (leads, Instant::now());
            }
            let leads = leads?;
            // Once it has had the time to see who could follow it.
            let may_ask = since.elapsed() >= PEACE && asked != Some((leads, since));
            if !field.is_single(leads) && may_ask {
                asked = Some((leads, since));
                return field.tell(leads, &format!("resign {leads}")).err().map(Err);
            }
            (field.is_single(leads) && since.elapsed() >= PEACE).then_some(Ok(leads))
        });
        Ok(found??)
    }

    /// How long to wait with the next fault: a sequence that fills the spread evenly, however long it is.
    fn delay(&mut self) -> Duration {
        /// The golden ratio's fractional part.
        const STEP: f64 = 0.618_033_988_749_895;
        self.faults += 1;
        self.plan.spread.mul_f64((f64::from(self.faults) * STEP).fract())
    }

    /// Injects the plan's fault into the leader; when, in nanoseconds on the clock of its acts.
    fn inject(&mut self, leader: u64) -> Result<u64, TrialError> {
        let injected_at = now();
        match self.plan.cause {
            RivalFault::Kill => self.field.kill(leader)?,
            RivalFault::Pause => self.field.signal(leader, Signal::STOP)?,
            RivalFault::Handover => self.field.tell(leader, &format!("resign {leader}"))?,
            RivalFault::Cut => self.cables.iter().for_each(|cables| cables.cut(leader)),
            RivalFault::GivenUp => {
                self.cables.iter().for_each(|cables| cables.cut(leader));
                // From here on; how long a server takes to give up is a matter of its settings.
                let injected_at = now();
                self.ground.give_leader_up().map_err(TrialError::GiveUp)?;
                return Ok(injected_at);
            }
        }
        Ok(injected_at)
    }

    /// Watches the old leader for a while, and brings it back.
    fn recover(&mut self, leader: u64) -> Result<(), TrialError> {
        match self.plan.cause {
            RivalFault::Kill => self.add(1)?,
            RivalFault::Handover => {}
            RivalFault::Pause => {
                self.field.watch(WATCHED);
                self.field.signal(leader, Signal::CONT)?;
            }
            RivalFault::Cut | RivalFault::GivenUp => {
                self.field.watch(WATCHED);
                self.cables.iter().for_each(|cables| cables.heal(leader));
            }
        }
        self.field.watch(WATCHED);
        Ok(())
    }
}

/// The first act of another.
fn first(field: &RivalEnvironment, leader: u64, since: u64) -> Option<RivalAct> {
    let others = field.acts().iter().filter(|act| act.member != leader && act.at >= since);
    others.min_by_key(|act| act.at).copied()
}
