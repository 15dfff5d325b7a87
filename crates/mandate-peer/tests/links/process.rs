//! A member in a process of its own, which can be killed: this very test program, started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::authority::Authority;
use crate::group::{config_with, local, name, start_when_free};

const VARIABLE: &str = "MANDATE_TEST_MEMBER";

/// A running member.
pub(crate) struct Child {
    process: std::process::Child,
    pub(crate) address: SocketAddr,
}

impl Child {
    /// Starts a member with one peer. It dials `dial`, if its id is the lower one.
    pub(crate) fn start(
        authority: &Authority,
        number: u32,
        peer: u32,
        listen: SocketAddr,
        dial: Option<SocketAddr>,
    ) -> Child {
        let papers = authority.papers(&[&name(number)]);
        let dial = dial.unwrap_or(local(1));
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::be_the_member_of_another_test", "--nocapture"])
            .env(VARIABLE, format!("{number} {peer} {listen} {dial}"))
            .env("MANDATE_TEST_CA", &authority.pem)
            .env("MANDATE_TEST_CHAIN", &papers.chain)
            .env("MANDATE_TEST_KEY", &papers.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let address = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("listens on ")?.1.trim().parse().ok())
            .expect("the other process does not start");
        Child { process, address }
    }

    /// Makes it stand still, as a host that is overloaded or suspended does: nothing is closed.
    #[cfg(unix)]
    pub(crate) fn pause(&self) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &process]).status().unwrap().success());
    }

    /// Kills it as the kernel would: nothing of it runs any more.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Child {
    /// Also when a test fails: otherwise a stopped process would remain.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does nothing, unless another test starts it as a process.
#[test]
fn be_the_member_of_another_test() {
    let Ok(what) = std::env::var(VARIABLE) else { return };
    let [number, peer, listen, dial] = what.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{what}")
    };
    let text = |name| std::env::var(name).unwrap();
    let papers = crate::authority::Papers {
        chain: text("MANDATE_TEST_CHAIN"),
        key: text("MANDATE_TEST_KEY"),
    };
    let mut authority = Authority::new();
    authority.pem = text("MANDATE_TEST_CA");
    let peers = [(peer.parse().unwrap(), dial.parse().unwrap())];
    let mut config = config_with(&authority, &papers, number.parse().unwrap(), &peers);
    config.listen = listen.parse().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async move {
        let mut member = start_when_free(config).await;
        println!("listens on {}", member.links.local_addr());
        // Ends with its parent, should that end without killing it.
        std::thread::spawn(|| {
            let _ = std::io::stdin().lines().count();
            std::process::exit(0);
        });
        while member.events.recv().await.is_some() {}
    });
}
