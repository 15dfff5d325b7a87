//! Traces of heartbeats: which arrived when.
//!
//! As a file, a trace is CSV with a header and two columns, in order of arrival:
//!
//! ```csv
//! sequence,arrival_ms
//! 1,330.412
//! 2,660.398
//! 4,1320.711
//! ```
//!
//! `sequence` is the number of the heartbeat, sent at `sequence * interval` by the sender's
//! clock; `arrival_ms` is when it arrived by the monitor's. The two clocks need not agree.

use std::io::{Read, Write};
use std::time::Duration;

use mandate_proto::detector::estimator::{Estimate, Estimator, MEMORY};
use mandate_proto::detector::recorder::{DetectorReport, Recorder};
use mandate_proto::detector::{Beat, FailureDetector, Label, Verdict};
use mandate_proto::time::Instant;
use serde::{Deserialize, Serialize};

/// The most heartbeats a trace may have: a year of one every 300 ms, or 2.5 GB of memory.
pub const MAX_ARRIVALS: usize = 100_000_000;

/// A heartbeat that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedArrival {
    /// Its number.
    pub sequence: u64,
    /// When, by the monitor's clock.
    pub at: Instant,
}

/// Heartbeats of one sender with a fixed interval, in order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    interval: Duration,
    arrivals: Vec<RecordedArrival>,
    /// Measured once: detectors are tuned by replaying a trace many times.
    estimate: Option<Estimate>,
    sending: Sending,
}

/// When heartbeats were sent, by the monitor's clock, in nanoseconds: a straight line, drift
/// included, on which the fastest heartbeat took no time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sending {
    origin: f64,
    interval: f64,
}

/// Why a file is no trace. Nothing was kept of it.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTrace {
    /// The interval makes no sense.
    #[error("the interval between heartbeats must be longer than zero")]
    ZeroInterval,
    /// Not CSV with the two columns.
    #[error("not a trace of arrivals (a header `sequence,arrival_ms`, then a line each): {0}")]
    Csv(csv::Error),
    /// An arrival time that is none.
    #[error("line {line}: arrival_ms is {value}, and must be a time from 0 to 9e12")]
    Time {
        /// Line of the file.
        line: u64,
        /// What stands there.
        value: f64,
    },
    /// Arrivals out of order.
    #[error("line {line}: arrives before the line above it; lines must be in order of arrival")]
    Unordered {
        /// Line of the file.
        line: u64,
    },
    /// Too long.
    #[error("more than {MAX_ARRIVALS} arrivals; cut the trace into parts")]
    TooLong,
    /// Too short to measure anything.
    #[error("{0} arrivals; at least 3 are needed to measure a link")]
    TooShort(usize),
}

#[derive(Deserialize, Serialize)]
struct Row {
    sequence: u64,
    arrival_ms: f64,
}

impl Trace {
    /// Reads a trace of a sender with this interval.
    pub fn read(from: impl Read, interval: Duration) -> Result<Self, InvalidTrace> {
        if interval.is_zero() {
            return Err(InvalidTrace::ZeroInterval);
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(from);
        // Read first: an error in it would otherwise pass for an empty file.
        let header = reader.headers().map_err(InvalidTrace::Csv)?.clone();
        let mut arrivals: Vec<RecordedArrival> = Vec::new();
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(InvalidTrace::Csv)? {
            // A record's own position is that of the blank lines before it.
            let begin = record.position().map_or(0, csv::Position::line);
            let line = begin.max(reader.position().line().saturating_sub(1));
            let row = record.deserialize(Some(&header)).map_err(InvalidTrace::Csv)?;
            let Row { sequence, arrival_ms } = row;
            if !(0.0..=9e12).contains(&arrival_ms) {
                return Err(InvalidTrace::Time { line, value: arrival_ms });
            }
            let at = Instant::from_nanos((arrival_ms * 1e6) as u64);
            if arrivals.last().is_some_and(|last| at < last.at) {
                return Err(InvalidTrace::Unordered { line });
            }
            if arrivals.len() == MAX_ARRIVALS {
                return Err(InvalidTrace::TooLong);
            }
            arrivals.push(RecordedArrival { sequence, at });
        }
        match arrivals.len() {
            few @ 0..3 => Err(InvalidTrace::TooShort(few)),
            _ => Ok(Trace::new(interval, arrivals)),
        }
    }

    /// A trace of these arrivals, which are in order.
    /// Of arrivals that are in order.
    pub fn new(interval: Duration, arrivals: Vec<RecordedArrival>) -> Self {
        let mut estimator = Estimator::new(u64::MAX);
        for arrival in &arrivals {
            estimator.arrive(beat(*arrival, interval), arrival.at);
        }
        let estimate = estimator.estimate();
        let drift = estimate.map_or(0.0, |estimate| estimate.drift);
        let drifting = interval.as_nanos() as f64 * (1.0 + drift);
        let offset = |arrival: &RecordedArrival| {
            arrival.at.as_nanos() as f64 - arrival.sequence as f64 * drifting
        };
        let origin = arrivals.iter().map(offset).fold(f64::INFINITY, f64::min);
        let sending = Sending { origin, interval: drifting };
        Trace { interval, arrivals, estimate, sending }
    }

    /// Writes it as a file.
    pub fn write(&self, to: impl Write) -> Result<(), csv::Error> {
        let mut writer = csv::Writer::from_writer(to);
        for arrival in &self.arrivals {
            let arrival_ms = arrival.at.as_nanos() as f64 / 1e6;
            writer.serialize(Row { sequence: arrival.sequence, arrival_ms })?;
        }
        Ok(writer.flush()?)
    }

    /// The sender's interval.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The arrivals, in order.
    pub fn arrivals(&self) -> &[RecordedArrival] {
        &self.arrivals
    }

    /// The link as measured, over the whole trace.
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// Runs a detector over the trace. The sender is up throughout, so every suspicion is a
    /// mistake; how long a crash would have gone unnoticed is averaged over all moments at which
    /// it might have happened.
    pub fn replay(&self, detector: &mut impl FailureDetector) -> Replay {
        let mut detection = DetectionTimes::default();
        let Some((first, rest)) = self.arrivals.split_first() else {
            let report = Recorder::new(Instant::ORIGIN).report(Instant::ORIGIN);
            return Replay { report, detection };
        };
        let Sending { origin, interval } = self.sending;
        let mut recorder = Recorder::new(first.at);
        let mut latest = first.sequence;
        detector.heartbeat(beat(*first, self.interval), first.at);
        for arrival in rest {
            let until = detector.trusted_until();
            if let Some(until) = until.filter(|until| *until <= arrival.at) {
                recorder.output(Verdict::Suspect, until);
            }
            // A crash after any of these would have left the freshness point where it is.
            for sequence in latest..arrival.sequence.min(latest.saturating_add(MEMORY)) {
                let sent = origin + sequence as f64 * interval;
                let until = until.map_or(0.0, |until| until.as_nanos() as f64);
                detection.add((until - sent) / 1e9, interval / 1e9);
            }
            latest = latest.max(arrival.sequence);
            detector.heartbeat(beat(*arrival, self.interval), arrival.at);
            recorder.output(detector.verdict(arrival.at), arrival.at);
        }
        let end = rest.last().map_or(first.at, |arrival| arrival.at);
        Replay { report: recorder.report(end), detection }
    }
}

fn beat(arrival: RecordedArrival, interval: Duration) -> Beat {
    Beat { label: Label::from_sequence(arrival.sequence, interval), interval }
}

/// What came of running a detector over a trace.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Its mistakes.
    pub report: DetectorReport,
    /// How quickly it would have noticed a crash.
    pub detection: DetectionTimes,
}

/// Detection times over all moments at which the sender might have crashed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DetectionTimes {
    count: u64,
    sum: f64,
    max: f64,
}

impl DetectionTimes {
    /// Crashes spread over the interval after a heartbeat, whose freshness lasts `freshness`
    /// seconds from its sending.
    fn add(&mut self, freshness: f64, interval: f64) {
        self.count += 1;
        self.sum += (freshness - interval / 2.0).max(0.0);
        self.max = self.max.max(freshness);
    }

    /// The mean, in seconds.
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The worst, in seconds.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// Together with that of other traces.
    pub fn merge(&mut self, other: DetectionTimes) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::detector::fixed_timeout::FixedTimeout;

    const MS: Duration = Duration::from_millis(1);

    fn read(text: &str) -> Result<Trace, InvalidTrace> {
        Trace::read(text.as_bytes(), MS * 100)
    }

    #[test]
    fn a_trace_reads_back_as_it_was_written() {
        let arrived = (1..100).filter(|sequence| sequence % 10 != 0);
        let arrival = |sequence| RecordedArrival {
            sequence,
            at: Instant::from_nanos(sequence * 100_000_000 + 1_000_000),
        };
        let trace = Trace::new(MS * 100, arrived.map(arrival).collect());
        let mut file = Vec::new();
        trace.write(&mut file).unwrap();
        let again = Trace::read(file.as_slice(), MS * 100).unwrap();
        assert_eq!(again.arrivals(), trace.arrivals());
    }

    #[test]
    fn what_is_no_trace_is_refused_with_the_line_and_the_reason() {
        let cases = [
            ("sequence,arrival_ms\n1,100\n2,abc\n3,300\n", "line: 3"),
            ("sequence,arrival_ms\n1,100\n2,-5\n", "line 3: arrival_ms is -5"),
            ("sequence,arrival_ms\n1,100\n2,NaN\n", "line 3: arrival_ms is NaN"),
            ("sequence,arrival_ms\n1,300\n2,200\n", "line 3: arrives before"),
            ("sequence,arrival_ms\n1,300\n", "1 arrivals; at least 3"),
            ("when,what\n1,300\n", "sequence"),
            ("", "at least 3"),
        ];
        for (text, expected) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gives {error}");
        }
    }

    #[test]
    fn a_drift_of_the_clocks_does_not_change_how_soon_a_crash_would_be_noticed() {
        // Two hours at 100 ms; the monitor's clock gains 200 ppm, 1.4 s in all.
        let arrivals = (1..72_000u64).map(|i| {
            let at = Instant::from_nanos(i * 100_020_000 + 1_000_000);
            RecordedArrival { sequence: i, at }
        });
        let trace = Trace::new(MS * 100, arrivals.collect());
        let replay = trace.replay(&mut FixedTimeout::new(MS * 250));
        assert!((replay.detection.mean() - 0.2).abs() < 0.001, "{:?}", replay.detection);
    }

    #[test]
    fn lines_are_counted_as_an_editor_does() {
        let error = read("sequence,arrival_ms\n\n\n1,100\n\n2,-5\n").unwrap_err().to_string();
        assert!(error.contains("line 6"), "{error}");
    }

    #[test]
    fn a_replay_counts_mistakes_and_would_be_detection_times() {
        // A timeout of 250 ms, and heartbeats 3 and 4 lost: one mistake of 50 ms.
        let trace = read("sequence,arrival_ms\n1,101\n2,201\n5,501\n6,601\n").unwrap();
        let replay = trace.replay(&mut FixedTimeout::new(MS * 250));
        assert_eq!(replay.report.mistakes, 1);
        assert!((replay.report.mistake_duration.unwrap().median - 0.05).abs() < 1e-9);
        // After 1, 2 and 5: 250 ms from sending, less half an interval. After the lost 3 and 4:
        // 100 and 200 ms less.
        let mean = (200.0 * 3.0 + 100.0 + 0.0) / 5.0 / 1000.0;
        assert!((replay.detection.mean() - mean).abs() < 1e-9, "{:?}", replay.detection);
        assert!((replay.detection.max() - 0.25).abs() < 1e-9);
    }
}
