//! The state that members agree on: keys with their values, and what each client has had done last.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::{EntryPayload, LogId, StoredMembership};
use serde::{Deserialize, Serialize};

use super::types::{Batch, Command, Kv, Operation, Outcome, Outcomes};

/// So many clients are remembered: of those the ones that wrote last. A client that was forgotten and repeats a
/// write has it carried out again.
pub(crate) const MAX_SESSIONS: usize = 100_000;

/// A client, as the service remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    number: u64,
    outcome: Outcome,
    /// The index of its last write: the order in which clients are forgotten.
    index: u64,
}

/// Keys, clients, and up to where the log is carried out. The same at all members for the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) applied: Option<LogId<u64>>,
    pub(crate) membership: StoredMembership<u64, openraft::BasicNode>,
    pub(crate) values: BTreeMap<String, Bytes>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Clients by the index of their last write.
    recent: BTreeSet<(u64, u64)>,
}

impl State {
    /// One without keys, up to that point of the log.
    pub(crate) fn at(
        applied: Option<LogId<u64>>,
        membership: StoredMembership<u64, openraft::BasicNode>,
    ) -> Self {
        State { applied, membership, ..State::default() }
    }

    pub(crate) fn apply(&mut self, entry: openraft::Entry<Kv>) -> Outcomes {
        self.applied = Some(entry.log_id);
        let index = entry.log_id.index;
        match entry.payload {
            EntryPayload::Blank => Outcomes::default(),
            EntryPayload::Normal(Batch { commands }) => {
                Outcomes(commands.into_iter().map(|command| self.command(command, index)).collect())
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                Outcomes::default()
            }
        }
    }

    fn command(&mut self, command: Command, index: u64) -> Outcome {
        let Command { client, number, operation } = command;
        match self.sessions.get(&client) {
            Some(session) if session.number == number => return session.outcome,
            Some(session) if session.number > number => return Outcome::Superseded,
            _ => {}
        }
        let outcome = self.operate(operation);
        self.remember(client, Session { number, outcome, index });
        outcome
    }

    fn operate(&mut self, operation: Operation) -> Outcome {
        match operation {
            Operation::Put { key, value } => {
                self.values.insert(key, value);
            }
            Operation::Delete { key } => {
                self.values.remove(&key);
            }
            Operation::CompareAndSwap { key, expected, value } => {
                if self.values.get(&key) != expected.as_ref() {
                    return Outcome::Unequal;
                }
                self.values.insert(key, value);
            }
        }
        Outcome::Done
    }

    pub(crate) fn remember(&mut self, client: u64, session: Session) {
        self.recent.insert((session.index, client));
        if let Some(before) = self.sessions.insert(client, session) {
            self.recent.remove(&(before.index, client));
        }
        while self.sessions.len() > MAX_SESSIONS {
            let Some((_, oldest)) = self.recent.pop_first() else { return };
            self.sessions.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(state: &mut State, index: u64, number: u64, operation: Operation) -> Outcome {
        let command = Command { client: 7, number, operation };
        state.command(command, index)
    }

    fn put(value: &'static str) -> Operation {
        Operation::Put { key: "k".into(), value: Bytes::from_static(value.as_bytes()) }
    }

    #[test]
    fn a_number_is_carried_out_once() {
        let mut state = State::default();
        let swap = Operation::CompareAndSwap {
            key: "k".into(),
            expected: None,
            value: Bytes::from_static(b"mine"),
        };
        assert_eq!(write(&mut state, 1, 1, swap.clone()), Outcome::Done);
        assert_eq!(write(&mut state, 2, 1, swap.clone()), Outcome::Done, "repeated, not redone");
        assert_eq!(write(&mut state, 3, 2, swap.clone()), Outcome::Unequal);
        assert_eq!(write(&mut state, 4, 3, Operation::Delete { key: "k".into() }), Outcome::Done);
        assert_eq!(write(&mut state, 5, 2, swap), Outcome::Superseded);
        assert!(state.values.is_empty());
    }

    #[test]
    fn clients_that_wrote_long_ago_are_forgotten_first() {
        let mut state = State::default();
        for client in 0..=MAX_SESSIONS as u64 {
            let command = Command { client, number: 1, operation: put("v") };
            state.command(command, client);
            if client == 9 {
                // The first client writes again, and is not the oldest any more.
                state.command(Command { client: 0, number: 2, operation: put("w") }, client);
            }
        }
        assert_eq!((state.sessions.len(), state.recent.len()), (MAX_SESSIONS, MAX_SESSIONS));
        assert!(state.sessions.contains_key(&0) && !state.sessions.contains_key(&1));
    }
}
