//! What came out of a trial, as figures.

use std::time::Duration;

use serde::Serialize;

use super::trial::Outcome;

/// What came out. Times are milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RivalFigures {
    /// How many members took part.
    pub members: u64,
    /// Faults after which another led in time.
    pub answered: usize,
    /// Faults after which nobody else did.
    pub unanswered: usize,
    /// Until the next leader's first act: the half of them, where there are any.
    pub median_ms: Option<f64>,
    /// 95 of a hundred.
    pub p95_ms: Option<f64>,
    /// All.
    pub max_ms: Option<f64>,
    /// The longest time for which an old leader went on acting after the first act of the new one.
    pub overlap_ms: f64,
    /// Acts of old leaders after the first of the new one.
    pub stale_acts: u64,
    /// Acts in all, so that one sees how closely it was watched.
    pub acts: u64,
    /// How long rounds last once that changes no more, where there are rounds.
    pub round_ms: Option<f64>,
    /// What the server does while nothing happens, where it counts.
    pub transactions_per_s: Option<f64>,
    /// What it uses of the processors meanwhile, as a share of one, where that can be seen.
    pub server_cpu: Option<f64>,
    /// Until all took part.
    pub joined_in_ms: f64,
    /// Members that were thrown out though they lived, before that and until rounds were stable.
    pub evictions_before: u64,
    /// And afterwards. A leader that was stopped or cut off counts, if it finds itself thrown out.
    pub false_evictions: u64,
    /// Connections or sessions that ended since then though no fault had hit them, with those of leaders
    /// that were stopped or cut off.
    pub lost_sessions: u64,
    /// Why the trial ended early, if it did.
    pub stopped: Option<String>,
}

/// What it costs to stand by.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdleCost {
    pub(super) members: u64,
    pub(super) joined_in: Duration,
    pub(super) round: Option<Duration>,
    pub(super) transactions_per_s: Option<f64>,
    pub(super) cpu: Option<f64>,
    pub(super) evictions: u64,
    pub(super) losses: u64,
}

/// What was seen of all members, up to the end.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) acts: u64,
    pub(super) evictions: u64,
    pub(super) losses: u64,
}

/// What faults came to.
#[derive(Default)]
pub(super) struct Measured {
    took_ms: Vec<f64>,
    unanswered: usize,
    overlap: Duration,
    stale_acts: u64,
}

impl Measured {
    pub(super) fn add(&mut self, outcome: Outcome) {
        match outcome.took {
            Some(took) => self.took_ms.push(ms(took)),
            None => self.unanswered += 1,
        }
        self.overlap = self.overlap.max(outcome.overlap);
        self.stale_acts += outcome.stale_acts;
    }

    pub(super) fn figures(
        mut self,
        standing: &IdleCost,
        seen: &Seen,
        stopped: Option<String>,
    ) -> RivalFigures {
        self.took_ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = self.took_ms.len().saturating_sub(1);
            self.took_ms.get((share * last as f64).round() as usize).copied()
        };
        RivalFigures {
            members: standing.members,
            answered: self.took_ms.len(),
            unanswered: self.unanswered,
            median_ms: at(0.5),
            p95_ms: at(0.95),
            max_ms: at(1.0),
            overlap_ms: ms(self.overlap),
            stale_acts: self.stale_acts,
            acts: seen.acts,
            round_ms: standing.round.map(ms),
            transactions_per_s: standing.transactions_per_s,
            server_cpu: standing.cpu,
            joined_in_ms: ms(standing.joined_in),
            evictions_before: standing.evictions,
            false_evictions: seen.evictions - standing.evictions,
            lost_sessions: seen.losses - standing.losses,
            stopped,
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
