//! How precise the emulator is on this machine: round trips, throughput, packets a second, processor time.
//!
//! A star of hosts with the round trips of the POLE paper's Table 2. What is measured are real sockets in real
//! namespaces: datagrams that an echo sends back, streams that carry as much as they can.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::wan::switch::{PRIORITY, become_real_time};
use crate::wan::{EmulatedHost, EmulatorError, Wan};
use mandate_cli::topology::Topology;

/// In milliseconds: none, and those of the paper's Table 2 up to 77.06.
pub const ROUND_TRIPS_MS: [f64; 5] = [0.0, 9.88, 20.75, 53.26, 77.06];

/// A mean may be off by so much, or one per cent of it if that is more.
pub const TOLERANCE_MS: f64 = 0.3;

/// Between two pings: more than a handful are under way on the longest link.
const PING_EVERY: Duration = Duration::from_millis(7);

/// How long a check takes for each figure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Pings for each round trip.
    pub pings: u32,
    /// Time for each throughput.
    pub stream: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { pings: 500, stream: Duration::from_secs(4) }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// For each of [`ROUND_TRIPS_MS`].
    pub links: Vec<LinkFindings>,
    /// Datagrams of 100 bytes that arrived in a second when as many as possible were sent.
    pub packets_per_second: f64,
    /// Share of a core that the emulator used meanwhile.
    pub processor_flooded: f64,
    /// Share of a core that it used when nothing was sent.
    pub processor_idle: f64,
    /// Whether its thread ran with real-time priority.
    pub real_time: bool,
    /// Whether all means are within the tolerance.
    pub precise: bool,
}

/// One link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFindings {
    /// What was asked for.
    pub wanted_ms: f64,
    /// The mean of what was measured.
    pub mean_ms: f64,
    /// The median.
    pub median_ms: f64,
    /// Ninety-nine of a hundred took no longer.
    pub p99_ms: f64,
    /// Whether the mean is within the tolerance.
    pub precise: bool,
    /// What one TCP connection carried, in megabits a second.
    pub tcp_mbit: f64,
    /// Share of a core that the emulator used meanwhile.
    pub processor: f64,
}

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The emulator did not start.
    #[error(transparent)]
    Start(#[from] EmulatorError),
    /// A socket failed.
    #[error("a socket inside the emulator failed")]
    Socket(#[from] io::Error),
}

/// Measures. `step` is called after each of [`STEPS`].
pub fn run(effort: Effort, mut step: impl FnMut()) -> Result<Findings, CheckError> {
    let wan = Wan::start(&star(), 1)?;
    let centre = &wan.hosts()[0];
    let mut links = Vec::new();
    let before = wan.processor_time();
    let began = Instant::now();
    sleep(Duration::from_secs(2));
    let processor_idle = share(&wan, before, began);
    step();
    for (wanted_ms, far) in ROUND_TRIPS_MS.iter().zip(&wan.hosts()[1..]) {
        let mut times = round_trips(centre, far, effort.pings)?;
        let before = wan.processor_time();
        let began = Instant::now();
        let tcp_mbit = throughput(centre, far, effort.stream)?;
        let processor = share(&wan, before, began);
        links.push(link_findings(*wanted_ms, &mut times, tcp_mbit, processor));
        step();
    }
    let before = wan.processor_time();
    let began = Instant::now();
    let packets_per_second = flood(centre, &wan.hosts()[1])?;
    let processor_flooded = share(&wan, before, began);
    step();
    Ok(Findings {
        precise: links.iter().all(|link| link.precise),
        links,
        packets_per_second,
        processor_flooded,
        processor_idle,
        real_time: wan.is_real_time(),
    })
}

/// How often [`run`] calls its `step`.
pub const STEPS: u64 = ROUND_TRIPS_MS.len() as u64 + 2;

fn star() -> Topology {
    let mut text = String::from("[[server]]\nid = 'p1'\nsite = 's0'\n");
    for (place, ms) in ROUND_TRIPS_MS.iter().enumerate() {
        text += &format!("[[server]]\nid = 'p{}'\nsite = 's{place}'\n", place + 2);
        for other in 0..place {
            // Only the centre's links are measured; the others must be there.
            text += &format!("[[rtt]]\na = 's{other}'\nb = 's{place}'\nms = {ms}\n");
        }
    }
    Topology::parse(&text).expect("it is well-formed")
}

fn share(wan: &Wan, before: Duration, began: Instant) -> f64 {
    (wan.processor_time() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

fn link_findings(wanted_ms: f64, times: &mut [f64], tcp_mbit: f64, processor: f64) -> LinkFindings {
    times.sort_by(f64::total_cmp);
    let mean_ms = times.iter().sum::<f64>() / times.len().max(1) as f64;
    let at = |share: f64| {
        let last = times.len().saturating_sub(1) as f64;
        times.get((share * last) as usize).copied().unwrap_or(f64::NAN)
    };
    LinkFindings {
        wanted_ms,
        mean_ms,
        median_ms: at(0.5),
        p99_ms: at(0.99),
        precise: (mean_ms - wanted_ms).abs() <= TOLERANCE_MS.max(wanted_ms / 100.0),
        tcp_mbit,
        processor,
    }
}

/// Round trips in milliseconds, by datagrams that are sent in a steady rhythm. The threads that ping and echo run with
/// real-time priority where that is allowed, below the emulator's: what is measured is the network, and not how
/// long a busy machine lets a process wait.
pub fn round_trips(from: &EmulatedHost, to: &EmulatedHost, pings: u32) -> io::Result<Vec<f64>> {
    let near = udp(from)?;
    let far = udp(to)?;
    near.connect((to.address, far.local_addr()?.port()))?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    }
    let began = Instant::now();
    let over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| echo(&far, &over));
        let sender = scope.spawn(|| ping(&near, pings, began));
        let receiver = scope.spawn(|| collect(&near, pings, began));
        let times = receiver.join().expect("it does not panic");
        over.store(true, Ordering::Relaxed);
        sender.join().expect("it does not panic")?;
        Ok(times)
    })
}

fn ping(socket: &UdpSocket, pings: u32, began: Instant) -> io::Result<()> {
    become_real_time(PRIORITY / 2);
    for number in 0..pings {
        let due = PING_EVERY * number;
        sleep(due.saturating_sub(began.elapsed()));
        socket.send(&(began.elapsed().as_nanos() as u64).to_be_bytes())?;
    }
    Ok(())
}

fn collect(socket: &UdpSocket, pings: u32, began: Instant) -> Vec<f64> {
    become_real_time(PRIORITY / 2);
    let mut times = Vec::new();
    let mut silent_since = Instant::now();
    let mut buffer = [0; 8];
    while times.len() < pings as usize && silent_since.elapsed() < Duration::from_secs(3) {
        if let Ok(8) = socket.recv(&mut buffer) {
            let now = began.elapsed().as_nanos() as u64;
            times.push(now.saturating_sub(u64::from_be_bytes(buffer)) as f64 / 1e6);
            silent_since = Instant::now();
        }
    }
    times
}

fn udp(host: &EmulatedHost) -> io::Result<UdpSocket> {
    host.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
}

fn echo(socket: &UdpSocket, over: &AtomicBool) {
    become_real_time(PRIORITY / 2);
    let mut buffer = [0; 1500];
    while !over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Megabits a second of one connection, once it has had a third of the time to get going.
fn throughput(from: &EmulatedHost, to: &EmulatedHost, time: Duration) -> io::Result<f64> {
    let listener = to.within(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let port = listener.local_addr()?.port();
    let mut sender = from.within(|| TcpStream::connect((to.address, port)))?;
    let (mut receiver, _) = listener.accept()?;
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![0; 1 << 17];
            while !over.load(Ordering::Relaxed) {
                if sender.write(&chunk).is_err() {
                    break;
                }
            }
            let _ = sender.shutdown(std::net::Shutdown::Both);
        });
        scope.spawn(|| {
            let mut chunk = vec![0; 1 << 17];
            while let Ok(length @ 1..) = receiver.read(&mut chunk) {
                received.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        sleep(time / 3);
        let (before, began) = (received.load(Ordering::Relaxed), Instant::now());
        sleep(time * 2 / 3);
        let bytes = received.load(Ordering::Relaxed) - before;
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        Ok(bytes as f64 * 8.0 / 1e6 / took.as_secs_f64())
    })
}

/// Small datagrams a second.
fn flood(from: &EmulatedHost, to: &EmulatedHost) -> io::Result<f64> {
    let (near, far) = (udp(from)?, udp(to)?);
    near.connect((to.address, far.local_addr()?.port()))?;
    far.set_read_timeout(Some(Duration::from_millis(100)))?;
    let time = Duration::from_secs(2);
    let began = Instant::now();
    let over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = near.send(&[0; 100]);
            }
        });
        let mut received = 0_u64;
        let mut buffer = [0; 1500];
        while began.elapsed() < time {
            received += u64::from(far.recv(&mut buffer).is_ok());
        }
        over.store(true, Ordering::Relaxed);
        Ok(received as f64 / time.as_secs_f64())
    })
}
