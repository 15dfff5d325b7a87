//! Links between all pairs of hosts, each direction its own, and cuts in them.

use crate::link::{Link, LinkModel};
use crate::random::Random;
use crate::time::SimTime;

/// The place of a host in the simulation, from 0.
pub type HostIndex = usize;

/// All links.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    hosts: usize,
    links: Vec<Link>,
    cut: Vec<bool>,
}

impl Network {
    /// Links between `hosts` hosts, all alike.
    pub(crate) fn uniform(hosts: usize, model: LinkModel) -> Self {
        let pairs = hosts * hosts;
        Network { hosts, links: vec![Link::new(model); pairs], cut: vec![false; pairs] }
    }

    /// Replaces every link; cuts stay.
    pub(crate) fn set_all(&mut self, model: LinkModel) {
        self.links.fill(Link::new(model));
    }

    /// Replaces one link.
    pub(crate) fn set(&mut self, from: HostIndex, to: HostIndex, model: LinkModel) {
        let pair = self.pair(from, to);
        self.links[pair] = Link::new(model);
    }

    /// Cuts one direction, or mends it. What is under way arrives.
    pub(crate) fn set_cut(&mut self, from: HostIndex, to: HostIndex, cut: bool) {
        let pair = self.pair(from, to);
        self.cut[pair] = cut;
    }

    /// Mends everything.
    pub(crate) fn mend_all(&mut self) {
        self.cut.fill(false);
    }

    /// Sends a message: when it arrives, and when it arrives again.
    pub(crate) fn transmit(
        &mut self,
        from: HostIndex,
        to: HostIndex,
        now: SimTime,
        random: &mut Random,
    ) -> [Option<SimTime>; 2] {
        let pair = self.pair(from, to);
        if self.cut[pair] {
            return [None, None];
        }
        self.links[pair].transmit(now, random)
    }

    fn pair(&self, from: HostIndex, to: HostIndex) -> usize {
        from * self.hosts + to
    }
}
