//! Ways from single members to their server that can be cut.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use mandate_proto::identity::MemberId;
use tokio::runtime::Runtime;

use mandate_cli::relay::Relays;

/// For the relays, which stand between members: here the server is one of two.
const SERVER: MemberId = MemberId::new(1);
const CLIENT: MemberId = MemberId::new(2);

/// One way for each.
pub(super) struct MemberLinks {
    server: SocketAddr,
    ways: BTreeMap<u64, Relays>,
    runtime: Runtime,
}

impl MemberLinks {
    /// To this server, for nobody yet.
    pub(super) fn to(server: SocketAddr) -> io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build()?;
        Ok(MemberLinks { server, ways: BTreeMap::new(), runtime })
    }

    /// Lays one for a member; the port at which it finds the server.
    pub(super) fn lay(&mut self, member: u64) -> io::Result<u16> {
        let ends = BTreeMap::from([(SERVER, self.server), (CLIENT, self.server)]);
        let relays = self.runtime.block_on(Relays::start(&ends))?;
        let port = relays.address(CLIENT, SERVER).map_or(0, |address| address.port());
        self.ways.insert(member, relays);
        Ok(port)
    }

    /// From now on nothing gets through, and nobody is told.
    pub(super) fn cut(&self, member: u64) {
        self.ways.get(&member).into_iter().for_each(|way| way.isolate(CLIENT));
    }

    /// Everything gets through again, also what was held.
    pub(super) fn heal(&self, member: u64) {
        self.ways.get(&member).into_iter().for_each(Relays::heal_all);
    }
}
