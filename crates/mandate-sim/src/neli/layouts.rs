//! Members of one group that go by different numbers of roles, or by different modes: a rolling change, or a mistake.
//!
//! Who leads what does not show it: each partition has one holder, and a key has two, because its slot is counted differently. So what is
//! watched is that holders of any partitions, at any instant, all go by one layout; where one of them is of non-exclusive mode, in which two may
//! lead for a while anyway, that two layouts do so for a while only. Afterwards every partition must come to have a leader though
//! the members never come to agree. That it keeps it, and that a crash is survived as quickly as in a group that agrees, is not asked.

use core::num::NonZeroU32;
use core::time::Duration;
use std::io::Write;

use mandate_proto::neli::{Agreement, Config, LedgerPlan, Mode};

use super::scenario;
use super::setting::Setting;
use super::{NodeConfig, Options};
use crate::clock::HostClocks;
use crate::fault::MemberName;
use crate::host::member;
use crate::network::HostIndex;
use crate::random::{Random, Stream};
use crate::time::SimTime;
use crate::verdict::Outcome;

/// Reported when holders go by different layouts.
const ONE_LAYOUT: &str = "one layout at a time";

/// How much longer than a group that agrees one may take that does not: who gives way waits for marks of owners that are gone, rests, and looks
/// whether the other layout renews.
const PATIENCE: f64 = 4.0;

/// And where some are of non-exclusive mode, whose thresholds are twice a session.
const PATIENCE_WITH_MODES: f64 = 8.0;

/// Numbers of roles that members may go by.
const ROLES: [u32; 3] = [4, 6, 12];

/// Runs a seed; `trace` receives it line by line.
pub fn run(seed: u64, options: &Options, trace: Option<&mut dyn Write>) -> Outcome {
    scenario::run_in(setting(seed, options), seed, options, trace)
}

fn setting(seed: u64, options: &Options) -> Setting {
    // What is wanted is a ledger that fences, and answers that are not old: what the rule assumes.
    let fits = |setting: &Setting| {
        let is_fenced = setting.plan.grants().fenced;
        is_fenced && !setting.shares_names && !setting.has_old_marks && setting.size > 1
    };
    let mut draws = (0..).map(|draw: u64| Setting::exclusive(seed ^ (draw << 40), options));
    let mut setting = draws.find(fits).expect("most draws fit");
    let mut random = Random::new(seed ^ 0x1A70, Stream::Setting);
    let fewer = NonZeroU32::new(setting.partitions / 2).filter(|_| random.chance(0.3));
    let is_mixed = random.chance(0.3);
    for (host, (node, _)) in setting.nodes.iter_mut().enumerate() {
        if let NodeConfig::Member(config) = node {
            let partitions = fewer.filter(|_| random.chance(0.3));
            let mode = match is_mixed && random.chance(0.4) {
                true => Mode::NonExclusive,
                false => Mode::Exclusive,
            };
            config.plan = with_layout(&config.plan, host, mode, random.pick(&ROLES), partitions);
            if mode == Mode::NonExclusive {
                config.client.fetches = Some(config.plan.interval() / 2);
            }
        }
    }
    // A newcomer is assigned partitions before it finds that it differs.
    setting.keeps_terms = false;
    // Who counts fewer partitions leads none of the others: nobody can ask for all.
    setting.patience = match (fewer, is_mixed) {
        (Some(_), _) => f64::INFINITY,
        (None, true) => PATIENCE_WITH_MODES,
        (None, false) => PATIENCE,
    };
    setting
}

/// The same, with another number of roles, and of partitions: the topic was expanded after it had started.
fn with_layout(
    plan: &LedgerPlan,
    host: HostIndex,
    mode: Mode,
    roles: u32,
    partitions: Option<NonZeroU32>,
) -> LedgerPlan {
    let config = Config::new(member(host), mode)
        .with_allowance(plan.allowance_per_mille())
        .with_drain(plan.drain())
        .with_roles(roles);
    let config = match mode {
        Mode::Exclusive => config.with_threshold(plan.threshold()),
        // Longer than the session.
        Mode::NonExclusive => config,
    };
    let mut grants = *plan.grants();
    grants.partitions = partitions.unwrap_or(grants.partitions);
    config.resolve(grants).expect("it was a plan before")
}

/// Whether holders, of whichever partitions, go by one layout.
pub(super) struct Layouts {
    /// How long two may lead beside each other where one of them is of non-exclusive mode, in which members may do so anyway.
    overlap: Duration,
    /// Since when they do.
    since: Option<SimTime>,
}

impl Layouts {
    /// For these members. One of non-exclusive mode that was replaced goes on for a threshold after the last record that it was given,
    /// and may be given some for as long.
    pub(super) fn of(nodes: &[(NodeConfig, HostClocks)]) -> Self {
        let thresholds = nodes.iter().filter_map(|(node, _)| match node {
            NodeConfig::Member(config) => Some(config.plan.threshold()),
            _ => None,
        });
        Layouts { overlap: thresholds.max().unwrap_or_default() * 2, since: None }
    }

    pub(super) fn check(
        &mut self,
        holders: &[(HostIndex, Agreement)],
        now: SimTime,
    ) -> Result<(), (&'static str, String)> {
        let Some((one, layout)) = holders.first() else { return Ok(()) };
        let Some((other, theirs)) = holders.iter().find(|(_, other)| other != layout) else {
            self.since = None;
            return Ok(());
        };
        let is_exclusive = |(_, layout): &(_, Agreement)| layout.mode == Mode::Exclusive;
        let since = *self.since.get_or_insert(now);
        if !holders.iter().all(is_exclusive) && now - since <= self.overlap {
            return Ok(());
        }
        let (one, other) = (MemberName(*one), MemberName(*other));
        let what = format!("{one} leads with {layout}, {other} with {theirs} (at {now} s)");
        Err((ONE_LAYOUT, what))
    }
}
