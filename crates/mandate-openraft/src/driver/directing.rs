//! The driver's loop: at the holder of the mandate it directs, at the others it watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mandate_proto::election::quorum;
use mandate_proto::identity::MemberId;
use mandate_runtime::{Election, ElectionState, Mandate, Observer, Resigner};
use openraft::RaftTypeConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::orders::{Answer, Messenger, Order, Request};
use super::{DriverStatus, Ended, Shared};
use crate::direction::{Direction, Report, Situation, Step};

/// Once a quorum has answered, how much longer the others are waited for: at least this, and as long as the quorum
/// took. A member that is dead would otherwise hold up the election that its death has called for.
const GRACE: Duration = Duration::from_millis(5);

/// Between two mandates that a member without a Raft gives back: where nobody else can lead, it is elected again and again.
const WITHDRAWS: Duration = Duration::from_secs(1);

pub(super) struct Directing<C: RaftTypeConfig, M> {
    shared: Arc<Shared<C>>,
    /// Not the handle itself: a driver must not keep an election going that the service has let go.
    observer: Observer,
    resigner: Resigner,
    messenger: M,
}

impl<C: RaftTypeConfig, M: Messenger> Directing<C, M> {
    pub(super) fn new(shared: Arc<Shared<C>>, election: &Election, messenger: M) -> Self {
        let (observer, resigner) = (election.observer(), election.resigner());
        Directing { shared, observer, resigner, messenger }
    }

    pub(super) async fn run(self) {
        let _end = AtTheEnd(self.shared.clone());
        let ended = self.drive().await;
        self.tell(|status| (status.directs, status.ended) = (None, Some(ended)));
        if ended == Ended::Raft {
            let reason = self.shared.node.failure().unwrap_or_else(|| "it does not say why".into());
            tracing::error!(
                %reason,
                "Raft has ended: the mandate is given back, and so is every later one. Mend the reason and start this \
                 member again"
            );
            self.withdraw().await;
        }
    }

    /// Drives, until there is nothing to drive any more or nobody to drive for.
    async fn drive(&self) -> Ended {
        let raft = &self.shared.node.raft;
        let mut state = self.observer.state();
        let mut metrics = raft.server_metrics();
        let mut direction = None;
        loop {
            self.obey_watchdog();
            metrics.borrow_and_update();
            let (mandate, stopped) = standing(&mut state);
            if stopped {
                return Ended::Election;
            }
            if self.shared.node.failure().is_some() {
                return Ended::Raft;
            }
            let pause = match mandate {
                Some(mandate) => self.round(&mandate, &mut direction).await,
                None => {
                    direction = None;
                    self.tell(|status| status.directs = None);
                    self.shared.config.patience / 4
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                changed = state.changed() => if changed.is_err() { return Ended::Election },
                changed = metrics.changed() => if changed.is_err() { return Ended::Raft },
            }
        }
    }

    /// Gives back the mandate, and each that comes after it, until the election ends.
    async fn withdraw(&self) {
        let mut state = self.observer.state();
        loop {
            let (mandate, stopped) = standing(&mut state);
            if stopped {
                return;
            }
            if let Some(mandate) = mandate {
                self.resigner.give_back(&mandate).await;
                sleep(WITHDRAWS).await;
            } else if state.changed().await.is_err() {
                return;
            }
        }
    }

    /// Lets Raft's own timeouts elect, or not.
    fn obey_watchdog(&self) {
        let own = self.shared.watchdog().own_elections(self.shared.clock.now());
        let before = self.shared.status.borrow().own_elections;
        if own != before {
            tracing::info!(own, "Raft's own timeouts elect");
        }
        self.shared.node.raft.runtime_config().elect(own);
        self.tell(|status| status.own_elections = own);
    }

    fn tell(&self, change: impl FnOnce(&mut DriverStatus)) {
        self.shared.status.send_if_modified(|status| {
            let before = *status;
            change(status);
            before != *status
        });
    }

    /// Looks how things are, and does what is to be done next. Returns how long there is nothing more to do.
    async fn round(
        &self,
        mandate: &Mandate,
        direction: &mut Option<(u64, Direction, bool)>,
    ) -> Duration {
        let config = &self.shared.config;
        let term = mandate.term().get();
        if direction.as_ref().is_none_or(|(known, ..)| *known != term) {
            *direction = Some((term, Direction::new(config.pace()), false));
        }
        let Some((_, direction, led)) = direction else { return Duration::ZERO };
        *led |= self.shared.node.report().leads.is_some();
        let situation = self.look(term, *led).await;
        *led = situation.leader().is_some();
        if *led {
            self.shared.led();
        }
        if !mandate.check() {
            return Duration::ZERO;
        }
        let step = direction.decide(&situation, self.shared.clock.now());
        tracing::debug!(?step, ?situation, "directs");
        self.tell(|status| status.directs = Some(step));
        match step {
            Step::Settled => config.patience / 3,
            Step::Wait | Step::CatchUp { .. } => config.look_every,
            Step::Elect(who) => {
                self.elect(term, who).await;
                Duration::ZERO
            }
            Step::Move { from } => {
                let request = Request { term, order: Order::StandAside { to: situation.me } };
                let answer = timeout(config.hold, self.messenger.ask(from, request)).await;
                let stood_aside = matches!(answer, Ok(Ok(Answer::Done)));
                direction.moved(stood_aside, self.shared.clock.now());
                if !stood_aside {
                    tracing::info!(%from, ?answer, "the leader did not stand aside");
                } else if self.elect(term, situation.me).await {
                    self.tell(|status| status.moves += 1);
                }
                Duration::ZERO
            }
        }
    }

    /// Asks everyone how far they are.
    async fn look(&self, term: u64, led: bool) -> Situation {
        let node = &self.shared.node;
        let answers = self.gather(node.others().collect(), term, Order::Report { led }).await;
        let mut reports: BTreeMap<MemberId, Report> = BTreeMap::new();
        for (member, answer) in answers {
            if let Answer::Report(report) = answer {
                reports.insert(member, report);
            }
        }
        reports.insert(node.me, node.report());
        let ranking = match self.observer.records().first() {
            Some(record) if record.leader == node.me => {
                record.ranking.candidates.iter().map(|candidate| candidate.id).collect()
            }
            _ => Vec::new(),
        };
        Situation { me: node.me, voters: node.voters().collect(), ranking, reports }
    }

    /// Has a member elected: whether it leads when this returns.
    async fn elect(&self, term: u64, who: MemberId) -> bool {
        let node = &self.shared.node;
        let voters = node.voters().filter(|id| *id != who && *id != node.me).collect();
        self.gather(voters, term, Order::Release { to: who }).await;
        let ordered = if who == node.me {
            node.elect().await.is_ok()
        } else {
            let request = Request { term, order: Order::Elect };
            let asked = self.messenger.ask(who, request);
            node.release(who).await.is_ok()
                && matches!(
                    timeout(self.shared.config.answer_within, asked).await,
                    Ok(Ok(Answer::Done))
                )
        };
        let within = self.shared.config.elect_within;
        ordered && self.shared.wait_for(within, || node.leader() == Some(who)).await
    }

    /// Asks several at once, and waits for a quorum of all members, itself included, and a little for the others.
    async fn gather(
        &self,
        whom: Vec<MemberId>,
        term: u64,
        order: Order,
    ) -> BTreeMap<MemberId, Answer> {
        let within = self.shared.config.answer_within;
        let began = Instant::now();
        let mut until = began + within;
        let enough = quorum(self.shared.node.others().count() + 1).saturating_sub(1);
        let ask = |member| async move {
            let asked = self.messenger.ask(member, Request { term, order });
            (member, timeout(within, asked).await)
        };
        let mut asked: FuturesUnordered<_> = whom.into_iter().map(ask).collect();
        let mut answers = BTreeMap::new();
        loop {
            tokio::select! {
                () = sleep_until(until) => return answers,
                answered = asked.next() => match answered {
                    None => return answers,
                    Some((member, Ok(Ok(answer)))) => {
                        answers.insert(member, answer);
                        if answers.len() == enough {
                            until = until.min(Instant::now() + began.elapsed().max(GRACE));
                        }
                    }
                    Some((member, Ok(Err(error)))) => tracing::debug!(%member, %error, "no answer"),
                    Some((member, Err(_))) => tracing::debug!(%member, "no answer in time"),
                },
            }
        }
    }
}

/// The mandate, if this member holds it; and whether the election has ended.
fn standing(state: &mut watch::Receiver<ElectionState>) -> (Option<Mandate>, bool) {
    let state = state.borrow_and_update();
    let mandate = state.mandate().filter(|mandate| mandate.check()).cloned();
    (mandate, matches!(*state, ElectionState::Stopped))
}

/// Leaves Raft to itself and says that it does, however the driver ends.
struct AtTheEnd<C: RaftTypeConfig>(Arc<Shared<C>>);

impl<C: RaftTypeConfig> Drop for AtTheEnd<C> {
    fn drop(&mut self) {
        self.0.node.raft.runtime_config().elect(true);
        self.0.status.send_modify(|status| {
            status.ended.get_or_insert(Ended::RaftDriver);
        });
    }
}
