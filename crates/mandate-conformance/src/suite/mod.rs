//! The claims that every engine must show with members as real processes, and their runner.
//!
//! A claim is a function of a [`Subject`]. Each makes a group of its own, so that one that fails does not
//! drag others along, strikes it, and ends with the [judge](crate::judge)'s verdict over everything that
//! happened, whatever the claim was about. Members write to a register at every act throughout.

use std::time::{Duration, Instant};

use crate::group::{Conduct, Group, GroupError};
use crate::judge::Violation;
use crate::subject::{Ability, Subject};

mod commands;
mod faults;
mod handover;
mod membership;
mod terms;

/// Members of a group: the fewest that can lose one.
const SIZE: u32 = 3;

/// Between two acts. Finer than any time that a claim is about; slow enough that the acts themselves do
/// not slow down what is judged.
const PACE: Duration = Duration::from_millis(1);

/// Acts of the last leader during which everyone else is watched.
const WATCHED_ACTS: u64 = 100;

/// Why a claim does not hold.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something did not happen, or the harness could not go on.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Something happened that must not.
    #[error("{}", .0.iter().map(Violation::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<Violation>),
    /// Something else happened than should have.
    #[error("{0}")]
    Otherwise(String),
}

/// What came of a claim.
#[derive(Debug)]
pub enum Verdict {
    /// It holds; with what was seen.
    Holds(String),
    /// It does not.
    Fails(Failure),
    /// It is not about this subject; why.
    DoesNotApply(&'static str),
}

/// A claim that was tried.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub claim: &'static str,
    /// What came of it.
    pub verdict: Verdict,
    /// How long that took.
    pub took: Duration,
}

impl Outcome {
    /// Whether an engine with this outcome passes.
    pub fn passes(&self) -> bool {
        !matches!(self.verdict, Verdict::Fails(_))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mark, text) = match &self.verdict {
            Verdict::Holds(seen) => ("holds", seen.clone()),
            Verdict::Fails(failure) => ("FAILS", failure.to_string()),
            Verdict::DoesNotApply(reason) => ("n/a", (*reason).to_owned()),
        };
        write!(f, "{mark:<6} {} ({text}; {:.1} s)", self.claim, self.took.as_secs_f64())
    }
}

type Proof = Result<String, Failure>;

/// A claim, and how it is shown.
pub struct Claim {
    /// What is claimed: a sentence.
    pub name: &'static str,
    /// What it is about, if not every engine can do that.
    needs: Option<Ability>,
    show: fn(&Trial<'_>) -> Proof,
}

const fn claim(name: &'static str, show: fn(&Trial<'_>) -> Proof) -> Claim {
    Claim { name, needs: None, show }
}

impl Claim {
    const fn needing(self, ability: Ability) -> Self {
        Claim { needs: Some(ability), ..self }
    }
}

/// Every claim on processes, in the order in which they are tried.
pub const CLAIMS: &[Claim] = &[
    claim("every term has one leader, over kills", terms::over_kills),
    claim("terms rise across restarts of one and of all", terms::across_restarts),
    claim("all members come to know the same leader and term", membership::agreement)
        .needing(Ability::KnowTheLeader),
    claim("resignation moves leadership at once", handover::resignation),
    claim("a transfer goes to the member that was named", handover::transfer)
        .needing(Ability::Transfer),
    claim("a transfer that cannot be changes nothing", handover::refused_transfer),
    claim("work that is cancelled gives leadership back", handover::cancelled_work),
    claim("a shutdown is bounded and releases at once", handover::shutdown),
    claim("a leader that was stopped knows it has lost", faults::pause),
    claim("a leader that is cut off knows it has lost", faults::cut),
    claim("a member is not started twice", membership::twin).needing(Ability::RunOnce),
    claim("a command is asked to end, whatever it is", commands::asked_to_end),
    claim("a command that outlives its member acts beside no other", commands::outlives)
        .needing(Ability::Exclude),
];

/// What a claim is tried on.
struct Trial<'a> {
    subject: &'a dyn Subject,
    careless: bool,
}

impl Trial<'_> {
    fn group(&self) -> Result<Group, GroupError> {
        let conduct = Conduct { pace: PACE, register: true, careless: self.careless };
        Group::start(self.subject, SIZE, conduct)
    }

    fn can(&self, ability: Ability) -> bool {
        self.subject.lacks(ability).is_none()
    }

    fn lease(&self) -> Duration {
        self.subject.guarantee().lease()
    }
}

/// Tries every claim whose name is wanted, and tells of each as soon as it is known. With `careless`
/// members do what none should, and a suite that finds nothing is worth nothing.
pub fn run(
    subject: &dyn Subject,
    careless: bool,
    wanted: impl Fn(&str) -> bool,
    mut tell: impl FnMut(&Outcome),
) -> Vec<Outcome> {
    let trial = Trial { subject, careless };
    let mut outcomes = Vec::new();
    for claim in CLAIMS.iter().filter(|claim| wanted(claim.name)) {
        let began = Instant::now();
        let verdict = match claim.needs.and_then(|ability| subject.lacks(ability)) {
            Some(reason) => Verdict::DoesNotApply(reason),
            None => tried(claim, &trial),
        };
        let outcome = Outcome { claim: claim.name, verdict, took: began.elapsed() };
        tell(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}

fn tried(claim: &Claim, trial: &Trial<'_>) -> Verdict {
    match (claim.show)(trial) {
        Ok(seen) => Verdict::Holds(seen),
        Err(Failure::Group(GroupError::NoCables)) => {
            Verdict::DoesNotApply("what this engine elects by cannot be cut here")
        }
        Err(Failure::Group(GroupError::NoWrapper)) => {
            Verdict::DoesNotApply("its members do not run commands here")
        }
        Err(failure) => Verdict::Fails(failure),
    }
}

/// Ends a claim: when everyone has had the time to act who should not, the judge looks at everything that
/// happened.
fn conclude(mut group: Group, seen: impl Into<String>) -> Proof {
    group.settle()?;
    group.watch(WATCHED_ACTS)?;
    let violations = group.violations()?;
    if !violations.is_empty() {
        return Err(Failure::Broken(violations));
    }
    let (acts, refused) = (group.history()?.counted(), group.refused_writes());
    let refused = if refused > 0 { format!(", {refused} stale writes refused") } else { "".into() };
    Ok(format!("{}; {acts} acts{refused}", seen.into()))
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Otherwise(otherwise())) }
}
