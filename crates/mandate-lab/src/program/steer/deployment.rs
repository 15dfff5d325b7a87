//! Where requests arrive in a trial.

use std::collections::BTreeSet;

use mandate_lab::pole::deployment::{Deployment, Shares};

/// Where requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Distribution {
    pub(super) name: &'static str,
    /// The data centre that gets all; none if they are spread evenly.
    all_at: Option<usize>,
}

/// Evenly, and all at one of them.
pub(super) const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution { name: "even", all_at: None },
    Distribution { name: "all at D1", all_at: Some(0) },
    Distribution { name: "all at D2", all_at: Some(1) },
    Distribution { name: "all at D3", all_at: Some(2) },
];

impl Distribution {
    pub(super) fn shares(self) -> Shares {
        self.all_at.map_or(Shares::even(3), |centre| Shares::at(centre, 1.0, 3))
    }
}

/// Who takes the requests of a data centre: the first of its servers that is up.
pub(super) fn serves(deployment: &Deployment, centre: usize, down: &BTreeSet<u32>) -> Option<u32> {
    deployment.up(centre, down).first().copied()
}
