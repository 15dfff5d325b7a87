//! What a run can come to.

use thiserror::Error;

/// What went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Something happened that must never happen.
    #[error("correctness: {invariant}: {what}")]
    Correctness {
        /// The invariant.
        invariant: &'static str,
        /// What broke it, and when.
        what: String,
    },
    /// Something did not happen in time after everything had healed.
    #[error("liveness: {invariant}: {what}")]
    Liveness {
        /// The demand.
        invariant: &'static str,
        /// What was missing.
        what: String,
    },
    /// The program panicked: a bug of its own.
    #[error("crash: {0}")]
    Crash(String),
}

/// What came of one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Whether it held.
    pub verdict: Result<(), Violation>,
    /// Deliveries, wake-ups, writes and faults.
    pub events: u64,
    /// Messages sent.
    pub messages: u64,
    /// How much time was simulated.
    pub simulated: core::time::Duration,
    /// How often a member became leader.
    pub reigns: u64,
    /// How long after healing the members had a leader, as a share of the bound.
    pub agreement: f64,
}
