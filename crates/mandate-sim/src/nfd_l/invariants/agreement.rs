//! Eventual agreement (section 2.2): there is a time after which all members that are up name
//! the same leader, and it is up. When that must be, the scenario says.

use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Event, NfdL};

use crate::fault::Fault;
use crate::host::{host_of, member};
use crate::subject::{Moment, Observation};
use crate::time::SimTime;

/// The name under which it is reported.
pub(crate) const NAME: &str = "agreement";

/// Who takes whom for the leader.
pub(crate) struct Agreement {
    outputs: Vec<Output>,
    agreed: Option<(MemberId, SimTime)>,
    changes: u64,
    reigns: u64,
}

#[derive(Clone, Copy, PartialEq)]
struct Output {
    up: bool,
    leader: Option<MemberId>,
}

impl Agreement {
    /// Watches `size` members.
    pub(crate) fn new(size: usize) -> Self {
        let down = Output { up: false, leader: None };
        Agreement { outputs: vec![down; size], agreed: None, changes: 0, reigns: 0 }
    }

    /// Takes note of starts, crashes and changes of leader.
    pub(crate) fn observe(&mut self, moment: Moment, what: &Observation<'_, NfdL>) {
        let output = &mut self.outputs[moment.host];
        match what {
            Observation::Started(_) => *output = Output { up: true, leader: None },
            Observation::Faulted(Fault::Crash(_)) => *output = Output { up: false, leader: None },
            Observation::Told(Event::LeaderChanged { leader, .. }) => {
                output.leader = *leader;
                self.changes += 1;
                self.reigns += u64::from(*leader == Some(member(moment.host)));
            }
            _ => return,
        }
        let leader = self.common_leader();
        if leader != self.agreed.map(|(leader, _)| leader) {
            self.agreed = leader.map(|leader| (leader, moment.now));
        }
    }

    fn common_leader(&self) -> Option<MemberId> {
        let mut up = self.outputs.iter().filter(|output| output.up);
        let leader = up.next()?.leader?;
        let common = up.all(|output| output.leader == Some(leader));
        (common && self.outputs[host_of(leader)].up).then_some(leader)
    }

    /// The leader that all name, and since when they do.
    pub(crate) fn agreed(&self) -> Option<(MemberId, SimTime)> {
        self.agreed
    }

    /// How often any output has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// How often a member became leader.
    pub(crate) fn reigns(&self) -> u64 {
        self.reigns
    }

    /// Each member that is up, and whom it names.
    pub(crate) fn describe(&self) -> String {
        let name = |leader: Option<MemberId>| leader.map_or("nobody".into(), |l| l.to_string());
        let up = self.outputs.iter().enumerate().filter(|(_, output)| output.up);
        let lines = up.map(|(host, output)| format!("p{}: {}", host + 1, name(output.leader)));
        lines.collect::<Vec<_>>().join(", ")
    }
}
