//! The loop of a sidecar: look at the own server, tell the election, and move the system's leader if that is due.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mandate_proto::election::Figures;
use mandate_proto::score::Score;
use mandate_proto::time::Instant;
use mandate_runtime::Election;
use mandate_runtime::clock::Clock;
use tokio::time::{MissedTickBehavior, interval};

use crate::judgement::{
    IdleReason, Judge, Resignations, ServerReading, Sight, SteerDecision, SteerSettings, unwell,
};
use crate::rate::Rate;
use crate::system::{Position, ServerId, SteeredServer, System, SystemError, Wishes};

/// Rates are taken over this.
const WINDOW: Duration = Duration::from_secs(10);

/// How long a member may take to answer. One that is stopped never does.
const ANSWER: Duration = Duration::from_millis(800);

/// How long a move may take: 1.5 round trips and a commit; beyond an election timeout it has failed.
const MOVE: Duration = Duration::from_secs(3);

/// A member that has been unwell for so many looks gives the sidecars' leadership back.
const GIVES_UP_AFTER: u32 = 2;

/// How often the cluster is listed while all is well.
const LIST: Duration = Duration::from_secs(30);

/// What a sidecar reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum SteeringReport {
    /// Its server answers, and could lead.
    Well,
    /// Its server could not lead, and why.
    Unwell(String),
    /// Leadership was moved.
    Moved {
        /// The leader before.
        from: ServerId,
        /// The leader now.
        to: ServerId,
        /// From the request to its answer.
        took: Duration,
    },
    /// Shadow mode: the move that would have been made.
    WouldMove {
        /// The present leader.
        from: ServerId,
        /// The better one.
        to: ServerId,
    },
    /// A move failed, or its outcome is not known.
    Failed {
        /// The leader that was asked.
        from: ServerId,
        /// What happened.
        error: SystemError,
    },
    /// It is elected, and moves nothing for this reason.
    Stays(IdleReason),
    /// It lacks rights that it will need; which, and what to do.
    MissingRights(String),
    /// What operators want could not be read: nothing is held or drained.
    NoWishes(SystemError),
}

impl fmt::Display for SteeringReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteeringReport::Well => f.write_str("the own member is well"),
            SteeringReport::Unwell(why) => write!(f, "the own member cannot lead: {why}"),
            SteeringReport::Moved { from, to, took } => {
                write!(f, "leadership was MOVED from {from} to {to} in {:.0} ms", ms(*took))
            }
            SteeringReport::WouldMove { from, to } => write!(
                f,
                "leadership would be moved from {from} to {to} (shadow mode: nothing is done)"
            ),
            SteeringReport::Failed { from, error } => {
                write!(f, "leadership could not be moved from {from}: {error}")
            }
            SteeringReport::MissingRights(missing) => f.write_str(missing),
            SteeringReport::NoWishes(error) => {
                write!(f, "cannot read whether an operator holds or drains anything: {error}")
            }
            SteeringReport::Stays(reason) => write!(f, "{reason}"),
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// How a sidecar steers.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Between two looks.
    pub every: Duration,
    /// When moves are made.
    pub settings: SteerSettings,
    /// Only tell what would be done.
    pub shadow: bool,
}

/// What a sidecar knows.
struct Sidecar<T> {
    system: Arc<dyn System>,
    steering: Steering,
    election: Election,
    clock: Clock,
    tell: T,
    judge: Judge,
    requests: Rate,
    own: Option<ServerReading>,
    /// Since when it holds the sidecars' mandate.
    elected: Option<Instant>,
    unwell: u32,
    was_well: Option<bool>,
    resignations: Resignations,
    wishes: Wishes,
    /// Whether the last look for wishes failed.
    is_without_wishes: bool,
    /// Whether it was looked what the user may do.
    knows_rights: bool,
    /// The system's servers, when they were listed last.
    servers: Vec<SteeredServer>,
    listed: Option<Instant>,
    /// What was told last, so that it is not told again.
    reason: Option<IdleReason>,
}

impl Steering {
    /// Steers a system until the election ends. `tell` is called with what happens.
    pub async fn run(
        self,
        system: impl System,
        election: Election,
        tell: impl FnMut(SteeringReport),
    ) {
        let (judge, every) = (Judge::new(self.settings), self.every);
        let mut sidecar = Sidecar {
            system: Arc::new(system),
            steering: self,
            election,
            clock: Clock::start(),
            tell,
            judge,
            requests: Rate::over(WINDOW),
            own: None,
            elected: None,
            unwell: 0,
            was_well: None,
            resignations: Resignations::default(),
            wishes: Wishes::default(),
            is_without_wishes: false,
            knows_rights: false,
            servers: Vec::new(),
            listed: None,
            reason: None,
        };
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = sidecar.election.state();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // Who is elected now need not wait for the next look.
                changed = state.changed() => if changed.is_err() { return },
            }
            if matches!(*state.borrow_and_update(), mandate_runtime::ElectionState::Stopped) {
                return;
            }
            sidecar.look().await;
            sidecar.steer().await;
        }
    }
}

impl<T: FnMut(SteeringReport)> Sidecar<T> {
    /// Asks the own member how it is, and tells the election.
    async fn look(&mut self) {
        let asked = self.clock.now();
        let seen = self.ask(|system| {
            Ok((system.own(ANSWER)?, system.requests(ANSWER)?, system.wishes(ANSWER)))
        });
        let trouble = match seen.await {
            Ok((position, count, wishes)) => {
                self.requests.saw(self.clock.now(), count);
                self.heed(wishes);
                let drained = self.wishes.drained.contains(&position.server);
                let trouble = unwell(&position).or(drained.then_some(IdleReason::Drained));
                self.own = Some(ServerReading { asked, position });
                self.check_rights().await;
                trouble.map(|reason| reason.to_string())
            }
            Err(error) => {
                self.own = None;
                Some(error.to_string())
            }
        };
        if trouble.is_none() {
            self.resignations.well(self.clock.now());
            self.list().await;
        }
        let position = self.own.as_ref().map(|seen| &seen.position);
        self.election.set_figures(Figures {
            history: position.map(|position| position.index),
            requests: self.requests.per_second(),
            application: Score::new(&[if trouble.is_none() { 1.0 } else { 0.0 }]).ok(),
        });
        self.unwell = if trouble.is_some() { self.unwell.saturating_add(1) } else { 0 };
        let is_well = trouble.is_none();
        if self.was_well != Some(is_well) {
            self.was_well = Some(is_well);
            (self.tell)(trouble.map_or(SteeringReport::Well, SteeringReport::Unwell));
        }
    }

    /// Takes note of what operators want. If that cannot be read, what they wanted last counts on while the server answers.
    fn heed(&mut self, wishes: Result<Wishes, SystemError>) {
        let failed = wishes.is_err();
        match wishes {
            Ok(wishes) => self.wishes = wishes,
            Err(error) if !self.is_without_wishes => (self.tell)(SteeringReport::NoWishes(error)),
            Err(_) => {}
        }
        self.is_without_wishes = failed;
    }

    /// Looks once whether it may do what it will have to, rather than find out when it matters.
    async fn check_rights(&mut self) {
        if self.knows_rights {
            return;
        }
        match self.ask(|system| system.missing_rights(ANSWER)).await {
            Ok(missing) => {
                self.knows_rights = true;
                missing.into_iter().map(SteeringReport::MissingRights).for_each(&mut self.tell);
            }
            Err(error) => tracing::debug!(%error, "cannot read the rights of the sidecar's user"),
        }
    }

    /// Lists the servers now and then, to know them when the own one does not answer.
    async fn list(&mut self) {
        let now = self.clock.now();
        if self.listed.is_some_and(|listed| now - listed < LIST) {
            return;
        }
        match self.ask(|system| system.servers(ANSWER)).await {
            Ok(servers) => (self.servers, self.listed) = (servers, Some(now)),
            Err(error) => tracing::debug!(%error, "cannot list the servers"),
        }
    }

    /// Whether another server could lead: it answers, votes, is well and is not drained. If the servers are not known, perhaps.
    async fn another_is_well(&mut self) -> bool {
        if self.servers.is_empty() {
            self.list().await;
        }
        let own = self.own.as_ref().map(|seen| seen.position.server.clone());
        let is_other = |server: &&SteeredServer| {
            Some(&server.id) != own.as_ref() && server.address != self.system.own_address()
        };
        let others: Vec<_> = self.servers.iter().filter(is_other).cloned().collect();
        if others.is_empty() {
            return self.servers.is_empty();
        }
        let wishes = self.wishes.clone();
        let is_well = move |system: &dyn System, server: &SteeredServer| {
            let position = system.position(server, ANSWER);
            position.is_ok_and(|it| unwell(&it).is_none() && !wishes.drained.contains(&it.server))
        };
        let any = move |system: &dyn System| Ok(others.iter().any(|it| is_well(system, it)));
        self.ask(any).await.unwrap_or(true)
    }

    /// Gives the sidecars' leadership back, if that can change anything.
    async fn resign(&mut self) {
        let now = self.clock.now();
        if !self.resignations.may(now) {
            return;
        }
        if !self.another_is_well().await {
            self.stay(IdleReason::NobodyWell);
            return;
        }
        self.resignations.made(now);
        self.election.resign().await;
    }

    async fn steer(&mut self) {
        let now = self.clock.now();
        let mandate = self.election.state().borrow().mandate().cloned();
        match mandate {
            Some(mandate) if mandate.check() => self.elected = self.elected.or(Some(now)),
            _ => self.elected = None,
        }
        if self.elected.is_some() && self.unwell >= GIVES_UP_AFTER {
            self.resign().await;
            return;
        }
        let own = self.own.as_ref().map(|seen| seen.position.clone());
        let leader = match (self.elected, own) {
            (Some(_), Some(own)) => self.leader(&own).await,
            _ => None,
        };
        let sight = Sight {
            now: self.clock.now(),
            elected: self.elected,
            own: self.own.clone(),
            leader,
            wishes: self.wishes.clone(),
        };
        match self.judge.judge(&sight) {
            SteerDecision::Move { from, to } => self.move_leader(from, to).await,
            SteerDecision::Stay(reason) => self.stay(reason),
        }
    }

    /// Asks the system's leader how it is, if that is another.
    async fn leader(&mut self, own: &Position) -> Option<ServerReading> {
        let leader = own.leader.as_ref().filter(|leader| **leader != own.server)?;
        let server = self.find(leader).await?;
        let asked = self.clock.now();
        match self.ask(move |system| system.position(&server, ANSWER)).await {
            Ok(position) => Some(ServerReading { asked, position }),
            Err(error) => {
                tracing::debug!(%error, "the leader does not answer");
                // It may have moved to another address.
                self.listed = None;
                None
            }
        }
    }

    /// Where a server is.
    async fn find(&mut self, id: &ServerId) -> Option<SteeredServer> {
        let known =
            |servers: &[SteeredServer]| servers.iter().find(|server| server.id == *id).cloned();
        if self.listed.is_none() || known(&self.servers).is_none() {
            self.listed = None;
            self.list().await;
        }
        known(&self.servers)
    }

    async fn move_leader(&mut self, from: ServerId, to: ServerId) {
        self.reason = None;
        if self.steering.shadow {
            self.judge.tried(self.clock.now(), true);
            (self.tell)(SteeringReport::WouldMove { from, to });
            return;
        }
        let Some(leader) = self.find(&from).await else { return };
        let (began, target) = (self.clock.now(), to.clone());
        let moved = self.ask(move |system| system.move_leader(&leader, &target, MOVE)).await;
        let ended = self.clock.now();
        self.judge.tried(ended, moved.is_ok());
        (self.tell)(match moved {
            Ok(()) => SteeringReport::Moved { from, to, took: ended - began },
            Err(error) => SteeringReport::Failed { from, error },
        });
    }

    fn stay(&mut self, reason: IdleReason) {
        // What the election itself tells, and what passes by itself.
        let is_news = match reason {
            IdleReason::NotElected | IdleReason::TooSoon | IdleReason::Unsettled => false,
            IdleReason::Behind { .. } => !matches!(self.reason, Some(IdleReason::Behind { .. })),
            _ => self.reason.as_ref() != Some(&reason),
        };
        if is_news {
            self.reason = Some(reason.clone());
            (self.tell)(SteeringReport::Stays(reason));
        }
    }

    /// Asks the system, where calls may block.
    fn ask<A, Q>(&self, question: Q) -> impl Future<Output = Result<A, SystemError>> + use<A, Q, T>
    where
        A: Send + 'static,
        Q: FnOnce(&dyn System) -> Result<A, SystemError> + Send + 'static,
    {
        let system = self.system.clone();
        let asked = tokio::task::spawn_blocking(move || question(&*system));
        async move {
            match asked.await {
                Ok(answer) => answer,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends, and this with it.
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }
}
