//! etcd as a steered system.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`client`] | what is asked of an etcd member, over its JSON gateway: status, members, metrics, the move |
//! | [`keys`] | what operators want: hold, drain |

pub mod client;
pub mod keys;
mod metrics;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use self::client::{Endpoint, EtcdAccess, EtcdError, EtcdId, MemberStatus};
pub use self::metrics::writes;
use crate::system::{Position, ServerId, SteeredServer, System, SystemError, Wishes};

/// What to do about a user that may not move leaders.
const GRANT: &str =
    "etcd 3.5 and later let only users with the role root move leaders: `etcdctl user grant-role";

/// An etcd cluster, from beside one of its members.
#[derive(Debug)]
pub struct EtcdCluster {
    own: Endpoint,
    access: EtcdAccess,
    /// Other members, by address: a connection and a token are kept for each.
    others: Mutex<BTreeMap<String, Endpoint>>,
}

impl EtcdCluster {
    /// The cluster of the member at `own`; all members are spoken to in the same way.
    pub fn new(own: Endpoint, access: EtcdAccess) -> Self {
        EtcdCluster { own, access, others: Mutex::default() }
    }

    fn other(&self, address: &str) -> Result<Endpoint, EtcdError> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = others.get(address) {
            return Ok(endpoint.clone());
        }
        let endpoint = Endpoint::new(address, &self.access)?;
        others.insert(address.to_owned(), endpoint.clone());
        Ok(endpoint)
    }
}

impl System for EtcdCluster {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn own_address(&self) -> &str {
        self.own.url()
    }

    fn own(&self, within: Duration) -> Result<Position, SystemError> {
        Ok(position(&self.own.position(within)?))
    }

    fn requests(&self, within: Duration) -> Result<u64, SystemError> {
        Ok(writes(&self.own.metrics(within)?))
    }

    fn wishes(&self, within: Duration) -> Result<Wishes, SystemError> {
        Ok(keys::read(&self.own, within)?)
    }

    fn servers(&self, within: Duration) -> Result<Vec<SteeredServer>, SystemError> {
        let members = self.own.members(within)?.into_iter();
        let server = |member: client::EtcdMember| {
            let address = member.client_urls.into_iter().next()?;
            Some(SteeredServer { id: member.id.into(), address })
        };
        let servers: Vec<_> = members.filter_map(server).collect();
        // Members that are gone need no connection.
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|address, _| servers.iter().any(|server| server.address == *address));
        Ok(servers)
    }

    fn position(&self, of: &SteeredServer, within: Duration) -> Result<Position, SystemError> {
        Ok(position(&self.other(&of.address)?.position(within)?))
    }

    fn move_leader(
        &self,
        leader: &SteeredServer,
        to: &ServerId,
        within: Duration,
    ) -> Result<(), SystemError> {
        let moved = self.other(&leader.address)?.move_leader(EtcdId::try_from(to)?, within);
        moved.map_err(|error| match error.to_string() {
            text if text.contains("permission denied") => {
                format!("{text}. {GRANT} NAME root`").into()
            }
            _ => error.into(),
        })
    }

    fn missing_rights(&self, within: Duration) -> Result<Option<String>, SystemError> {
        let Some((user, _)) = &self.access.user else { return Ok(None) };
        let roles = self.own.roles(within)?.unwrap_or_default();
        let is_root = roles.iter().any(|role| role == "root");
        let missing =
            || format!("the user {user} does not have the role root. {GRANT} {user} root`");
        Ok((!is_root).then(missing))
    }
}

fn position(status: &MemberStatus) -> Position {
    Position {
        server: status.member.into(),
        leader: status.leader.map(ServerId::from),
        term: status.term,
        index: status.index,
        votes: !status.is_learner,
        trouble: status.troubles().next().map(str::to_owned),
    }
}
