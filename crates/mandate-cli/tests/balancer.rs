//! HAProxy before a group, as the example for it says: requests go to the service beside the leader, wherever that is.

mod group;
mod service;
mod wrapper;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use group::{Group, within};
use service::service;
use wrapper::{BOUND, LEASED};

/// A running HAProxy. It ends with the thread that started it, however that ends.
struct Balancer {
    process: Child,
    at: SocketAddr,
}

impl Balancer {
    /// Before these members, with a service each, by the example in the guide.
    fn start(group: &Group, services: &[SocketAddr]) -> Self {
        let at = SocketAddr::from(([127, 0, 0, 1], mandate_servers::free_ports(1).unwrap()[0]));
        let example = include_str!("../../../docs/examples/haproxy.cfg");
        let mut config = example.replace("127.0.0.1:8080", &at.to_string());
        for (place, service) in services.iter().enumerate() {
            let id = place as u32 + 1;
            let api: SocketAddr = group.api(id).parse().unwrap();
            let server = format!("db{id}.example:9000 check port 8101");
            assert!(config.contains(&server), "{server}");
            config = config.replace(&server, &format!("{service} check port {}", api.port()));
        }
        let directory = group.directory.path();
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        Balancer { process: Balancer::run(&file, &directory.join("haproxy.log")), at }
    }

    fn run(file: &Path, log: &Path) -> Child {
        let log = std::fs::File::create(log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "haproxy", "-db", "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().expect("setpriv and HAProxy (Debian: haproxy)")
    }

    /// The answer to a request for a path; `None` where nobody leads, or nobody listens yet.
    fn get(&self, path: &str) -> Option<String> {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(BOUND)).build().into();
        let mut response = agent.get(format!("http://{}{path}", self.at)).call().ok()?;
        response.body_mut().read_to_string().ok()
    }

    fn leads_to(&self, member: u32) {
        within(BOUND, "requests reach the service beside the leader", || {
            (self.get("/orders?id=7")? == format!("service {member} /orders?id=7")).then_some(())
        });
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn requests_through_haproxy_follow_the_leader_over_transfers_and_kills() {
    let mut group = Group::new(3, LEASED);
    let services: Vec<_> = (1..=3).map(|id| service(&format!("service {id}"))).collect();
    group.start_all();
    let mut balancer = Balancer::start(&group, &services);
    let first = group.leader();
    balancer.leads_to(first);
    // Handed over.
    let second = first % 3 + 1;
    group.agree(first);
    group.hand_over(second);
    group.leader_except(&[first]);
    balancer.leads_to(group.leader());
    // Killed: nobody is asked until the next one leads.
    let killed = group.leader();
    group.kill(killed);
    let next = group.leader_except(&[killed]);
    balancer.leads_to(next);
    assert!(balancer.process.try_wait().unwrap().is_none(), "HAProxy runs on");
    // Nobody can lead alone, and so nobody gets a request.
    group.kill(next);
    within(BOUND, "no request is answered without a leader", || {
        std::thread::sleep(Duration::from_millis(20));
        balancer.get("/orders").is_none().then_some(())
    });
}
