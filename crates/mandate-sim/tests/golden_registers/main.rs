//! Golden interactions on a database: small groups, exact times, every statement that decides something.
//! They change only when the protocol does.
//!
//! `UPDATE_EXPECT=1 cargo test -p mandate-sim --test golden_registers` writes them anew.

use std::fmt::Write;
use std::time::Duration;

use expect_test::expect_file;
use mandate_proto::election::State;
use mandate_proto::registers::{Config, Event, Input, Reign, SqlGuarantee, Statement};
use mandate_sim::clock::HostClocks;
use mandate_sim::fault::{DiskFate, Fault};
use mandate_sim::link::LinkModel;
use mandate_sim::member;
use mandate_sim::registers::{
    DatabaseConfig, Flaws, Message, Node, NodeEvent, NodeInput, SimulatedNodeConfig, Strain,
    Trouble,
};
use mandate_sim::subject::{Moment, Observation, SimulationObserver};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};

const MEMBERS: usize = 3;

struct Script {
    world: World<Node, Scribe>,
}

#[derive(Default)]
struct Scribe {
    text: String,
    is_quiet: bool,
    began: SimTime,
}

impl Script {
    /// Three members whose leader has led for a while: a millisecond to the database, rounds of 100 ms.
    fn settled(guarantee: SqlGuarantee) -> Self {
        let database = member(MEMBERS);
        let members = (0..MEMBERS).map(|host| {
            let config = Config::lan(member(host)).with_guarantee(guarantee);
            (SimulatedNodeConfig::Member { config, database, mutant: None }, HostClocks::new(0))
        });
        let strain = Strain::calm(Duration::ZERO);
        let flaws = Flaws::default();
        let config =
            DatabaseConfig { strain, flaws, has_backups: true, notifies: false, row: None };
        let nodes = members.chain([(SimulatedNodeConfig::Database(config), HostClocks::new(0))]);
        let links = LinkModel::perfect(Duration::from_millis(1));
        let mut world = World::new(1, nodes, links, Machinery::IDEAL, Scribe::default());
        world.observer.is_quiet = true;
        world.start_all();
        world.run_until(SimTime::ZERO + Duration::from_secs(2));
        world.observer.is_quiet = false;
        world.observer.began = world.now();
        Script { world }
    }

    fn leader(&self) -> usize {
        let leads = |host: &usize| {
            let local = self.world.local_time(*host);
            let member = self.world.machine(*host).and_then(Node::member);
            member.is_some_and(|member| member.mandate(local).is_some())
        };
        (0..MEMBERS).find(leads).expect("a leader")
    }

    fn note(&mut self, text: &str) {
        let scribe = &mut self.world.observer;
        scribe.text += &format!("{}# {text}\n", if scribe.text.is_empty() { "" } else { "\n" });
    }

    fn tell(&mut self, host: usize, input: Input) {
        let now = self.world.now();
        self.world.observer.line(now, &format!("{} is told {input:?}", member(host)));
        self.world.tell(host, NodeInput::Member(input));
    }

    fn run_for(&mut self, ms: u64) {
        self.world.run_until(self.world.now() + Duration::from_millis(ms));
    }

    fn text(&self) -> String {
        self.world.observer.text.clone()
    }
}

impl Scribe {
    fn line(&mut self, now: SimTime, what: &str) {
        if !self.is_quiet {
            let at = (now - self.began).as_micros() as f64 / 1000.0;
            let _ = writeln!(self.text, "{at:>7.1} ms  {what}");
        }
    }
}

impl SimulationObserver<Node> for Scribe {
    fn observe(&mut self, moment: Moment, what: &Observation<'_, Node>) {
        let id = member(moment.host);
        let line = match what {
            Observation::Faulted(fault) => format!("*** {fault}"),
            Observation::Sent(Message::Request { statement, .. }) => match asked(statement) {
                Some(text) => format!("{id} asks     {text}"),
                None => return,
            },
            Observation::Told(NodeEvent::Member(event)) => match told(event) {
                Some(text) => format!("{id}          {text}"),
                None => return,
            },
            _ => return,
        };
        self.line(moment.now, &line);
    }
}

/// What decides something; looks, heartbeats, renewals and sweeps go on all the time.
fn asked(statement: &Statement) -> Option<String> {
    Some(match statement {
        Statement::Join { was_evicted, .. } => {
            format!("join{}", if *was_evicted { ", although evicted" } else { "" })
        }
        Statement::Takeover { was, term, reason, .. } => {
            format!("take over {was} as term {term}: {reason:?}")
        }
        Statement::Vacate { was, successors, .. } => {
            let next = successors.iter().next().map_or("nobody".into(), |id| id.to_string());
            format!("vacate {was}, next is {next}")
        }
        Statement::Leave { .. } => "leave".into(),
        Statement::Evict { holder, counter } => {
            format!("evict {} if its counter is {counter}", holder.member)
        }
        _ => return None,
    })
}

fn told(event: &Event) -> Option<String> {
    Some(match event {
        Event::Changed(State::Electing) => "has no leader".into(),
        Event::Changed(State::Following { leader, term }) => {
            format!("FOLLOWS {leader} in term {term}")
        }
        Event::Changed(State::Leading { term }) => format!("LEADS in term {term}"),
        Event::Lost { term, loss } => format!("has lost term {term}: {loss:?}"),
        Event::Reigned(Reign { term, leader: None, reason, .. }) => {
            format!("sees that term {term} was given back: {reason:?}")
        }
        Event::WentBack { from, to: Some(to) } => {
            format!("sees that the row went back from {from} to {to}")
        }
        Event::WentBack { from, to: None } => format!("sees that the row, at {from}, is gone"),
        Event::Remade { term } => format!("sees that the row was made again at term {term}"),
        Event::Removed { member } => format!("has evicted {member}"),
        Event::RoundChanged { round } => format!("goes by rounds of {round:?}"),
        Event::Failed { unknown: true, times } => format!("was not answered ({times})"),
        _ => return None,
    })
}

#[test]
fn the_leader_crashes() {
    let mut script = Script::settled(SqlGuarantee::Leased);
    script
        .note("The leader crashes. The first successor waits for its lease, and evicts it later.");
    let leader = script.leader();
    script.world.inject(Fault::Crash(leader));
    script.run_for(600);
    script.note("It comes back.");
    script.world.inject(Fault::Recover { host: leader, disk: DiskFate::Kept });
    script.run_for(200);
    expect_file!["the-leader-crashes.txt"].assert_eq(&script.text());
}

#[test]
fn a_session_ends() {
    let mut script = Script::settled(SqlGuarantee::Fenced);
    script.note("Without leases: the leader crashes, and its session tells the others.");
    let leader = script.leader();
    let local = script.world.local_time(leader);
    let held = script.world.machine(leader).and_then(Node::member);
    let term = held.and_then(|member| member.mandate(local)).expect("a term");
    script.world.inject(Fault::Crash(leader));
    for host in (0..MEMBERS).filter(|host| *host != leader) {
        script.tell(host, Input::LeaderSessionGone { term });
    }
    script.run_for(30);
    expect_file!["a-session-ends.txt"].assert_eq(&script.text());
}

#[test]
fn a_transfer() {
    let mut script = Script::settled(SqlGuarantee::Leased);
    script.note("The leader hands over to the other that is not its first successor.");
    let leader = script.leader();
    let row = script.world.machine(leader).and_then(Node::member).expect("a member").member().row();
    let first = row.and_then(|row| row.published.successors.iter().next()).expect("a successor");
    let other = |host: &usize| *host != leader && member(*host) != first;
    let to = member((0..MEMBERS).find(other).expect("another"));
    script.tell(leader, Input::Transfer { to });
    script.run_for(60);
    expect_file!["a-transfer.txt"].assert_eq(&script.text());
}

#[test]
fn a_leader_is_cut_off() {
    let mut script = Script::settled(SqlGuarantee::Leased);
    script.note("Answers to the leader are lost: it stops before the others may take over.");
    let (from, to) = (MEMBERS, script.leader());
    script.world.inject(Fault::Cut { from, to });
    script.run_for(400);
    expect_file!["a-leader-is-cut-off.txt"].assert_eq(&script.text());
}

#[test]
fn a_database_is_restored() {
    let mut script = Script::settled(SqlGuarantee::Leased);
    script.note("The database is away for a second, and comes back as it was twenty writes ago.");
    let trouble = Trouble::Restore { writes: 20, down: Duration::from_secs(1) };
    script.world.tell(MEMBERS, NodeInput::Database(trouble));
    script.run_for(2600);
    expect_file!["a-database-is-restored.txt"].assert_eq(&script.text());
}

#[test]
fn a_row_is_removed() {
    let mut script = Script::settled(SqlGuarantee::Leased);
    script.note("The control row is removed. The leader stops when it renews; nobody leads for the longest lease.");
    script.world.tell(MEMBERS, NodeInput::Database(Trouble::Vanish { history: false }));
    script.run_for(1500);
    expect_file!["a-row-is-removed.txt"].assert_eq(&script.text());
}
