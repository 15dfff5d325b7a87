//! Where servers are and how far apart: the file that `mandate oracle rank` reads.
//!
//! ```toml
//! [[rtt]]            # a round trip between two sites; within a site it is 0
//! a = "slac"
//! b = "caltech"
//! ms = 9.88
//!
//! [[server]]
//! id = "p1"
//! site = "slac"
//! requests = 333.3   # that clients send to it a second
//! history = 42       # optional: the position of its log
//! preference = 1     # optional: higher is better, 0 is neutral, "never" is never a candidate
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
    servers: Vec<Server>,
    /// Milliseconds, by pair of sites in order.
    round_trips: BTreeMap<(String, String), f64>,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RttTable {
    a: String,
    b: String,
    ms: f64,
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
        let round_trips = round_trips(file.rtt)?;
        let topology = Topology { servers, round_trips };
        topology.check_pairs()?;
        Ok(topology)
    }

    fn check_pairs(&self) -> Result<(), InvalidTopology> {
        let sites: BTreeSet<_> = self.servers.iter().map(|server| &server.site).collect();
        let pairs = sites.iter().flat_map(|a| sites.iter().map(move |b| (*a, *b)));
        match pairs.into_iter().find(|(a, b)| a < b && self.between(a, b).is_none()) {
            Some((a, b)) => Err(InvalidTopology::MissingPair(a.clone(), b.clone())),
            None => Ok(()),
        }
    }

    /// The servers, as they stand in the file.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The round trip between two of the servers, in milliseconds.
    pub fn round_trip_ms(&self, a: &Server, b: &Server) -> f64 {
        self.between(&a.site, &b.site).expect("every pair of sites was checked")
    }

    fn between(&self, a: &str, b: &str) -> Option<f64> {
        if a == b { Some(0.0) } else { self.round_trips.get(&pair(a, b)).copied() }
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
        let up = |server: &&Server| !down.contains(&server.id) && Some(server.id) != gone;
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

fn server(table: ServerTable) -> Result<Server, InvalidTopology> {
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
    Ok(Server { id, site, requests, history, preference })
}

fn round_trips(tables: Vec<RttTable>) -> Result<BTreeMap<(String, String), f64>, InvalidTopology> {
    let mut round_trips = BTreeMap::new();
    for RttTable { a, b, ms } in tables {
        if !(0.0..=86_400_000.0).contains(&ms) {
            return Err(InvalidTopology::RoundTrip { a, b, ms });
        }
        if round_trips.insert(pair(&a, &b), ms).is_some() {
            return Err(InvalidTopology::SamePair(a, b));
        }
    }
    Ok(round_trips)
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
