//! A topology as the emulator needs it: hosts with addresses, and a quality for each directed pair of them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::wan::link::LinkSettings;
use mandate_cli::topology::Topology;

/// The most hosts: one octet of the address tells them apart, and links are their square.
pub const MAX_HOSTS: usize = 250;

/// The network that all hosts are in. It exists in their namespaces only, and so cannot clash with the machine's.
pub const NETWORK: &str = "10.77.0.0/24";

/// As on Ethernet.
pub const MTU: usize = 1500;

/// Set in each namespace: windows that fill a link of 77 ms at several gigabits. The receiver's starts large,
/// because its growth stalls where packets come in bursts that are a round trip apart.
pub(crate) const SYSCTLS: [(&str, &str); 2] =
    [("tcp_rmem", "4096 8388608 67108864"), ("tcp_wmem", "4096 65536 67108864")];

/// Too many hosts for one emulator.
#[derive(Debug, thiserror::Error)]
#[error("{0} servers and hosts; the emulator carries at most {MAX_HOSTS}")]
pub struct TooManyHosts(usize);

/// A host that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedHost {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub site: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its other address.
    pub address_v6: Ipv6Addr,
}

/// Hosts and links.
#[derive(Clone, Debug)]
pub struct NetworkPlan {
    hosts: Vec<PlannedHost>,
    qualities: Vec<LinkSettings>,
}

impl NetworkPlan {
    /// The plan of a topology.
    pub fn new(topology: &Topology) -> Result<Self, TooManyHosts> {
        let servers = topology.servers().iter().map(|server| (server.id.to_string(), &server.site));
        let others = topology.hosts().iter().map(|host| (host.name.clone(), &host.site));
        let named: Vec<_> = servers.chain(others).collect();
        if named.len() > MAX_HOSTS {
            return Err(TooManyHosts(named.len()));
        }
        let hosts: Vec<_> = (1_u8..)
            .zip(&named)
            .map(|(number, (name, site))| PlannedHost {
                name: name.clone(),
                site: (*site).clone(),
                address: Ipv4Addr::new(10, 77, 0, number),
                address_v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()),
            })
            .collect();
        let quality = |a: &PlannedHost, b: &PlannedHost| {
            let link = topology.link(&a.site, &b.site).expect("every pair of sites was checked");
            LinkSettings {
                delay: Duration::from_secs_f64(link.round_trip_ms / 2000.0),
                jitter: Duration::from_secs_f64(link.jitter_ms / 1000.0),
                loss: link.loss,
                bits_per_second: link.mbit.map(|mbit| mbit * 1e6),
            }
        };
        let pairs = hosts.iter().flat_map(|a| hosts.iter().map(move |b| (a, b)));
        let qualities = pairs.map(|(a, b)| quality(a, b)).collect();
        Ok(NetworkPlan { hosts, qualities })
    }

    /// The hosts: servers first.
    pub fn hosts(&self) -> &[PlannedHost] {
        &self.hosts
    }

    /// What the link from one host to another is like, by their places.
    pub fn quality(&self, from: usize, to: usize) -> LinkSettings {
        self.qualities[from * self.hosts.len() + to]
    }

    /// The hosts that a name stands for: a host's own, a site's, `all`, or several with commas.
    pub fn places(&self, names: &str) -> Option<Vec<usize>> {
        let mut places = Vec::new();
        for name in names.split(',').map(str::trim) {
            let before = places.len();
            let meant =
                |host: &PlannedHost| host.name == name || host.site == name || name == "all";
            places.extend((0..self.hosts.len()).filter(|place| meant(&self.hosts[*place])));
            if places.len() == before {
                return None;
            }
        }
        places.sort_unstable();
        places.dedup();
        Some(places)
    }

    /// Where a packet goes: the place of its destination, if that is a host of ours.
    pub(crate) fn destination(&self, packet: &[u8]) -> Option<usize> {
        let number = match packet.first()? >> 4 {
            4 => match packet.get(16..20)? {
                [10, 77, 0, number] => *number,
                _ => return None,
            },
            6 => match packet.get(24..40)? {
                [0xfd, 0x77, rest @ .., number] if rest.iter().all(|byte| *byte == 0) => *number,
                _ => return None,
            },
            _ => return None,
        };
        let place = usize::from(number).checked_sub(1)?;
        (place < self.hosts.len()).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> NetworkPlan {
        let text = "
            [[rtt]]\na = 'x'\nb = 'y'\nms = 20\njitter_ms = 1\nloss = 0.5\nmbit = 8\n
            [[server]]\nid = 'p1'\nsite = 'x'\n
            [[server]]\nid = 'p2'\nsite = 'y'\n
            [[host]]\nname = 'client'\nsite = 'y'\n";
        NetworkPlan::new(&Topology::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn a_link_is_what_its_sites_say_and_none_within_one() {
        let plan = plan();
        let far = plan.quality(0, 2);
        assert_eq!((far.delay, far.loss), (Duration::from_millis(10), 0.5));
        assert_eq!(far.bits_per_second, Some(8e6));
        assert_eq!(plan.quality(1, 2), LinkSettings::default());
    }

    #[test]
    fn names_are_hosts_sites_or_several_of_them() {
        let plan = plan();
        assert_eq!(plan.places("p1"), Some(vec![0]));
        assert_eq!(plan.places("y"), Some(vec![1, 2]));
        assert_eq!(plan.places("client, p1"), Some(vec![0, 2]));
        assert_eq!(plan.places("all"), Some(vec![0, 1, 2]));
        assert_eq!((plan.places("p9"), plan.places("p1,,p2")), (None, None));
    }

    #[test]
    fn packets_for_strangers_and_what_is_no_packet_go_nowhere() {
        let plan = plan();
        let mut packet = [0_u8; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 77, 0, 2]);
        assert_eq!(plan.destination(&packet), Some(1));
        packet[19] = 4;
        assert_eq!(plan.destination(&packet), None, "there is no fourth host");
        packet[19] = 0;
        assert_eq!(plan.destination(&packet), None);
        assert_eq!(plan.destination(&packet[..18]), None);
        assert_eq!(plan.destination(&[]), None);
        packet[0] = 0x60;
        packet[24..40].copy_from_slice(&plan.hosts()[2].address_v6.octets());
        assert_eq!(plan.destination(&packet), Some(2));
    }
}
