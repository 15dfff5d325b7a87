//! A wide-area network on one machine, for any program that speaks IP.
//!
//! Every host of a [`Topology`] is a network namespace with one TUN device in it. What a host sends comes out of
//! its device here, waits as long as the link to its destination takes, and goes into the other's device: real
//! sockets, real kernels' TCP, and distances that are numbers in a file. One thread carries all packets
//! ([`switch`]); it sleeps until the next is due.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`plan`] | a topology as hosts with addresses, and a quality for each directed pair |
//! | [`link`] | what one link does to a packet: delay, jitter, loss, bandwidth, order, limits |
//! | [`namespace`] | namespaces without names, and work done inside them |
//! | [`switch`] | the thread that carries packets |
//! | [`fault`] | cuts, loss and delay that come and go |
//! | [`control`] | the socket by which commands reach a running emulator |
//! | [`check`] | how precise it is on this machine |
//!
//! **Nothing is left behind.** Namespaces have no names: descriptors of this process hold them, and the kernel
//! removes them, devices and all, when it ends, however it ends. The control socket is an abstract one, which goes
//! the same way. Named namespaces (`ip netns add`) were rejected: after a crash they stay, and the next program
//! has to guess whose they are.
//!
//! **Why user space.** `tc netem` does the same in the kernel, with more throughput; but many kernels, those of small
//! virtual machines and containers above all, are built without it. Precision is the same where the thread runs
//! with real-time priority; see `docs/wan.md` for what was measured.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tun_rs::{DeviceBuilder, SyncDevice};

use mandate_cli::topology::Topology;

pub mod check;
pub mod control;
pub mod fault;
pub mod link;
pub mod namespace;
pub mod plan;
pub mod switch;

use fault::{NetworkFault, UnknownPlace};
use namespace::Namespace;
use plan::{NetworkPlan, PlannedHost, TooManyHosts};
use switch::{Switch, TrafficTotals};

/// Why an emulator did not start. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// Too many hosts.
    #[error(transparent)]
    TooMany(#[from] TooManyHosts),
    /// Namespaces and devices are for root.
    #[error(
        "a network namespace could not be made: {0}; the emulator needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): \
         run it as root, or in a container with --privileged"
    )]
    Namespace(std::io::Error),
    /// No TUN device.
    #[error(
        "a TUN device could not be made: {0}; the emulator needs /dev/net/tun, and a kernel with TUN (`modprobe tun`)"
    )]
    Device(std::io::Error),
    /// `ip` failed.
    #[error("host {host} could not be set up with `ip` (package iproute2): {reason}")]
    Setup {
        /// Which host.
        host: String,
        /// What `ip` said.
        reason: String,
    },
    /// The thread did not start.
    #[error("the thread that carries packets could not start: {0}")]
    Switch(std::io::Error),
}

/// A host of a running emulator.
#[derive(Debug)]
pub struct EmulatedHost {
    /// Its name in the topology.
    pub name: String,
    /// Where it is.
    pub site: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its other address.
    pub address_v6: Ipv6Addr,
    namespace: Namespace,
}

impl EmulatedHost {
    /// Does something inside: sockets that are made meanwhile belong to this host from then on, and processes that
    /// are started run on it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.within(work)
    }

    /// A runtime with one thread, on this host: so are the sockets of what is spawned on it.
    pub fn runtime(&self) -> std::io::Result<Runtime> {
        self.within(|| Builder::new_multi_thread().worker_threads(1).enable_all().build())
    }

    /// What other processes can open to enter it, while this one runs.
    pub fn namespace_path(&self) -> PathBuf {
        self.namespace.path()
    }

    /// Both addresses.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [self.address.into(), self.address_v6.into()]
    }
}

/// A running emulator. When it is dropped, its network is gone.
#[derive(Debug)]
pub struct Wan {
    // Before the hosts, so that it stops while their devices are there.
    switch: Switch,
    hosts: Vec<EmulatedHost>,
    plan: NetworkPlan,
}

impl Wan {
    /// Starts the network of a topology. `seed` decides loss and jitter.
    pub fn start(topology: &Topology, seed: u64) -> Result<Self, EmulatorError> {
        let plan = NetworkPlan::new(topology)?;
        let mut hosts = Vec::new();
        let mut devices = Vec::new();
        for planned in plan.hosts() {
            let (namespace, device) =
                Namespace::create(|| set_up(planned)).map_err(EmulatorError::Namespace)?;
            devices.push(device?);
            hosts.push(EmulatedHost {
                name: planned.name.clone(),
                site: planned.site.clone(),
                address: planned.address,
                address_v6: planned.address_v6,
                namespace,
            });
        }
        let switch = Switch::start(&plan, devices, seed).map_err(EmulatorError::Switch)?;
        Ok(Wan { switch, hosts, plan })
    }

    /// The hosts: servers first, as they stand in the topology.
    pub fn hosts(&self) -> &[EmulatedHost] {
        &self.hosts
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&EmulatedHost> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Lets something go wrong from now on; how many directed links it touches.
    pub fn inflict(&self, fault: &NetworkFault) -> Result<usize, UnknownPlace> {
        let pairs = fault.pairs(&self.plan)?;
        let touched = pairs.len();
        self.switch.impair(pairs, fault.change());
        Ok(touched)
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.switch.heal();
    }

    /// What went over each link so far, and what is wrong with it.
    pub fn figures(&self) -> TrafficTotals {
        self.switch.figures()
    }

    /// Processor time of the thread that carries packets.
    pub fn processor_time(&self) -> Duration {
        self.switch.processor_time()
    }

    /// Whether that thread runs with real-time priority; without, packets may be milliseconds late on a busy machine.
    pub fn is_real_time(&self) -> bool {
        self.switch.is_real_time()
    }
}

/// The name of the device in each namespace.
const DEVICE: &str = "wan0";

/// Packets that a device holds for the switch: at ten thousand, a burst that fills a window of 64 MB at 10 Gb/s is
/// not lost before the link has had its say.
const DEVICE_QUEUE: u32 = 10_000;

/// Runs inside the new namespace.
fn set_up(host: &PlannedHost) -> Result<SyncDevice, EmulatorError> {
    let device = DeviceBuilder::new()
        .name(DEVICE)
        .enable(false)
        .build_sync()
        .and_then(|device| device.set_nonblocking(true).map(|()| device))
        .map_err(EmulatorError::Device)?;
    let (v4, v6) = (host.address, host.address_v6);
    let network = plan::NETWORK;
    // The default may be BBR, which is too careful where many flows share a path; the route decides for this
    // network alone. The prefix route would be in its way.
    let script = format!(
        "link set lo up\n\
         link set {DEVICE} txqueuelen {DEVICE_QUEUE} mtu {mtu}\n\
         link set {DEVICE} up\n\
         addr add {v4}/24 dev {DEVICE} noprefixroute\n\
         route add {network} dev {DEVICE} src {v4} congctl cubic\n\
         addr add {v6}/64 dev {DEVICE} nodad\n",
        mtu = plan::MTU,
    );
    namespace::ip(&script)
        .map_err(|reason| EmulatorError::Setup { host: host.name.clone(), reason })?;
    for (name, value) in plan::SYSCTLS {
        // Where /proc/sys is read-only, one flow over a long link is slower, and all else is as it should be.
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
    }
    Ok(device)
}
