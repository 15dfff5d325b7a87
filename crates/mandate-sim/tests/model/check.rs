//! How models are checked: whole, for the shortest counterexample, and against each other.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Visits every state of a model; its properties must hold in all of them, and it must have at
/// least so many: one that has shrunk to nothing proves nothing.
///
/// Depth first, since that needs the least memory. No target and no timeout is set, so the checker
/// ends when there is nothing left to visit.
pub(crate) fn visit_all<M>(name: &str, model: M, at_least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let began = Instant::now();
    let checker = model.checker().threads(2).spawn_dfs().join();
    let states = checker.unique_state_count();
    let depth = checker.max_depth();
    println!("{name}: {states} states, {depth} steps at most, in {:.1?}", began.elapsed());
    assert!(checker.is_done());
    checker.assert_properties();
    assert!(states >= at_least, "{name} has only {states} states");
}

/// Looks for the shortest way to break any property that must always hold; says which, and in how
/// many steps.
///
/// The checker searches in order of length, but reports the last of a block of states: so it is
/// asked again for a shorter one, until there is none.
pub(crate) fn shortest<M>(name: &str, model: impl Fn() -> M) -> Option<(&'static str, usize)>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let mut found = counterexample(model(), None)?;
    while let Some(shorter) = counterexample(model(), Some(found.1.len())) {
        found = shorter;
    }
    let (property, actions) = found;
    println!("{name} breaks \"{property}\" in {} steps:", actions.len());
    actions.iter().for_each(|action| println!("  {action:?}"));
    Some((property, actions.len()))
}

/// A property that does not hold, and a way there of fewer than so many steps.
fn counterexample<M>(model: M, fewer_than: Option<usize>) -> Option<(&'static str, Vec<M::Action>)>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let must_hold: HashSet<_> = model
        .properties()
        .into_iter()
        .filter(|property| property.expectation.discovery_is_failure())
        .map(|property| property.name)
        .collect();
    let mut checker = model.checker().finish_when(HasDiscoveries::AnyFailures);
    if let Some(steps) = fewer_than {
        // The first state has depth 1, and those of the target's depth are not looked at.
        checker = checker.target_max_depth(steps + 1);
    }
    let found = checker.spawn_bfs().join().discoveries().into_iter();
    let broken = found.filter(|(property, _)| must_hold.contains(property));
    let paths = broken.map(|(property, path)| (property, path.into_actions()));
    paths.min_by_key(|(property, path)| (path.len(), *property))
}

/// What is visible of all states of a model.
pub(crate) fn visible<M>(model: &M, view: impl Fn(&M::State) -> Option<u64>) -> HashSet<u64>
where
    M: Model,
    M::State: Hash,
{
    let key = |state: &M::State| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        hasher.finish()
    };
    let mut pending = model.init_states();
    let mut seen: HashSet<_> = pending.iter().map(key).collect();
    let mut views = HashSet::new();
    while let Some(state) = pending.pop() {
        views.extend(view(&state));
        pending.extend(model.next_states(&state).into_iter().filter(|next| seen.insert(key(next))));
    }
    println!("{} states, of which {} look different", seen.len(), views.len());
    views
}
