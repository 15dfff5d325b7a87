//! What one directed link does to packets. Pure: time and chance come in as arguments.
//!
//! A packet is lost by chance, or waits for the line (bandwidth) and then for the distance (delay and jitter), and
//! comes out in the order in which it went in. Delay is constant plus jitter with a Pareto tail of shape 3, as
//! netem's table has it, but scaled so that the standard deviation is what was asked for (netem's is larger), and cut
//! at twenty of them.
//!
//! **Jitter holds for a while.** Each packet with a jitter of its own, and order kept, means that a slow packet
//! holds up those behind: the mean rises with the packet rate. So it is drawn anew at most every 10 ms, as if the
//! route's queues had changed, and packets that are close together share it.

use std::collections::VecDeque;
use std::time::Duration;

use mandate_sim::random::Random;
use serde::{Deserialize, Serialize};

/// How long a jitter holds.
const JITTER_HOLDS: u64 = 10_000_000;

/// Jitter is cut at so many standard deviations: one packet in 40,000 would exceed it.
const MAX_DEVIATIONS: f64 = 20.0;

/// The most that a link without a bandwidth holds, in bytes: 64 MB, some 77 ms at 7 Gb/s.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The queue before a line of limited bandwidth: packets that would wait longer are dropped, as by a router with
/// buffers for 100 ms; a slow line holds at least a few packets.
const LINE_QUEUE: Duration = Duration::from_millis(100);
const LINE_QUEUE_MIN_BYTES: f64 = 16.0 * 1500.0;

/// A link as the topology has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkSettings {
    /// One way.
    pub delay: Duration,
    /// Its standard deviation.
    pub jitter: Duration,
    /// The share of packets that are lost.
    pub loss: f64,
    /// The bandwidth, if it is limited.
    pub bits_per_second: Option<f64>,
}

/// What is wrong with a link besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Impairment {
    /// Nothing comes through, and what is under way is lost.
    pub cut: bool,
    /// The share of packets that are lost besides.
    pub loss: f64,
    /// Added to the delay.
    pub delay: Duration,
    /// Added to the jitter.
    pub jitter: Duration,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Delivered packets.
    pub delivered: u64,
    /// Delivered bytes.
    pub bytes: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost to a cut.
    pub cut: u64,
    /// Lost because a queue was full.
    pub overflowed: u64,
}

struct Packet {
    /// Nanoseconds.
    due: u64,
    bytes: Vec<u8>,
}

/// A directed link and what is under way on it. Times are nanoseconds of one clock.
pub struct EmulatedLink {
    quality: LinkSettings,
    impairment: Impairment,
    /// In standard deviations.
    deviation: f64,
    redraw: u64,
    line_free: u64,
    last_due: u64,
    queue: VecDeque<Packet>,
    queued_bytes: usize,
    counts: PacketCounts,
}

impl EmulatedLink {
    /// A link on which nothing is under way.
    pub fn new(quality: LinkSettings) -> Self {
        EmulatedLink {
            quality,
            impairment: Impairment::default(),
            deviation: 0.0,
            redraw: 0,
            line_free: 0,
            last_due: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            counts: PacketCounts::default(),
        }
    }

    /// What is wrong with it.
    pub fn impairment(&self) -> Impairment {
        self.impairment
    }

    /// What became of packets so far.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Changes what is wrong with it. A cut loses what is under way.
    pub fn impair(&mut self, impairment: Impairment) {
        self.impairment = impairment;
        // A new jitter counts at once, and its end too.
        self.redraw = 0;
        if impairment.cut {
            self.counts.cut += self.queue.len() as u64;
            self.queue.clear();
            self.queued_bytes = 0;
        }
    }

    /// Takes a packet that was sent at `now`.
    pub fn send(&mut self, bytes: &[u8], now: u64, random: &mut Random) {
        if self.impairment.cut {
            self.counts.cut += 1;
            return;
        }
        if random.chance(self.quality.loss) || random.chance(self.impairment.loss) {
            self.counts.lost += 1;
            return;
        }
        let Some(leaves) = self.leaves_line(bytes.len(), now) else {
            self.counts.overflowed += 1;
            return;
        };
        let due = leaves.saturating_add(self.distance(now, random)).max(self.last_due);
        self.last_due = due;
        self.queued_bytes += bytes.len();
        self.queue.push_back(Packet { due, bytes: bytes.to_vec() });
    }

    /// When a packet of this length has left the line; none if a queue is full.
    fn leaves_line(&mut self, length: usize, now: u64) -> Option<u64> {
        if self.queued_bytes + length > MAX_QUEUED_BYTES {
            return None;
        }
        let Some(rate) = self.quality.bits_per_second else { return Some(now) };
        let begins = self.line_free.max(now);
        let waits = (begins - now) as f64;
        let held = LINE_QUEUE.as_nanos() as f64;
        if waits > held.max(LINE_QUEUE_MIN_BYTES * 8.0 / rate * 1e9) {
            return None;
        }
        self.line_free = begins + (length as f64 * 8.0 / rate * 1e9) as u64;
        Some(self.line_free)
    }

    fn distance(&mut self, now: u64, random: &mut Random) -> u64 {
        let jitter = (self.quality.jitter + self.impairment.jitter).as_nanos() as f64;
        let delay = (self.quality.delay + self.impairment.delay).as_nanos() as f64;
        if jitter == 0.0 {
            return delay as u64;
        }
        if now >= self.redraw {
            self.deviation = pareto(random);
            self.redraw = now + JITTER_HOLDS;
        }
        (delay + jitter * self.deviation).max(0.0) as u64
    }

    /// When the next packet comes out.
    pub fn next_due(&self) -> Option<u64> {
        self.queue.front().map(|packet| packet.due)
    }

    /// The next packet that is out by `now`.
    pub fn receive(&mut self, now: u64) -> Option<Vec<u8>> {
        let packet = self.queue.pop_front_if(|packet| packet.due <= now)?;
        self.queued_bytes -= packet.bytes.len();
        self.counts.delivered += 1;
        self.counts.bytes += packet.bytes.len() as u64;
        Some(packet.bytes)
    }
}

/// A Pareto variable of shape 3, with a mean of 0 and a standard deviation of 1.
fn pareto(random: &mut Random) -> f64 {
    // From (0, 1]: never zero, which the power could not take.
    let uniform = ((random.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let plain = uniform.powf(-1.0 / 3.0);
    let (mean, deviation) = (1.5, 0.75_f64.sqrt());
    ((plain - mean) / deviation).min(MAX_DEVIATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_sim::random::Stream;

    const MS: u64 = 1_000_000;

    fn random() -> Random {
        Random::new(7, Stream::Network)
    }

    fn quality() -> LinkSettings {
        LinkSettings { delay: Duration::from_millis(10), ..LinkSettings::default() }
    }

    /// Delays in milliseconds of packets that are sent this far apart.
    fn delays(quality: LinkSettings, count: u64, apart: u64) -> Vec<f64> {
        let (mut link, mut random) = (EmulatedLink::new(quality), random());
        let mut delays = Vec::new();
        for i in 0..count {
            link.send(&[0; 100], i * apart, &mut random);
            if let Some(due) = link.next_due() {
                delays.push((due - i * apart) as f64 / MS as f64);
                link.receive(due).unwrap();
            }
        }
        delays
    }

    #[test]
    fn a_packet_comes_out_after_the_delay_and_not_before() {
        let (mut link, mut random) = (EmulatedLink::new(quality()), random());
        link.send(b"hello", 5 * MS, &mut random);
        assert_eq!(link.next_due(), Some(15 * MS));
        assert_eq!(link.receive(15 * MS - 1), None);
        assert_eq!(link.receive(15 * MS), Some(b"hello".to_vec()));
        assert_eq!(link.receive(100 * MS), None);
    }

    #[test]
    fn jitter_has_the_deviation_asked_for_and_leaves_the_mean_alone_at_any_rate() {
        for apart in [MS / 10, 20 * MS] {
            let jitter = Duration::from_micros(500);
            let delays = delays(LinkSettings { jitter, ..quality() }, 400_000, apart);
            let mean = delays.iter().sum::<f64>() / delays.len() as f64;
            let variance =
                delays.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / delays.len() as f64;
            assert!((mean - 10.0).abs() < 0.05, "{mean} at {apart}");
            assert!((variance.sqrt() - 0.5).abs() < 0.1, "{} at {apart}", variance.sqrt());
            // A Pareto tail: some are far behind, none is far ahead.
            let (least, most) = (
                delays.iter().copied().fold(99.0, f64::min),
                delays.iter().copied().fold(0.0, f64::max),
            );
            assert!(least > 9.6 && most > 12.0 && most <= 20.0, "{least} {most}");
        }
    }

    #[test]
    fn order_is_kept_whatever_the_jitter() {
        let jitter = Duration::from_millis(50);
        let (mut link, mut random) =
            (EmulatedLink::new(LinkSettings { jitter, ..quality() }), random());
        for i in 0..10_000_u64 {
            link.send(&i.to_be_bytes(), i * MS, &mut random);
        }
        let mut last = 0;
        for i in 0..10_000_u64 {
            let due = link.next_due().unwrap();
            assert!(due >= last);
            last = due;
            assert_eq!(link.receive(due), Some(i.to_be_bytes().to_vec()));
        }
    }

    #[test]
    fn loss_has_the_share_asked_for_and_a_fault_adds_to_it() {
        let arrived = delays(LinkSettings { loss: 0.1, ..quality() }, 100_000, MS).len();
        assert!((89_500..90_500).contains(&arrived), "{arrived}");
        let (mut link, mut random) =
            (EmulatedLink::new(LinkSettings { loss: 0.1, ..quality() }), random());
        link.impair(Impairment { loss: 0.5, ..Impairment::default() });
        for i in 0..100_000 {
            link.send(&[0; 10], i * MS, &mut random);
        }
        let lost = link.counts().lost;
        assert!((54_000..56_000).contains(&lost), "0.1 and half of the rest: {lost}");
    }

    #[test]
    fn a_line_sends_at_its_rate_and_drops_what_would_wait_too_long() {
        // 8 Mb/s: a packet of 1000 bytes takes a millisecond.
        let quality = LinkSettings { bits_per_second: Some(8e6), ..quality() };
        let (mut link, mut random) = (EmulatedLink::new(quality), random());
        for _ in 0..300 {
            link.send(&[0; 1000], 0, &mut random);
        }
        let counts = link.counts();
        assert_eq!(counts.overflowed, 300 - 101, "those that would begin after 100 ms");
        let mut dues = Vec::new();
        while let Some(due) = link.next_due() {
            dues.push(due);
            link.receive(due);
        }
        assert_eq!((dues[0], dues[1], dues[100]), (11 * MS, 12 * MS, 111 * MS));
    }

    #[test]
    fn a_link_without_a_bandwidth_is_bounded_too() {
        let quality = LinkSettings { delay: Duration::from_secs(60), ..LinkSettings::default() };
        let (mut link, mut random) = (EmulatedLink::new(quality), random());
        for _ in 0..70 {
            link.send(&[0; 1 << 20], 0, &mut random);
        }
        assert_eq!(link.counts().overflowed, 70 - 64);
    }

    #[test]
    fn a_cut_loses_what_is_under_way_and_what_is_sent_until_it_heals() {
        let (mut link, mut random) = (EmulatedLink::new(quality()), random());
        link.send(&[1], 0, &mut random);
        link.impair(Impairment { cut: true, ..Impairment::default() });
        link.send(&[2], MS, &mut random);
        assert_eq!((link.next_due(), link.counts().cut), (None, 2));
        link.impair(Impairment::default());
        link.send(&[3], 2 * MS, &mut random);
        assert_eq!(link.receive(12 * MS), Some(vec![3]));
    }
}
