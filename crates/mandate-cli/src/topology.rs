//! Where servers are and how far apart: the file that `mandate oracle rank` and `mandate lab wan` read.
//!
//! ```toml
//! [[rtt]]            # a round trip between two sites; within a site it is 0 unless `a` and `b` are the same
//! a = "slac"
//! b = "caltech"
//! ms = 9.88
//! jitter_ms = 0.1    # optional: the standard deviation of the delay, each way
//! loss = 0.001       # optional: the share of packets that are lost, each way
//! mbit = 1000        # optional: megabits a second, each way; unlimited if left out
//!
//! [[server]]
//! id = "p1"
//! site = "slac"
//! requests = 333.3   # that clients send to it a second
//! history = 42       # optional: the position of its log
//! preference = 1     # optional: higher is better, 0 is neutral, "never" is never a candidate
//!
//! [[host]]           # optional: a host that is no member, such as one for clients
//! name = "client"
//! site = "slac"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mandate_proto::identity::{InvalidMemberId, MemberId};
use mandate_proto::oracle::{Occasion, Preference, View};
use serde::Deserialize;

/// The most servers a group may have here; far more than any that elects by quorum.
pub const MAX_SERVERS: usize = 1000;

/// Servers, sites and the round trips between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    servers: Vec<TopologyServer>,
    hosts: Vec<Host>,
    /// By pair of sites in order.
    links: BTreeMap<(String, String), SiteLink>,
}

/// A host that is no server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Its name: letters, digits and hyphens.
    pub name: String,
    /// Where it is.
    pub site: String,
}

/// What is between two sites. By default nothing: no delay, no loss, no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SiteLink {
    /// The round trip, in milliseconds.
    pub round_trip_ms: f64,
    /// The standard deviation of the delay each way, in milliseconds.
    pub jitter_ms: f64,
    /// The share of packets that are lost, each way.
    pub loss: f64,
    /// Megabits a second each way, if that is limited.
    pub mbit: Option<f64>,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyServer {
    /// Its id.
    pub id: MemberId,
    /// Where it is.
    pub site: String,
    /// Requests that clients send to it a second.
    pub requests: f64,
    /// The position of its log.
    pub history: Option<u64>,
    /// What the operator thinks of it as a leader.
    pub preference: Preference,
}

/// Why a text is no topology. Nothing was kept of it.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTopology {
    /// Not TOML, or not with these tables and keys.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// No servers.
    #[error("there is no [[server]]")]
    NoServers,
    /// Too many.
    #[error("{0} servers; at most {MAX_SERVERS} are possible")]
    TooMany(usize),
    /// An id that is none.
    #[error("server `{id}`: {reason}")]
    Id {
        /// What stands there.
        id: String,
        /// What is wrong with it.
        reason: InvalidMemberId,
    },
    /// Two servers with one id.
    #[error("two servers are called {0}")]
    SameId(MemberId),
    /// A request rate that is none.
    #[error("server {id}: requests is {value}, and must be a number of zero or more")]
    Requests {
        /// Which server.
        id: MemberId,
        /// What stands there.
        value: f64,
    },
    /// A preference that is none.
    #[error("server {id}: preference is `{value}`, and must be a whole number or \"never\"")]
    Preference {
        /// Which server.
        id: MemberId,
        /// What stands there.
        value: String,
    },
    /// A round trip that is none.
    #[error("the round trip between {a} and {b} is {ms} ms, and must be 0 to 86400000")]
    RoundTrip {
        /// One site.
        a: String,
        /// The other.
        b: String,
        /// What stands there.
        ms: f64,
    },
    /// What a link does to packets is impossible.
    #[error("between {a} and {b}: {name} is {value}, and must be {wanted}")]
    Link {
        /// One site.
        a: String,
        /// The other.
        b: String,
        /// Which key.
        name: &'static str,
        /// What stands there.
        value: f64,
        /// What may stand there.
        wanted: &'static str,
    },
    /// A host's name that is none.
    #[error(
        "host `{0}`: a name is 1 to 32 small letters, digits and hyphens, and is neither a site, a server nor `all`"
    )]
    HostName(String),
    /// One pair of sites twice.
    #[error("the round trip between {0} and {1} is given twice")]
    SamePair(String, String),
    /// Two sites without a round trip.
    #[error("servers are at {0} and {1}, but there is no [[rtt]] between them")]
    MissingPair(String, String),
    /// A server that is asked for is not there.
    #[error("there is no server {0}")]
    NoSuchServer(MemberId),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rtt: Vec<RttTable>,
    #[serde(default)]
    server: Vec<ServerTable>,
    #[serde(default)]
    host: Vec<Host>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RttTable {
    a: String,
    b: String,
    ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(default)]
    loss: f64,
    mbit: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    id: String,
    site: String,
    #[serde(default)]
    requests: f64,
    history: Option<u64>,
    preference: Option<PreferenceValue>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PreferenceValue {
    Rank(i32),
    Word(String),
}

impl Topology {
    /// Reads a topology.
    pub fn parse(text: &str) -> Result<Self, InvalidTopology> {
        let file: File = toml::from_str(text)?;
        let servers = file.server.into_iter().map(server).collect::<Result<Vec<_>, _>>()?;
        match servers.len() {
            0 => return Err(InvalidTopology::NoServers),
            size if size > MAX_SERVERS => return Err(InvalidTopology::TooMany(size)),
            _ => {}
        }
        let mut ids = BTreeSet::new();
        if let Some(same) = servers.iter().find(|server| !ids.insert(server.id)) {
            return Err(InvalidTopology::SameId(same.id));
        }
        let links = links(file.rtt)?;
        let topology = Topology { servers, hosts: file.host, links };
        topology.check_hosts()?;
        topology.check_pairs()?;
        Ok(topology)
    }

    /// A host's name must say which host is meant wherever a server or a site may be named too.
    fn check_hosts(&self) -> Result<(), InvalidTopology> {
        let mut taken: BTreeSet<String> = self.sites().cloned().collect();
        taken.extend(self.servers.iter().map(|server| server.id.to_string()));
        taken.insert("all".into());
        let is_name = |name: &str| {
            let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=32).contains(&name.len()) && name.chars().all(letters)
        };
        match self
            .hosts
            .iter()
            .find(|host| !is_name(&host.name) || !taken.insert(host.name.clone()))
        {
            Some(host) => Err(InvalidTopology::HostName(host.name.clone())),
            None => Ok(()),
        }
    }

    fn sites(&self) -> impl Iterator<Item = &String> {
        let servers = self.servers.iter().map(|server| &server.site);
        servers.chain(self.hosts.iter().map(|host| &host.site))
    }

    fn check_pairs(&self) -> Result<(), InvalidTopology> {
        let sites: BTreeSet<_> = self.sites().collect();
        let pairs = sites.iter().flat_map(|a| sites.iter().map(move |b| (*a, *b)));
        match pairs.into_iter().find(|(a, b)| a < b && self.between(a, b).is_none()) {
            Some((a, b)) => Err(InvalidTopology::MissingPair(a.clone(), b.clone())),
            None => Ok(()),
        }
    }

    /// The servers, as they stand in the file.
    pub fn servers(&self) -> &[TopologyServer] {
        &self.servers
    }

    /// The hosts that are no servers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// What is between two sites, if that was said.
    pub fn link(&self, a: &str, b: &str) -> Option<SiteLink> {
        let known = self.links.get(&pair(a, b)).copied();
        if a == b { Some(known.unwrap_or_default()) } else { known }
    }

    /// The round trip between two of the servers, in milliseconds.
    pub fn round_trip_ms(&self, a: &TopologyServer, b: &TopologyServer) -> f64 {
        self.between(&a.site, &b.site).expect("every pair of sites was checked")
    }

    fn between(&self, a: &str, b: &str) -> Option<f64> {
        self.link(a, b).map(|link| link.round_trip_ms)
    }

    /// What each server knows that is up, when these are `down` and this one leads or led.
    pub fn views(
        &self,
        down: &BTreeSet<MemberId>,
        leader: Option<MemberId>,
        occasion: Occasion,
    ) -> Result<Vec<View>, InvalidTopology> {
        let known: BTreeSet<_> = self.servers.iter().map(|server| server.id).collect();
        if let Some(stranger) = down.iter().chain(&leader).find(|id| !known.contains(id)) {
            return Err(InvalidTopology::NoSuchServer(*stranger));
        }
        // After a crash the leader is gone, whether or not it was said to be down.
        let gone = leader.filter(|_| occasion == Occasion::AfterCrash);
        let up = |server: &&TopologyServer| !down.contains(&server.id) && Some(server.id) != gone;
        let views = self.servers.iter().filter(up).map(|me| {
            let mut view = View::new(me.id, known.iter().copied());
            view.leader = leader;
            view.occasion = occasion;
            view.history = me.history;
            view.preference = me.preference;
            for other in self.servers.iter().filter(up) {
                view.request_rates.insert(other.id, other.requests);
                if let Some(ms) = self.between(&me.site, &other.site)
                    && other.id != me.id
                {
                    view.round_trips.insert(other.id, Duration::from_secs_f64(ms / 1000.0));
                }
            }
            view
        });
        Ok(views.collect())
    }
}

fn server(table: ServerTable) -> Result<TopologyServer, InvalidTopology> {
    let id = table.id.parse();
    let id: MemberId = id.map_err(|reason| InvalidTopology::Id { id: table.id, reason })?;
    if !(table.requests >= 0.0 && table.requests.is_finite()) {
        return Err(InvalidTopology::Requests { id, value: table.requests });
    }
    let preference = match table.preference {
        None => Preference::default(),
        Some(PreferenceValue::Rank(rank)) => Preference::Rank(rank),
        Some(PreferenceValue::Word(word)) if word == "never" => Preference::Never,
        Some(PreferenceValue::Word(value)) => {
            return Err(InvalidTopology::Preference { id, value });
        }
    };
    let ServerTable { site, requests, history, .. } = table;
    Ok(TopologyServer { id, site, requests, history, preference })
}

fn links(tables: Vec<RttTable>) -> Result<BTreeMap<(String, String), SiteLink>, InvalidTopology> {
    let mut links = BTreeMap::new();
    for RttTable { a, b, ms, jitter_ms, loss, mbit } in tables {
        if !(0.0..=86_400_000.0).contains(&ms) {
            return Err(InvalidTopology::RoundTrip { a, b, ms });
        }
        let checks = [
            ("jitter_ms", jitter_ms, 0.0..=60_000.0, "0 to 60000"),
            ("loss", loss, 0.0..=1.0, "a share from 0 to 1"),
            ("mbit", mbit.unwrap_or(1.0), 0.001..=100_000.0, "0.001 to 100000"),
        ];
        for (name, value, range, wanted) in checks {
            if !range.contains(&value) {
                return Err(InvalidTopology::Link { a, b, name, value, wanted });
            }
        }
        let link = SiteLink { round_trip_ms: ms, jitter_ms, loss, mbit };
        if links.insert(pair(&a, &b), link).is_some() {
            return Err(InvalidTopology::SamePair(a, b));
        }
    }
    Ok(links)
}

fn pair(a: &str, b: &str) -> (String, String) {
    let (first, second) = if a <= b { (a, b) } else { (b, a) };
    (first.to_owned(), second.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_topology_says_what_and_where() {
        let server = "[[server]]\nid = 'p1'\nsite = 'x'\n";
        let other = "[[server]]\nid = 'p2'\nsite = 'y'\n";
        let cases = [
            (String::new(), "there is no [[server]]"),
            ("[[server]\n".into(), "line 1"),
            (format!("{server}color = 'red'\n"), "unknown field `color`"),
            (server.replace("p1", "q1"), "server `q1`: a member id is a number"),
            (format!("{server}{server}"), "two servers are called p1"),
            (format!("{server}requests = -1.0\n"), "server p1: requests is -1"),
            (format!("{server}requests = nan\n"), "server p1: requests is NaN"),
            (format!("{server}preference = 'maybe'\n"), "server p1: preference is `maybe`"),
            (format!("{server}{other}"), "servers are at x and y, but there is no [[rtt]]"),
            (format!("{server}[[rtt]]\na = 'x'\nb = 'y'\nms = -3\n"), "between x and y is -3 ms"),
            (
                format!("{server}[[rtt]]\na = 'x'\nb = 'y'\nms = 3\nloss = 5\n"),
                "between x and y: loss is 5, and must be a share from 0 to 1",
            ),
            (format!("{server}[[host]]\nname = 'x'\nsite = 'x'\n"), "host `x`: a name is"),
            (format!("{server}[[host]]\nname = 'p1'\nsite = 'x'\n"), "host `p1`: a name is"),
            (
                format!("{server}{}", "[[rtt]]\na = 'x'\nb = 'y'\nms = 3\n".repeat(2)),
                "between x and y is given twice",
            ),
        ];
        for (text, expected) in cases {
            let error = Topology::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gives {error:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_cannot_be_down_or_lead() {
        let topology = Topology::parse("[[server]]\nid = 'p1'\nsite = 'x'\n").unwrap();
        let stranger = MemberId::new(9);
        let views = topology.views(&[stranger].into(), None, Occasion::AfterCrash);
        assert_eq!(views.unwrap_err().to_string(), "there is no server p9");
    }
}
