//! What is watched of a run.

use mandate_proto::election::State;
use mandate_proto::pole::installation::Stored;
use mandate_proto::pole::member::{Event, Member};

use super::releases::{self, NobodyLeftBehind};
use super::requests::{self, RequestsOfTerm};
use crate::host::{host_of, member};
use crate::installation::invariants::changes_stay::{self, ChangesStay};
use crate::installation::invariants::one_leader_per_term;
use crate::installation::invariants::terms_rise::{self, TermsRise, lost_disk};
use crate::network::HostIndex;
use crate::subject::{Moment, Observation};
use crate::values::{self, ValuesOfTerm};
use crate::watch::{Broken, Invariants, LeaderWatch};

/// What must hold of terms, and who suspects whom.
pub(super) struct Elections {
    pub(super) leaders: LeaderWatch,
    terms_rise: TermsRise,
    values: ValuesOfTerm,
    pub(super) changes: ChangesStay,
    pub(super) requests: RequestsOfTerm,
    pub(super) left_behind: NobodyLeftBehind,
    /// Who suspected whom, since this was last cleared.
    pub(super) suspicions: Vec<(HostIndex, HostIndex)>,
    /// Of whose disk another said that it went back.
    pub(super) went_back: Vec<bool>,
}

impl Elections {
    pub(super) fn new(size: usize) -> Self {
        Elections {
            leaders: LeaderWatch::new(size),
            terms_rise: TermsRise::new(size),
            values: ValuesOfTerm::default(),
            changes: ChangesStay::default(),
            requests: RequestsOfTerm::default(),
            left_behind: NobodyLeftBehind::default(),
            suspicions: Vec::new(),
            went_back: vec![false; size],
        }
    }

    fn changed(&mut self, host: HostIndex, state: State) -> Result<(), String> {
        // Also if it breaks what must hold: outside what is guaranteed it may.
        self.leaders.states[host] = state;
        if let State::Following { term, .. } | State::Leading { term } = state {
            self.leaders.see(host, term)?;
        }
        self.leaders.change(host, state)
    }
}

impl Elections {
    /// A process that is no member starts again: what it has seen of leaders is on its disk only as far as its list tells it.
    fn forget_unwritten(&mut self, host: HostIndex, stored: &Stored) {
        let Some(roster) = stored.roster.as_ref().filter(|roster| !roster.has(member(host))) else {
            return;
        };
        self.leaders.forget_above(host, stored.promised.term.max(roster.id().term));
    }
}

impl Invariants<Member> for Elections {
    fn check(&mut self, moment: Moment, what: &Observation<'_, Member>) -> Result<(), Broken> {
        self.requests.check(moment, what).map_err(|what| (requests::NAME, what))?;
        match what {
            Observation::Told(Event::Changed(state)) => {
                let checked = self.changed(moment.host, *state);
                checked.map_err(|what| (one_leader_per_term::NAME, what))?;
                let State::Leading { term } = *state else { return Ok(()) };
                let checked = self.changes.installed(moment.host, term);
                return checked.map_err(|what| (changes_stay::NAME, what));
            }
            Observation::Told(Event::RosterChanged(roster)) => {
                let checked = self.left_behind.changed(roster);
                checked.map_err(|what| (releases::NAME, what))?;
                let checked = self.changes.changed(moment.host, roster);
                return checked.map_err(|what| (changes_stay::NAME, what));
            }
            // A list is settled under the leader's own term.
            Observation::Told(Event::Settled(roster)) => self.changes.settled(roster.term, *roster),
            Observation::Told(Event::Published { leader, term, value }) => {
                let checked = self.values.check(moment.host, (host_of(*leader), *term), value);
                return checked.map_err(|what| (values::NAME, what));
            }
            Observation::Started(boot) => {
                self.leaders.start(moment.host);
                self.changes.started(moment.host, boot.stored.as_ref());
                self.left_behind.started(moment.host, boot.is_edited);
                // Without its disk a member names whom it hears, and writes nothing of that (seed 60025887).
                // So does one that is no member, but for the list.
                if moment.host < self.leaders.states.len() {
                    match &boot.stored {
                        None => self.leaders.forget(moment.host),
                        Some(stored) => self.forget_unwritten(moment.host, stored),
                    }
                }
            }
            Observation::Faulted(fault) => {
                lost_disk(fault).into_iter().for_each(|host| self.leaders.forget(host));
            }
            Observation::Told(Event::Suspected { member, suspected: true }) => {
                // Of a member that no host runs nothing is ever heard.
                let host = host_of(*member);
                let is_run = host < self.leaders.states.len();
                self.suspicions.extend(is_run.then_some((moment.host, host)));
            }
            Observation::Told(Event::WentBack { member, .. }) => {
                self.went_back[host_of(*member)] |= host_of(*member) != moment.host;
            }
            _ => {}
        }
        self.terms_rise.check(moment, what).map_err(|what| (terms_rise::NAME, what))
    }

    fn reigns(&self) -> u64 {
        self.leaders.one_leader.terms() as u64
    }
}
