//! Whether what clients saw of one key can have happened one after the other: linearizability, of a register.
//!
//! A history is linearizable if each operation can be given one moment between its beginning and its end such that
//! every read returns what was written last before. The search is Wing and Gong's with Lowe's memory: place any
//! operation that can come next, go on, and go back where that fails; a set of placed operations that was reached
//! before with the same value is not searched again. Keys are independent of each other, so each is checked by
//! itself: a history is linearizable if those of all its keys are.
//!
//! A write whose outcome is unknown may take effect at any time after its beginning, or never. One whose value nobody
//! has read is left out: if there is an order with it, there is one without. Reads without an answer say nothing.
//!
//! stateright's tester searches without memory, which is exponential in what our histories have hundreds of; a
//! property test holds this one against it on short ones.

use std::collections::HashSet;

/// One operation of a client on the key. Times are of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOperation {
    /// When it was asked for.
    pub began: u64,
    /// When it was answered; `None` if it never was, or with an unknown outcome.
    pub ended: Option<u64>,
    /// What it was.
    pub action: Action,
}

/// What an operation did. Every write has a value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Set the key.
    Write(u64),
    /// Found this.
    Read(Option<u64>),
}

/// A history that cannot have happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no order explains it; {placed} of {operations} operations can be placed, but then none of {stuck:?}"
)]
pub struct NotLinearizable {
    /// How many there are.
    pub operations: usize,
    /// How many could be placed at most.
    pub placed: usize,
    /// What could have come next then.
    pub stuck: Vec<ClientOperation>,
}

/// Which operations have been placed, a bit each.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Placed(Vec<u64>);

impl Placed {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

/// A choice in the search: what can come next, how many of those were tried, and the value before.
struct Choice {
    candidates: Vec<usize>,
    tried: usize,
    value: Option<u64>,
}

/// Looks for an order. The key has nothing at first.
pub fn check(history: &[ClientOperation]) -> Result<(), NotLinearizable> {
    let operations = relevant(history);
    let required = operations.iter().filter(|operation| operation.ended.is_some()).count();
    let mut placed = Placed(vec![0; operations.len().div_ceil(64)]);
    let mut seen: HashSet<(Placed, Option<u64>)> = HashSet::new();
    let mut done = 0;
    let mut best = (0, Vec::new());
    let first = Choice { candidates: candidates(&operations, &placed), tried: 0, value: None };
    let mut path = vec![first];
    loop {
        if done == required {
            return Ok(());
        }
        let Some(choice) = path.last_mut() else {
            let (placed, stuck) = best;
            return Err(NotLinearizable { operations: operations.len(), placed, stuck });
        };
        let Some(&next) = choice.candidates.get(choice.tried) else {
            if best.1.is_empty() || done > best.0 {
                best = (done, choice.candidates.iter().map(|index| operations[*index]).collect());
            }
            path.pop();
            if let Some(before) = path.last() {
                let undone = before.candidates[before.tried - 1];
                placed.flip(undone);
                done -= usize::from(operations[undone].ended.is_some());
            }
            continue;
        };
        choice.tried += 1;
        let value = match operations[next].action {
            Action::Write(value) => Some(value),
            Action::Read(found) if found == choice.value => found,
            Action::Read(_) => continue,
        };
        placed.flip(next);
        if !seen.insert((placed.clone(), value)) {
            placed.flip(next);
            continue;
        }
        done += usize::from(operations[next].ended.is_some());
        path.push(Choice { candidates: candidates(&operations, &placed), tried: 0, value });
    }
}

/// What says something, by when it began.
fn relevant(history: &[ClientOperation]) -> Vec<ClientOperation> {
    let found = |operation: &ClientOperation| match operation.action {
        Action::Read(found) if operation.ended.is_some() => found,
        _ => None,
    };
    let found: HashSet<u64> = history.iter().filter_map(found).collect();
    let says_something = |operation: &&ClientOperation| match operation.action {
        Action::Write(value) => operation.ended.is_some() || found.contains(&value),
        Action::Read(_) => operation.ended.is_some(),
    };
    let mut operations: Vec<_> = history.iter().filter(says_something).copied().collect();
    operations.sort_by_key(|operation| operation.began);
    operations
}

/// What can come next: whatever began before anything that is not placed has ended. What ended first is tried first,
/// and what never ended last.
fn candidates(operations: &[ClientOperation], placed: &Placed) -> Vec<usize> {
    let mut found = Vec::new();
    let mut earliest = u64::MAX;
    for (index, operation) in operations.iter().enumerate().filter(|(index, _)| !placed.has(*index))
    {
        if operation.began > earliest {
            break;
        }
        earliest = earliest.min(operation.ended.unwrap_or(u64::MAX));
        found.push(index);
    }
    found.retain(|index| operations[*index].began <= earliest);
    found.sort_by_key(|index| operations[*index].ended.unwrap_or(u64::MAX));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
    use stateright::semantics::{ConsistencyTester, LinearizabilityTester};

    fn write(began: u64, ended: u64, value: u64) -> ClientOperation {
        ClientOperation { began, ended: Some(ended), action: Action::Write(value) }
    }

    fn read(began: u64, ended: u64, found: Option<u64>) -> ClientOperation {
        ClientOperation { began, ended: Some(ended), action: Action::Read(found) }
    }

    #[test]
    fn a_read_that_is_older_than_a_finished_write_is_found() {
        assert!(check(&[write(0, 10, 1), read(20, 30, None)]).is_err());
        assert!(check(&[write(0, 10, 1), read(5, 30, None)]).is_ok(), "they overlap");
        let went_back =
            [write(0, 10, 1), write(5, 50, 2), read(12, 14, Some(2)), read(15, 20, Some(1))];
        assert!(check(&went_back).is_err(), "a read may not go back behind another");
    }

    #[test]
    fn a_write_of_unknown_outcome_may_take_effect_late_or_never() {
        let unknown = ClientOperation { began: 0, ended: None, action: Action::Write(1) };
        assert!(
            check(&[unknown, write(5, 6, 2), read(7, 8, Some(2)), read(9, 10, Some(1))]).is_ok()
        );
        assert!(check(&[unknown, read(7, 8, None)]).is_ok());
        let twice =
            [unknown, write(5, 6, 2), read(7, 8, Some(1)), write(9, 10, 3), read(11, 12, Some(1))];
        assert!(check(&twice).is_err(), "but not twice");
    }

    #[test]
    fn a_long_history_with_many_at_once_is_checked_in_no_time() {
        let mut history = Vec::new();
        for round in 0..500_u64 {
            let start = round * 100;
            history.extend((0..4).map(|i| write(start + i, start + 60 + i, round * 4 + i)));
            history.extend((0..4).map(|i| read(start + 70 + i, start + 80, Some(round * 4 + 2))));
        }
        assert!(check(&history).is_ok());
        history.push(read(60_000, 60_001, Some(3)));
        assert!(check(&history).is_err());
    }

    /// Three clients, each with some operations one after the other, some of them never answered.
    fn short() -> impl Strategy<Value = Vec<ClientOperation>> {
        let step = (0..12_u64, 1..12_u64, 0..4_u64, any::<bool>(), 0..6_u64);
        prop::collection::vec(prop::collection::vec(step, 0..4), 3).prop_map(|clients| {
            let mut history = Vec::new();
            for (client, steps) in clients.iter().enumerate() {
                let mut now = 0;
                for (turn, (wait, takes, found, is_write, unanswered)) in steps.iter().enumerate() {
                    let began = now + wait;
                    now = began + takes;
                    let action = match is_write {
                        true => Action::Write((client * 4 + turn) as u64),
                        false => Action::Read((*found > 0).then_some(client as u64 + found)),
                    };
                    let ended = (*unanswered > 0).then_some(now);
                    history.push(ClientOperation { began, ended, action });
                }
            }
            history
        })
    }

    /// The same by stateright, which tries every order.
    fn slowly(history: &[ClientOperation]) -> bool {
        // Answers before questions of the same moment would order what overlaps.
        let mut events: Vec<(u64, u8, usize)> = Vec::new();
        for (index, operation) in history.iter().enumerate() {
            events.push((operation.began, 0, index));
            events.extend(operation.ended.map(|ended| (ended, 1, index)));
        }
        events.sort_unstable();
        let mut tester = LinearizabilityTester::new(Register(None));
        for (_, kind, index) in events {
            let action = history[index].action;
            let result = match (kind, action) {
                (0, Action::Write(value)) => {
                    tester.on_invoke(index, RegisterOp::Write(Some(value)))
                }
                (0, Action::Read(_)) => tester.on_invoke(index, RegisterOp::Read),
                (_, Action::Write(_)) => tester.on_return(index, RegisterRet::WriteOk),
                (_, Action::Read(found)) => tester.on_return(index, RegisterRet::ReadOk(found)),
            };
            result.unwrap();
        }
        tester.is_consistent()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn it_judges_as_the_slow_and_obvious_one_does(history in short()) {
            prop_assert_eq!(check(&history).is_ok(), slowly(&history));
        }
    }
}
