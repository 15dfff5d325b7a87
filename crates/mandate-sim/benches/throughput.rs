//! Simulated events a second on one core, memory of a monitored process, and the same heartbeats
//! under turmoil, the simulator that tokio's authors maintain, in the same run.
//!
//! Times depend on the machine; the ratio does much less. Turmoil advances in ticks (5 ms here, the
//! delay of the links) and runs whole network stacks and tasks; that is what it is for, and what it
//! costs.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use mandate_proto::detector::configurator::Bounds;
use mandate_proto::detector::monitor::{Monitor, MonitorConfig};
use mandate_proto::detector::nfd_e::{DEFAULT_WINDOW, NfdE};
use mandate_proto::detector::{Beat, Label};
use mandate_proto::nfd_l::{Config, NfdL};
use mandate_sim::clock::HostClocks;
use mandate_sim::link::LinkModel;
use mandate_sim::member;
use mandate_sim::nfd_l::{MemberConfig, Options, run};
use mandate_sim::time::SimTime;
use mandate_sim::world::{Machinery, World};

const MEMBERS: usize = 5;
const INTERVAL: Duration = Duration::from_millis(100);
const DETECT: Duration = Duration::from_millis(400);
const DELAY: Duration = Duration::from_millis(5);
const ROUNDS: usize = 5;

fn main() {
    // Not under `cargo test --benches`: a benchmark says nothing there.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let storms = best(|| storm_events(0..2_000));
    println!("storms (faults, invariants watched): {:8.0} thousand events a second", storms / 1e3);
    let steady = best(|| steady_deliveries(Duration::from_secs(20_000)));
    let turmoil = best(|| turmoil_deliveries(Duration::from_secs(100)));
    println!(
        "five members in steady state:        {:8.0} thousand heartbeats a second",
        steady / 1e3
    );
    println!("the same heartbeats under turmoil:   {:8.0} thousand a second", turmoil / 1e3);
    println!("ratio:                               {:8.1}", steady / turmoil);
    print_memory();
}

/// The best of a few rounds: what disturbs a round only ever slows it.
fn best(mut rate: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| rate()).fold(0.0, f64::max)
}

fn storm_events(seeds: std::ops::Range<u64>) -> f64 {
    let began = Instant::now();
    let events: u64 = seeds.map(|seed| run(seed, &Options::default(), None).events).sum();
    events as f64 / began.elapsed().as_secs_f64()
}

fn steady_deliveries(lasting: Duration) -> f64 {
    let hosts = (0..MEMBERS).map(|host| {
        let config = Config::new(member(host), INTERVAL, DETECT).expect("there is a margin");
        (MemberConfig { config, mutant: None }, HostClocks::new(0))
    });
    let link = LinkModel::perfect(DELAY);
    let mut world = World::<NfdL, ()>::new(1, hosts, link, Machinery::IDEAL, ());
    world.start_all();
    let began = Instant::now();
    world.run_until(SimTime::ZERO + lasting);
    world.counts().messages as f64 / began.elapsed().as_secs_f64()
}

/// One host sends a datagram to each of four others every interval.
fn turmoil_deliveries(lasting: Duration) -> f64 {
    const PORT: u16 = 7000;
    let mut sim = turmoil::Builder::new()
        .simulation_duration(lasting + Duration::from_secs(1))
        .min_message_latency(DELAY)
        .max_message_latency(DELAY)
        .tick_duration(Duration::from_millis(5))
        .build();
    let local = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);
    for host in 1..MEMBERS {
        sim.host(format!("monitor{host}"), move || async move {
            let socket = turmoil::net::UdpSocket::bind(local).await?;
            let mut buffer = [0; 64];
            loop {
                socket.recv_from(&mut buffer).await?;
            }
        });
    }
    let beats = lasting.as_millis() / INTERVAL.as_millis();
    sim.client("leader", async move {
        let socket = turmoil::net::UdpSocket::bind(local).await?;
        for _ in 0..beats {
            for host in 1..MEMBERS {
                socket.send_to(&[0; 48], (format!("monitor{host}"), PORT)).await?;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    });
    let began = Instant::now();
    sim.run().expect("the client ends well");
    (beats as f64 * (MEMBERS - 1) as f64) / began.elapsed().as_secs_f64()
}

fn print_memory() {
    let mut detector = NfdE::new(DETECT, DEFAULT_WINDOW);
    for i in 0..100 {
        let label = Label::from_sequence(i, INTERVAL);
        let now = mandate_proto::time::Instant::ORIGIN + INTERVAL * i as u32;
        detector.arrive(Beat { label, interval: INTERVAL }, now);
    }
    let nfd_e = size_of::<NfdE>() + detector.heap_bytes();
    println!(
        "memory of a monitored process:       {nfd_e:8} bytes (NFD-E, window {DEFAULT_WINDOW})"
    );
    let second = Duration::from_secs(1);
    let bounds = Bounds::new(second, second, second).expect("positive bounds");
    let config = MonitorConfig { bounds, min_interval: INTERVAL, delay: DELAY };
    let monitor = Monitor::new(config);
    let whole = size_of_val(&monitor) + detector.heap_bytes();
    println!("                                     {whole:8} bytes (with estimator and plan)");
}
