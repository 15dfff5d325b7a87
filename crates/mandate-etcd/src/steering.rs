//! The loop of a sidecar: look at the own member, tell the election, and move etcd's leader if that is due.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mandate_proto::pole::member::Figures;
use mandate_proto::time::Instant;
use mandate_runtime::Election;
use mandate_runtime::clock::Clock;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::{Access, Endpoint, EtcdError, EtcdId, Member, Position};
use crate::figures::{Rate, writes};
use crate::judgement::{Judge, Reason, Resignations, Seen, Settings, Sight, Verdict, unwell};
use crate::wishes::Wishes;

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

/// What a sidecar tells.
#[derive(Debug)]
pub enum Told {
    /// Its member answers, and could lead.
    Well,
    /// Its member could not lead, and why.
    Unwell(String),
    /// Leadership was moved.
    Moved {
        /// From here
        from: EtcdId,
        /// to here,
        to: EtcdId,
        /// in this time.
        took: Duration,
    },
    /// It would have been, were this not for show.
    WouldMove {
        /// From here
        from: EtcdId,
        /// to here.
        to: EtcdId,
    },
    /// A move came to nothing, or nobody knows.
    Failed {
        /// From here.
        from: EtcdId,
        /// What happened.
        error: EtcdError,
    },
    /// It is elected, and moves nothing for this reason.
    Stays(Reason),
    /// The user of etcd that it acts as has no right to move leaders.
    NoRoot {
        /// The user.
        user: String,
    },
    /// Whether operators want something could not be found out: nothing is held or drained.
    NoWishes(EtcdError),
}

/// What to do about a user that may not move leaders.
const GRANT: &str =
    "etcd 3.5 and later let only users with the role root move leaders: `etcdctl user grant-role";

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Told::Well => f.write_str("etcd: the own member is well"),
            Told::Unwell(why) => write!(f, "etcd: the own member cannot lead: {why}"),
            Told::Moved { from, to, took } => {
                write!(f, "etcd: leadership was MOVED from {from} to {to} in {:.0} ms", ms(*took))
            }
            Told::WouldMove { from, to } => write!(
                f,
                "etcd: leadership would be moved from {from} to {to} (shadow mode: nothing is done)"
            ),
            Told::Failed { from, error } => {
                write!(f, "etcd: leadership could not be moved from {from}: {error}")?;
                if error.to_string().contains("permission denied") {
                    write!(f, ". {GRANT} NAME root`")?;
                }
                Ok(())
            }
            Told::NoRoot { user } => {
                write!(f, "etcd: the user {user} does not have the role root. {GRANT} {user} root`")
            }
            Told::NoWishes(error) => {
                write!(f, "etcd: cannot read whether an operator holds or drains anything: {error}")
            }
            Told::Stays(reason) => write!(f, "etcd: {reason}"),
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// How a sidecar steers.
#[derive(Clone, Debug)]
pub struct Steering {
    /// The member that it stands beside.
    pub own: Endpoint,
    /// How the other members are spoken to.
    pub access: Access,
    /// Between two looks.
    pub every: Duration,
    /// When moves are made.
    pub settings: Settings,
    /// Only tell what would be done.
    pub shadow: bool,
}

/// What a sidecar knows.
struct Sidecar<T> {
    steering: Steering,
    election: Election,
    clock: Clock,
    tell: T,
    judge: Judge,
    writes: Rate,
    own: Option<Seen>,
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
    /// The cluster, when it was listed last.
    members: Vec<Member>,
    listed: Option<Instant>,
    /// What was told last, so that it is not told again.
    reason: Option<Reason>,
    others: BTreeMap<EtcdId, Endpoint>,
}

impl Steering {
    /// Steers until the election ends. `tell` is called with what happens.
    pub async fn run(self, election: Election, tell: impl FnMut(Told)) {
        let (judge, every) = (Judge::new(self.settings), self.every);
        let mut sidecar = Sidecar {
            steering: self,
            election,
            clock: Clock::start(),
            tell,
            judge,
            writes: Rate::over(WINDOW),
            own: None,
            elected: None,
            unwell: 0,
            was_well: None,
            resignations: Resignations::default(),
            wishes: Wishes::default(),
            is_without_wishes: false,
            knows_rights: false,
            members: Vec::new(),
            listed: None,
            reason: None,
            others: BTreeMap::new(),
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

impl<T: FnMut(Told)> Sidecar<T> {
    /// Asks the own member how it is, and tells the election.
    async fn look(&mut self) {
        let (own, asked) = (self.steering.own.clone(), self.clock.now());
        let seen = blocking(move || {
            let position = own.position(ANSWER)?;
            let count = writes(&own.metrics(ANSWER)?);
            Ok((position, count, Wishes::read(&own, ANSWER)))
        });
        let trouble = match seen.await {
            Ok((position, count, wishes)) => {
                self.writes.saw(self.clock.now(), count);
                self.heed(wishes);
                let drained = self.wishes.drained.contains(&position.member);
                let trouble = unwell(&position).or(drained.then_some(Reason::Drained));
                self.own = Some(Seen { asked, position });
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
            requests: self.writes.per_second(),
            application: Some(if trouble.is_none() { 1.0 } else { 0.0 }),
        });
        self.unwell = if trouble.is_some() { self.unwell.saturating_add(1) } else { 0 };
        let is_well = trouble.is_none();
        if self.was_well != Some(is_well) {
            self.was_well = Some(is_well);
            (self.tell)(trouble.map_or(Told::Well, Told::Unwell));
        }
    }

    /// Takes note of what operators want. If that cannot be read, what they wanted last counts on while etcd answers.
    fn heed(&mut self, wishes: Result<Wishes, EtcdError>) {
        let failed = wishes.is_err();
        match wishes {
            Ok(wishes) => self.wishes = wishes,
            Err(error) if !self.is_without_wishes => (self.tell)(Told::NoWishes(error)),
            Err(_) => {}
        }
        self.is_without_wishes = failed;
    }

    /// Looks once whether its user may move leaders, rather than find out when it matters.
    async fn check_rights(&mut self) {
        let Some((user, _)) = &self.steering.access.user else { return };
        if self.knows_rights {
            return;
        }
        let (own, user) = (self.steering.own.clone(), user.clone());
        match blocking(move || own.roles(ANSWER)).await {
            Ok(roles) => {
                self.knows_rights = true;
                if !roles.unwrap_or_default().iter().any(|role| role == "root") {
                    (self.tell)(Told::NoRoot { user });
                }
            }
            Err(error) => tracing::debug!(%error, "cannot read the user's roles"),
        }
    }

    /// Lists the cluster now and then, to know it when the own member does not answer.
    async fn list(&mut self) {
        let now = self.clock.now();
        if self.listed.is_some_and(|listed| now - listed < LIST) {
            return;
        }
        let own = self.steering.own.clone();
        if let Ok(members) = blocking(move || own.members(ANSWER)).await {
            (self.members, self.listed) = (members, Some(now));
        }
    }

    /// Whether another member could lead: it answers, votes, has no alarm of its own and is not drained. If the cluster
    /// is not known, perhaps.
    async fn another_is_well(&mut self) -> bool {
        if self.members.is_empty() {
            self.list().await;
        }
        let own = self.own.as_ref().map(|seen| seen.position.member);
        let own_url = self.steering.own.url().to_owned();
        let others = self.members.iter().filter(|member| Some(member.id) != own);
        let urls = others.filter_map(|member| member.client_urls.first().cloned());
        let urls: Vec<_> = urls.filter(|url| *url != own_url).collect();
        if urls.is_empty() {
            return self.members.is_empty();
        }
        let (access, wishes) = (self.steering.access.clone(), self.wishes.clone());
        let is_well = move |url: &String| {
            let position = Endpoint::new(url, &access).and_then(|other| other.position(ANSWER));
            position.is_ok_and(|it| unwell(&it).is_none() && !wishes.drained.contains(&it.member))
        };
        blocking(move || Ok(urls.iter().any(is_well))).await.unwrap_or(true)
    }

    /// Gives the sidecars' leadership back, if that can change anything.
    async fn resign(&mut self) {
        let now = self.clock.now();
        if !self.resignations.may(now) {
            return;
        }
        if !self.another_is_well().await {
            self.stay(Reason::NobodyWell);
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
            Verdict::Move { from, to } => self.move_leader(from, to).await,
            Verdict::Stay(reason) => self.stay(reason),
        }
    }

    /// Asks etcd's leader how it is, if that is another.
    async fn leader(&mut self, own: &Position) -> Option<Seen> {
        let leader = own.leader.filter(|leader| *leader != own.member)?;
        let asked = self.clock.now();
        let endpoint = match self.others.get(&leader) {
            Some(endpoint) => endpoint.clone(),
            None => self.find(leader).await?,
        };
        match blocking(move || endpoint.position(ANSWER)).await {
            Ok(position) => Some(Seen { asked, position }),
            Err(error) => {
                tracing::debug!(%error, "etcd's leader does not answer");
                // It may have moved to another address.
                self.others.remove(&leader);
                None
            }
        }
    }

    /// Where a member is, by the own member's list.
    async fn find(&mut self, member: EtcdId) -> Option<Endpoint> {
        let own = self.steering.own.clone();
        let members = match blocking(move || own.members(ANSWER)).await {
            Ok(members) => members,
            Err(error) => {
                tracing::warn!(%error, "the members of etcd could not be listed");
                return None;
            }
        };
        let found = members.into_iter().find(|listed| listed.id == member)?;
        let url = found.client_urls.first()?;
        match Endpoint::new(url, &self.steering.access) {
            Ok(endpoint) => {
                self.others.insert(member, endpoint.clone());
                Some(endpoint)
            }
            Err(error) => {
                tracing::warn!(%error, %member, "a member of etcd cannot be asked");
                None
            }
        }
    }

    async fn move_leader(&mut self, from: EtcdId, to: EtcdId) {
        self.reason = None;
        if self.steering.shadow {
            self.judge.tried(self.clock.now(), true);
            (self.tell)(Told::WouldMove { from, to });
            return;
        }
        let Some(endpoint) = self.others.get(&from).cloned() else { return };
        let began = self.clock.now();
        let moved = blocking(move || endpoint.move_leader(to, MOVE)).await;
        let ended = self.clock.now();
        self.judge.tried(ended, moved.is_ok());
        (self.tell)(match moved {
            Ok(()) => Told::Moved { from, to, took: ended - began },
            Err(error) => Told::Failed { from, error },
        });
    }

    fn stay(&mut self, reason: Reason) {
        // What the election itself tells, and what passes by itself.
        let is_news = match reason {
            Reason::NotElected | Reason::TooSoon | Reason::Unsettled => false,
            Reason::Behind { .. } => !matches!(self.reason, Some(Reason::Behind { .. })),
            _ => self.reason.as_ref() != Some(&reason),
        };
        if is_news {
            self.reason = Some(reason.clone());
            (self.tell)(Told::Stays(reason));
        }
    }
}

/// Runs a call that blocks where it may.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, EtcdError> + Send + 'static,
) -> Result<T, EtcdError> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_) => std::future::pending().await,
        },
    }
}
