//! The claims that every engine must show with members as real processes, and their runner.
//!
//! A claim is a function of a [`EngineUnderTest`]. Each makes a group of its own, so that one that fails does not
//! drag others along, injects faults, and ends with the [judge](crate::judge)'s verdict over everything that
//! happened, whatever the claim was about. Members write to a register at every act throughout.

use std::time::{Duration, Instant};

use mandate_proto::identity::Term;

use crate::group::{ActorSettings, GroupError, ProcessGroup};
use crate::judge::HistoryViolation;
use crate::subject::{Ability, EngineUnderTest};

mod commands;
mod faults;
mod handover;
mod membership;
mod terms;
mod values;

/// Members of a group: the fewest that can lose one.
const SIZE: u32 = 3;

/// Between two acts. Finer than any time that a claim is about; slow enough that the acts themselves do
/// not slow down what is judged.
const PACE: Duration = Duration::from_millis(1);

/// Acts of the last leader during which everyone else is watched.
const WATCHED_ACTS: u64 = 100;

/// Why a claim does not hold.
#[derive(Debug, thiserror::Error)]
pub enum CheckFailure {
    /// Something did not happen, or the harness could not go on.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// Something happened that must not.
    #[error("{}", .0.iter().map(HistoryViolation::to_string).collect::<Vec<_>>().join("; "))]
    Broken(Vec<HistoryViolation>),
    /// Leadership moved though nothing was done that should move it.
    #[error("leadership moved from term {from} to {to}, in each of {ATTEMPTS} groups")]
    Moved {
        /// The term before.
        from: Term,
        /// The term afterwards.
        to: Term,
    },
    /// Something else happened than should have.
    #[error("{0}")]
    Otherwise(String),
}

/// What came of a claim.
#[derive(Debug)]
pub enum CheckVerdict {
    /// It holds; with what was seen.
    Holds(String),
    /// It does not.
    Fails(CheckFailure),
    /// It is not about this subject; why.
    DoesNotApply(&'static str),
}

/// A claim that was tried.
#[derive(Debug)]
pub struct CheckOutcome {
    /// The claim's name.
    pub claim: &'static str,
    /// What came of it.
    pub verdict: CheckVerdict,
    /// How long that took.
    pub took: Duration,
}

impl CheckOutcome {
    /// Whether an engine with this outcome passes.
    pub fn passes(&self) -> bool {
        !matches!(self.verdict, CheckVerdict::Fails(_))
    }
}

impl std::fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (mark, text) = match &self.verdict {
            CheckVerdict::Holds(seen) => ("holds", seen.clone()),
            CheckVerdict::Fails(failure) => ("FAILS", failure.to_string()),
            CheckVerdict::DoesNotApply(reason) => ("n/a", (*reason).to_owned()),
        };
        write!(f, "{mark:<6} {} ({text}; {:.1} s)", self.claim, self.took.as_secs_f64())
    }
}

/// So many groups are tried where leadership should stay where it is. A busy host may cost a leader its lease, but not the leader of each
/// group; whatever is wrong with the engine moves it every time.
const ATTEMPTS: u32 = 3;

type Proof = Result<String, CheckFailure>;

/// A claim, and how it is shown.
pub struct EngineProperty {
    /// What is claimed: a sentence.
    pub name: &'static str,
    /// What it is about, if not every engine can do that.
    needs: Option<Ability>,
    show: fn(&Trial<'_>) -> Proof,
}

const fn claim(name: &'static str, show: fn(&Trial<'_>) -> Proof) -> EngineProperty {
    EngineProperty { name, needs: None, show }
}

impl EngineProperty {
    const fn needing(self, ability: Ability) -> Self {
        EngineProperty { needs: Some(ability), ..self }
    }
}

/// Every claim on processes, in the order in which they are tried.
pub const CLAIMS: &[EngineProperty] = &[
    claim("every term has one leader, over kills", terms::over_kills),
    claim("terms rise across restarts of one and of all", terms::across_restarts),
    claim("all members come to know the same leader and term", membership::agreement)
        .needing(Ability::KnowTheLeader),
    claim(
        "a value is shown with the leader that published it, and ends with its term",
        values::with_the_term,
    )
    .needing(Ability::Publish),
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
    subject: &'a dyn EngineUnderTest,
    careless: bool,
}

impl Trial<'_> {
    fn group(&self) -> Result<ProcessGroup, GroupError> {
        let conduct =
            ActorSettings { pace: PACE, register: true, careless: self.careless, hasty: false };
        ProcessGroup::start(self.subject, SIZE, conduct)
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
    subject: &dyn EngineUnderTest,
    careless: bool,
    wanted: impl Fn(&str) -> bool,
    mut tell: impl FnMut(&CheckOutcome),
) -> Vec<CheckOutcome> {
    let trial = Trial { subject, careless };
    let mut outcomes = Vec::new();
    for claim in CLAIMS.iter().filter(|claim| wanted(claim.name)) {
        let began = Instant::now();
        let verdict = match claim.needs.and_then(|ability| subject.lacks(ability)) {
            Some(reason) => CheckVerdict::DoesNotApply(reason),
            None => tried(claim, &trial),
        };
        let outcome = CheckOutcome { claim: claim.name, verdict, took: began.elapsed() };
        tell(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}

fn tried(claim: &EngineProperty, trial: &Trial<'_>) -> CheckVerdict {
    let moved = |proof: &Proof| matches!(proof, Err(CheckFailure::Moved { .. }));
    let mut proof = (claim.show)(trial);
    for _ in 1..ATTEMPTS {
        if moved(&proof) {
            proof = (claim.show)(trial);
        }
    }
    match proof {
        Ok(seen) => CheckVerdict::Holds(seen),
        Err(CheckFailure::Group(GroupError::NoCables)) => {
            CheckVerdict::DoesNotApply("what this engine elects by cannot be cut here")
        }
        Err(CheckFailure::Group(GroupError::NoWrapper)) => {
            CheckVerdict::DoesNotApply("its members do not run commands here")
        }
        Err(failure) => CheckVerdict::Fails(failure),
    }
}

/// Ends a claim: when everyone has had the time to act who should not, the judge looks at everything that
/// happened.
fn conclude(mut group: ProcessGroup, seen: impl Into<String>) -> Proof {
    group.settle()?;
    group.watch(WATCHED_ACTS)?;
    let violations = group.violations()?;
    if !violations.is_empty() {
        return Err(CheckFailure::Broken(violations));
    }
    let (acts, refused) = (group.history()?.counted(), group.refused_writes());
    let refused = if refused > 0 { format!(", {refused} stale writes refused") } else { "".into() };
    Ok(format!("{}; {acts} acts{refused}", seen.into()))
}

/// Ends well if leadership is where it was.
fn ensure_kept(from: Term, to: Term) -> Result<(), CheckFailure> {
    if from == to { Ok(()) } else { Err(CheckFailure::Moved { from, to }) }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), CheckFailure> {
    if holds { Ok(()) } else { Err(CheckFailure::Otherwise(otherwise())) }
}
