//! What chaos found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use mandate_conformance::group::GroupError;
use serde::Serialize;

use super::ChaosArgs;
use super::lapses::is_change;
use super::membership::ChangeFigures;
use super::runner::{Outcome, PhaseFigures, Runner};
use super::storm::Kind;
use super::warnings::distinct;
use mandate_cli::output::ms;

/// Lines of what happened around a violation that are shown; JSON has all.
const SHOWN: usize = 60;

/// What was found.
#[derive(Serialize)]
pub(super) struct Report {
    engine: &'static str,
    /// What members ran on, and what leaders relied on.
    subject: String,
    guarantee: String,
    members: u32,
    seed: u64,
    /// What repeats the same faults.
    command: String,
    faults: usize,
    phases: usize,
    /// Faults of each kind, in all phases.
    faults_by_kind: BTreeMap<&'static str, usize>,
    /// Phases with one kind of fault, by kind; and those with several kinds at once.
    results: Vec<Row>,
    /// Who acted in how many terms.
    leaders: BTreeMap<String, usize>,
    terms: u64,
    acts: u64,
    /// Writes of an older term after a newer, which the register refused.
    refused_writes: u64,
    /// Writes that leaders made to a table of their own, each in a transaction that checked its term.
    guarded_writes: u64,
    /// How often a partition that did not move was led no more, where partitions are watched.
    lapses: Option<usize>,
    /// What came of changes of the list of members, where members come and go.
    changes: Option<ChangeFigures>,
    /// What members told their operators, and how often.
    warnings: BTreeMap<String, usize>,
    outcome: &'static str,
    /// What must not have happened, and has.
    violations: Vec<String>,
    /// What happened around that, by time.
    history: Vec<String>,
    liveness_bound_ms: f64,
    took_s: f64,
}

#[derive(Serialize)]
struct Row {
    fault: &'static str,
    phases: usize,
    leader_changes: usize,
    /// The longest time without an act of a leader, in each phase.
    without_leader_ms: Spread,
    /// How often a partition that did not move was led no more.
    lapses: usize,
    /// From when all was healed until a leader acted.
    acted_ms: Spread,
    /// From healing until all followed one leader.
    settled_ms: Spread,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    max: f64,
}

impl Report {
    pub(super) fn new(
        args: &ChaosArgs,
        runner: &mut Runner<'_>,
        outcome: &Outcome,
        took: Duration,
    ) -> Result<Self, GroupError> {
        let refused_writes = runner.group.refused_writes();
        let logs: Vec<_> = runner.all().map(|member| runner.group.logged(member)).collect();
        let said = logs.iter().flat_map(|log| log.lines()).filter(|line| !is_change(line));
        let warnings = distinct(said);
        let guarded_writes = runner.ground.writes();
        let history = runner.group.history()?;
        let mut leaders = BTreeMap::new();
        for (_, member, _) in history.reigns() {
            *leaders.entry(member.to_string()).or_default() += 1;
        }
        let terms = history.latest().map_or(0, |act| act.term.get());
        let acts = history.counted();
        let mut faults_by_kind = BTreeMap::new();
        for kind in runner.phases.iter().flat_map(|phase| &phase.kinds) {
            *faults_by_kind.entry(kind.name()).or_default() += 1;
        }
        let (outcome, evidence) = match outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Broken(evidence) => ("broken", Some(evidence)),
            Outcome::NoLeader(evidence) => ("no leader in time", Some(evidence)),
        };
        Ok(Report {
            engine: args.engine.engine_name(),
            subject: runner.ground.name(),
            guarantee: args.engine.relied_on(),
            members: args.members,
            seed: args.seed,
            command: args.command(),
            faults: faults_by_kind.values().sum(),
            phases: runner.phases.len(),
            faults_by_kind,
            results: rows(&runner.phases),
            leaders,
            terms,
            acts,
            refused_writes,
            guarded_writes,
            lapses: runner
                .ground
                .watched()
                .map(|_| runner.phases.iter().map(|phase| phase.lapses).sum()),
            changes: args.changes.then(|| runner.membership().figures()),
            warnings,
            outcome,
            violations: evidence.map(|evidence| evidence.what.clone()).unwrap_or_default(),
            history: evidence.map(|evidence| evidence.around.clone()).unwrap_or_default(),
            liveness_bound_ms: ms(args.within),
            took_s: took.as_secs_f64(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}, {} members: {} faults in {} phases, {:.0} s\n\n  {:<12} {:>6} {:>9} {:>24} {:>24} {:>24}\n",
            self.subject,
            self.members,
            self.faults,
            self.phases,
            self.took_s,
            "fault",
            "phases",
            "changes",
            "no leader, median/max ms",
            "healed to act",
            "settled, median/max ms"
        );
        for row in &self.results {
            let spread = |spread: &Spread| format!("{:.0} / {:.0}", spread.median, spread.max);
            let _ = writeln!(
                text,
                "  {:<12} {:>6} {:>9} {:>24} {:>24} {:>24}",
                row.fault,
                row.phases,
                row.leader_changes,
                spread(&row.without_leader_ms),
                spread(&row.acted_ms),
                spread(&row.settled_ms)
            );
        }
        let _ = writeln!(
            text,
            "\n{} acts in {} terms were compared; the register refused {} writes of older terms.",
            self.acts, self.terms, self.refused_writes
        );
        if self.guarded_writes > 0 {
            let _ = writeln!(
                text,
                "The guarded table has {} writes, each in a transaction that checked its term.",
                self.guarded_writes
            );
        }
        if let Some(lapses) = self.lapses {
            let by: Vec<_> = self.results.iter().filter(|row| row.lapses > 0).collect();
            let by: String =
                by.iter().map(|row| format!("; {}: {}", row.fault, row.lapses)).collect();
            let _ = writeln!(text, "{lapses} lapses of partitions that did not move{by}.");
        }
        if let Some(changes) = &self.changes {
            let _ = writeln!(text, "{changes}");
        }
        if !self.warnings.is_empty() {
            text += "\nWhat members told their operators, and how often:\n";
        }
        for (warning, times) in &self.warnings {
            let _ = writeln!(text, "  {times:>5}  {warning}");
        }
        if self.violations.is_empty() {
            text += "Nothing happened that must not, and after every phase all followed one leader in time.";
        }
        for violation in &self.violations {
            let _ = writeln!(text, "\n{}: {violation}", self.outcome.to_uppercase());
        }
        let hidden = self.history.len().saturating_sub(SHOWN);
        for line in self.history.iter().skip(hidden) {
            let _ = writeln!(text, "  {line}");
        }
        text + &format!("\nTo repeat these faults: {}", self.command)
    }
}

fn rows(phases: &[PhaseFigures]) -> Vec<Row> {
    let mut by_kind: BTreeMap<Option<Kind>, Vec<&PhaseFigures>> = BTreeMap::new();
    for phase in phases {
        let first = phase.kinds.first().copied();
        let single = first.filter(|first| phase.kinds.iter().all(|kind| kind == first));
        by_kind.entry(single).or_default().push(phase);
    }
    // Those with several at once come last.
    let mut rows: Vec<_> = by_kind.iter().map(|(kind, phases)| row(*kind, phases)).collect();
    if by_kind.contains_key(&None) {
        rows.rotate_left(1);
    }
    rows
}

fn row(kind: Option<Kind>, phases: &[&PhaseFigures]) -> Row {
    Row {
        fault: kind.map_or("several", Kind::name),
        phases: phases.len(),
        leader_changes: phases.iter().filter(|phase| phase.changed).count(),
        lapses: phases.iter().map(|phase| phase.lapses).sum(),
        without_leader_ms: spread(phases.iter().map(|phase| ms(phase.without_leader))),
        acted_ms: spread(phases.iter().map(|phase| ms(phase.acted))),
        settled_ms: spread(phases.iter().map(|phase| ms(phase.settled))),
    }
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    Spread {
        median: values.get(values.len() / 2).copied().unwrap_or_default(),
        max: values.last().copied().unwrap_or_default(),
    }
}
