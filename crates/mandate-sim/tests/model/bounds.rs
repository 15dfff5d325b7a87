//! How far the models go, and how many states that makes.
//!
//! A group of three; see the fields of the two `Bounds` for what is counted. Not bounded in any
//! model: how often a message is lost or repeated, how late it or a timer is, in which order
//! messages arrive. Every space is visited as a whole. The numbers are those of unique states, after
//! the reductions that `group` explains; a run that finds notably fewer fails.

use crate::fenced;
use crate::leased;

/// Bounds, and the least number of states that they must make.
pub(crate) struct Space<B> {
    pub(crate) name: &'static str,
    pub(crate) bounds: B,
    pub(crate) at_least: usize,
}

/// One election, a timer of it that runs out (so that two members claim the same term), and a crash
/// at any time, in the middle of a write too: 2 037 318 states.
pub(crate) const FENCED_CRASH: Space<fenced::Bounds> = Space {
    name: "fenced, a crash",
    bounds: fenced::Bounds { crashes: 1, elections: 1, waits: 1, patience: 0 },
    at_least: 2_000_000,
};

/// One election, two timers of it that run out, and a claim that is given up: 565 265 states.
pub(crate) const FENCED_TIMERS: Space<fenced::Bounds> = Space {
    name: "fenced, timers",
    bounds: fenced::Bounds { crashes: 0, elections: 1, waits: 2, patience: 1 },
    at_least: 560_000,
};

/// Two elections and a timer: 2 499 208 states. Takes longer than a test should.
pub(crate) const FENCED_LONG: Space<fenced::Bounds> = Space {
    name: "fenced, two elections",
    bounds: fenced::Bounds { crashes: 0, elections: 2, waits: 1, patience: 0 },
    at_least: 2_200_000,
};

/// Two leases, so that a restarted member can wait one out, and one renewal: 941 751 states.
pub(crate) const LEASED_CRASH: Space<leased::Bounds> = Space {
    name: "leased, a crash",
    bounds: leased::Bounds {
        ticks: 4,
        claims: 2,
        crashes: 1,
        losses: 0,
        resignations: 0,
        timeouts: 1,
    },
    at_least: 930_000,
};

/// Two crashes within a lease and a half: 154 932 states.
pub(crate) const LEASED_CRASHES: Space<leased::Bounds> = Space {
    name: "leased, two crashes",
    bounds: leased::Bounds {
        ticks: 3,
        claims: 2,
        crashes: 2,
        losses: 0,
        resignations: 0,
        timeouts: 0,
    },
    at_least: 150_000,
};

/// A resignation or a transfer, and a timer: 766 389 states.
pub(crate) const LEASED_HAND_OVER: Space<leased::Bounds> = Space {
    name: "leased, handing over",
    bounds: leased::Bounds {
        ticks: 2,
        claims: 2,
        crashes: 0,
        losses: 0,
        resignations: 1,
        timeouts: 1,
    },
    at_least: 700_000,
};

/// A resignation or a transfer, and a crash, within half a lease: 272 834 states.
pub(crate) const LEASED_HAND_OVER_CRASH: Space<leased::Bounds> = Space {
    name: "leased, handing over and a crash",
    bounds: leased::Bounds {
        ticks: 1,
        claims: 2,
        crashes: 1,
        losses: 0,
        resignations: 1,
        timeouts: 0,
    },
    at_least: 270_000,
};

/// A crash that may take the disk along, and the recovery from the others: 899 006 states.
pub(crate) const LEASED_LOST_DISK: Space<leased::Bounds> = Space {
    name: "leased, a lost disk",
    bounds: leased::Bounds {
        ticks: 3,
        claims: 2,
        crashes: 1,
        losses: 1,
        resignations: 0,
        timeouts: 0,
    },
    at_least: 860_000,
};

/// What takes longer, too: two renewals (5 859 069 states), three claims (2 253 455),
/// handing over with a crash in a whole lease (1 764 425) and with a timer in one and a half
/// (3 327 756), a lost disk and another crash (3 094 743).
pub(crate) const LEASED_LONG: [Space<leased::Bounds>; 5] = [
    Space {
        name: "leased, two renewals",
        bounds: leased::Bounds {
            ticks: 4,
            claims: 2,
            crashes: 1,
            losses: 0,
            resignations: 0,
            timeouts: 2,
        },
        at_least: 5_500_000,
    },
    Space {
        name: "leased, three claims",
        bounds: leased::Bounds {
            ticks: 4,
            claims: 3,
            crashes: 1,
            losses: 0,
            resignations: 0,
            timeouts: 0,
        },
        at_least: 2_200_000,
    },
    Space {
        name: "leased, handing over and a crash, longer",
        bounds: leased::Bounds {
            ticks: 2,
            claims: 2,
            crashes: 1,
            losses: 0,
            resignations: 1,
            timeouts: 0,
        },
        at_least: 1_500_000,
    },
    Space {
        name: "leased, handing over, longer",
        bounds: leased::Bounds {
            ticks: 3,
            claims: 2,
            crashes: 0,
            losses: 0,
            resignations: 1,
            timeouts: 1,
        },
        at_least: 3_200_000,
    },
    Space {
        name: "leased, a lost disk and another crash",
        bounds: leased::Bounds {
            ticks: 2,
            claims: 2,
            crashes: 2,
            losses: 1,
            resignations: 0,
            timeouts: 0,
        },
        at_least: 2_600_000,
    },
];
