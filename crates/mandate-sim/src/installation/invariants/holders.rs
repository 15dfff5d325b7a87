//! Who acts on a mandate: members, and what outlives them.
//!
//! A guarded command, or a program that was lent the mandate by a daemon, knows the deadline and acts until then, whatever
//! becomes of the member. So a member that crashes while its mandate holds leaves an *orphan* that acts until the
//! deadline it had. One that gives its mandate up in good order has ended what acts on it before.

use mandate_proto::time::Instant;

use crate::network::HostIndex;
use crate::subject::{SimulationObserver, Subject};
use crate::time::SimTime;
use crate::world::World;

/// Who acts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    /// For each host, the incarnation whose mandate held when it was last looked at, and until when.
    held: Vec<Option<(u32, SimTime)>>,
    /// What acts on mandates of former incarnations, and until when.
    orphans: Vec<(HostIndex, SimTime)>,
}

impl Holders {
    /// Looks at every member; `mandate` says until when a member's holds, by its own clock, if it does.
    pub(crate) fn look<S: Subject, O: SimulationObserver<S>>(
        &mut self,
        world: &World<S, O>,
        mandate: impl Fn(HostIndex, &S, Instant) -> Option<Instant>,
    ) {
        self.held.resize(world.size(), None);
        let now = world.now();
        self.orphans.retain(|(_, until)| now < *until);
        for host in 0..world.size() {
            let incarnation = world.life(host);
            if let Some((_, until)) = self.held[host].filter(|(held, _)| *held != incarnation) {
                self.orphans.push((host, until));
            }
            let machine = world.machine(host);
            let until = machine.and_then(|machine| mandate(host, machine, world.local_time(host)));
            self.held[host] = until.map(|until| (incarnation, world.when(host, until)));
        }
    }

    /// The hosts whose former incarnation is acted on still.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = HostIndex> + '_ {
        self.orphans.iter().map(|(host, _)| *host)
    }
}
