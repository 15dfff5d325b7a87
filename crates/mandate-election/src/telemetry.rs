//! A member's figures through the `metrics` facade, under the names that the daemon's `/metrics` has (feature `metrics`).
//!
//! All carry the labels `group` and `member`.
//!
//! | name | kind | what |
//! | --- | --- | --- |
//! | `mandate_is_leader` | gauge | 1 while this member holds a mandate |
//! | `mandate_term` | gauge | the term of the leader that is known, 0 without one |
//! | `mandate_lease_remaining_seconds` | gauge | how long this member's lease lasts; with leases |
//! | `mandate_roles_led` | gauge | roles that this member leads; in groups with roles |
//! | `mandate_transitions_total` | counter | changes of leader, by what this member became (label `to`) |
//! | `mandate_renewals_total` | counter | how often this member's lease was renewed |
//! | `mandate_suspicions_total` | counter | how often a member was suspected |
//! | `mandate_mistakes_total` | counter | suspicions that were taken back |

use std::time::Duration;

use mandate_proto::{neli, registers};
use mandate_runtime::{ElectionState, Event, Mandate};
use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};

use crate::member::{Member, WeakMember};

/// How often gauges are set besides: a lease runs out without an event.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps a member's figures for as long as it runs. It does not keep the member running.
pub(crate) fn follow(member: &Member) {
    let figures = Figures::new(member);
    #[cfg(feature = "ledger")]
    if let Some(kafka) = member.kafka() {
        // Of all roles, not of the first alone.
        let changes = kafka.roles().changes();
        let event = |change: mandate_ledger::Change| Event::OnLedger(change.event);
        tokio::spawn(figures.keep(member.downgrade(), changes, event));
        return;
    }
    tokio::spawn(figures.keep(member.downgrade(), member.election().events(), |event| event));
}

struct Figures {
    me: mandate_proto::identity::MemberId,
    is_leader: Gauge,
    term: Gauge,
    lease: Option<Gauge>,
    roles: Option<Gauge>,
    became_leader: Counter,
    became_follower: Counter,
    renewals: Counter,
    suspicions: Counter,
    mistakes: Counter,
}

impl Figures {
    fn new(member: &Member) -> Self {
        let labels = [("group", member.group().to_owned()), ("member", member.id().to_string())];
        let transitions = |to: &'static str| {
            let labels = labels.iter().cloned().chain([("to", to.to_owned())]).collect::<Vec<_>>();
            counter!("mandate_transitions_total", &labels)
        };
        let lease = member.guarantee().lease();
        Figures {
            me: member.id(),
            is_leader: gauge!("mandate_is_leader", &labels),
            term: gauge!("mandate_term", &labels),
            lease: lease.map(|_| gauge!("mandate_lease_remaining_seconds", &labels)),
            roles: member.roles().map(|_| gauge!("mandate_roles_led", &labels)),
            became_leader: transitions("leading"),
            became_follower: transitions("following"),
            renewals: counter!("mandate_renewals_total", &labels),
            suspicions: counter!("mandate_suspicions_total", &labels),
            mistakes: counter!("mandate_mistakes_total", &labels),
        }
    }

    async fn keep<T: Clone>(
        self,
        member: WeakMember,
        mut told: Receiver<T>,
        event: impl Fn(T) -> Event,
    ) {
        let mut looks = interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let ends = tokio::select! {
                one = told.recv() => match one {
                    Ok(one) => {
                        self.count(&event(one));
                        false
                    }
                    Err(RecvError::Lagged(_)) => false,
                    Err(RecvError::Closed) => true,
                },
                _ = looks.tick() => false,
            };
            let member = member.upgrade();
            if let Some(member) = &member {
                self.look(member).await;
            }
            if ends || member.is_none() {
                return self.end();
            }
        }
    }

    fn count(&self, event: &Event) {
        let elected = |leader| match leader == self.me {
            true => self.became_leader.increment(1),
            false => self.became_follower.increment(1),
        };
        match event {
            Event::Elected(record) => elected(record.leader),
            Event::OnDatabase(registers::Event::Reigned(reign)) => {
                reign.leader.into_iter().for_each(elected);
            }
            Event::OnDatabase(registers::Event::Removed { .. })
            | Event::Suspected { suspected: true, .. } => self.suspicions.increment(1),
            Event::OnDatabase(registers::Event::Evicted { .. })
            | Event::Suspected { suspected: false, .. } => self.mistakes.increment(1),
            Event::OnLedger(neli::Event::Acquired { .. }) => self.became_leader.increment(1),
            _ => {}
        }
    }

    async fn look(&self, member: &Member) {
        if let Some(status) = member.election().status().await {
            self.renewals.absolute(status.renewals);
        }
        let state = member.election().state().borrow().clone();
        let held = state.mandate().filter(|mandate| mandate.check());
        let roles = member.roles().map(|roles| roles.owned().len());
        self.is_leader.set(flag(held.is_some() || roles.is_some_and(|roles| roles > 0)));
        self.term.set(match &state {
            ElectionState::Following { term, .. } => term.get() as f64,
            _ => held.map_or(0.0, |mandate| mandate.term().get() as f64),
        });
        if let Some(gauge) = &self.lease {
            gauge.set(held.and_then(Mandate::remaining).unwrap_or_default().as_secs_f64());
        }
        if let (Some(gauge), Some(roles)) = (&self.roles, roles) {
            gauge.set(roles as f64);
        }
    }

    /// Nothing is led any more.
    fn end(&self) {
        let gauges = [Some(&self.is_leader), Some(&self.term), self.lease.as_ref()];
        gauges.into_iter().chain([self.roles.as_ref()]).flatten().for_each(|gauge| gauge.set(0.0));
    }
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
