//! The state that members agree on: keys with their values, and what each client has had done last.

use std::collections::BTreeSet;

use bytes::Bytes;
use openraft::{EntryPayload, LogId, StoredMembership};
use serde::{Deserialize, Serialize};

use super::shards::Shards;
use super::types::{Batch, Kv, Operation, Outcomes, WriteCommand, WriteOutcome};

/// So many clients are remembered: of those the ones that wrote last. What a client that was forgotten asks for is not
/// carried out ([`WriteOutcome::Expired`]): it may be something that was carried out before.
pub(crate) const MAX_SESSIONS: usize = 100_000;

/// Clients that one entry can make known: more than writes fit into one.
const CLIENTS_OF_AN_ENTRY: u64 = 1024;

/// A client, as the service remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    number: u64,
    outcome: WriteOutcome,
    /// The index of its last write: the order in which clients are forgotten.
    index: u64,
}

/// Keys, clients, and up to where the log is carried out. The same at all members for the same log.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) applied: Option<LogId<u64>>,
    pub(crate) membership: StoredMembership<u64, openraft::BasicNode>,
    pub(crate) values: Shards<String, Bytes>,
    pub(crate) sessions: Shards<u64, Session>,
    /// Clients by the index of their last write.
    recent: BTreeSet<(u64, u64)>,
}

/// What a snapshot holds. Making one takes no longer the more there is.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    pub(crate) applied: Option<LogId<u64>>,
    pub(crate) membership: StoredMembership<u64, openraft::BasicNode>,
    pub(crate) values: Shards<String, Bytes>,
    pub(crate) sessions: Shards<u64, Session>,
}

impl State {
    /// One without keys, up to that point of the log.
    pub(crate) fn at(
        applied: Option<LogId<u64>>,
        membership: StoredMembership<u64, openraft::BasicNode>,
    ) -> Self {
        State { applied, membership, ..State::default() }
    }

    /// The state as it is now, shared with it.
    pub(crate) fn freeze(&self) -> Frozen {
        Frozen {
            applied: self.applied,
            membership: self.membership.clone(),
            values: self.values.clone(),
            sessions: self.sessions.clone(),
        }
    }

    pub(crate) fn apply(&mut self, entry: openraft::Entry<Kv>) -> Outcomes {
        self.applied = Some(entry.log_id);
        let index = entry.log_id.index;
        match entry.payload {
            EntryPayload::Blank => Outcomes::default(),
            EntryPayload::Normal(Batch { commands }) => {
                let numbered = (0..).zip(commands);
                Outcomes(numbered.map(|(at, command)| self.command(command, index, at)).collect())
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                Outcomes::default()
            }
        }
    }

    /// Carries out a write: the one at this place of the entry with this index.
    fn command(&mut self, command: WriteCommand, index: u64, at: u64) -> WriteOutcome {
        let WriteCommand { client, number, operation } = command;
        if operation == Operation::Register {
            let client = index * CLIENTS_OF_AN_ENTRY + at;
            let outcome = WriteOutcome::Registered(client);
            self.remember(client, Session { number: 0, outcome, index });
            return outcome;
        }
        match self.sessions.get(&client) {
            Some(session) if session.number == number => return session.outcome,
            Some(session) if session.number > number => return WriteOutcome::Superseded,
            Some(_) => {}
            None => return WriteOutcome::Expired,
        }
        let outcome = self.operate(operation);
        self.remember(client, Session { number, outcome, index });
        outcome
    }

    fn operate(&mut self, operation: Operation) -> WriteOutcome {
        match operation {
            Operation::Register => {}
            Operation::Put { key, value } => {
                self.values.insert(key, value);
            }
            Operation::Delete { key } => {
                self.values.remove(&key);
            }
            Operation::CompareAndSwap { key, expected, value } => {
                if self.values.get(&key) != expected.as_ref() {
                    return WriteOutcome::Unequal;
                }
                self.values.insert(key, value);
            }
        }
        WriteOutcome::Done
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

    /// Makes a client known.
    fn register(state: &mut State, index: u64) -> u64 {
        let command = WriteCommand { client: 0, number: 0, operation: Operation::Register };
        match state.command(command, index, 0) {
            WriteOutcome::Registered(client) => client,
            other => panic!("{other:?}"),
        }
    }

    fn write(
        state: &mut State,
        index: u64,
        client: u64,
        number: u64,
        operation: Operation,
    ) -> WriteOutcome {
        state.command(WriteCommand { client, number, operation }, index, 0)
    }

    fn put(value: &'static str) -> Operation {
        Operation::Put { key: "k".into(), value: Bytes::from_static(value.as_bytes()) }
    }

    fn swap(expected: Option<&'static str>, value: &'static str) -> Operation {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let (key, expected, value) = ("k".into(), expected.map(bytes), bytes(value));
        Operation::CompareAndSwap { key, expected, value }
    }

    #[test]
    fn a_number_is_carried_out_once() {
        let mut state = State::default();
        let me = register(&mut state, 0);
        let mine = || swap(None, "mine");
        assert_eq!(write(&mut state, 1, me, 1, mine()), WriteOutcome::Done);
        assert_eq!(write(&mut state, 2, me, 1, mine()), WriteOutcome::Done, "repeated, not redone");
        assert_eq!(write(&mut state, 3, me, 2, mine()), WriteOutcome::Unequal);
        let delete = Operation::Delete { key: "k".into() };
        assert_eq!(write(&mut state, 4, me, 3, delete), WriteOutcome::Done);
        assert_eq!(write(&mut state, 5, me, 2, mine()), WriteOutcome::Superseded);
        assert_eq!(state.values.len(), 0);
    }

    #[test]
    fn clients_of_one_entry_have_numbers_of_their_own() {
        let mut state = State::default();
        let register = || WriteCommand { client: 0, number: 0, operation: Operation::Register };
        let outcomes: Vec<_> = (0..3).map(|at| state.command(register(), 9, at)).collect();
        let again = state.command(register(), 10, 0);
        let all: BTreeSet<_> =
            outcomes.iter().chain([&again]).map(|it| format!("{it:?}")).collect();
        assert_eq!(all.len(), 4, "{all:?}");
    }

    #[test]
    fn what_a_forgotten_client_repeats_is_not_carried_out_again() {
        let mut state = State::default();
        let me = register(&mut state, 0);
        assert_eq!(write(&mut state, 1, me, 1, swap(None, "mine")), WriteOutcome::Done);
        let other = register(&mut state, 2);
        let delete = Operation::Delete { key: "k".into() };
        assert_eq!(write(&mut state, 3, other, 1, delete), WriteOutcome::Done);
        (4..MAX_SESSIONS as u64 + 4).for_each(|index| {
            register(&mut state, index);
        });
        let repeated = write(&mut state, 200_000, me, 1, swap(None, "mine"));
        assert_eq!((repeated, state.values.len()), (WriteOutcome::Expired, 0));
        assert_eq!(write(&mut state, 200_001, me, 2, put("new")), WriteOutcome::Expired);
        let me = register(&mut state, 200_002);
        assert_eq!(write(&mut state, 200_003, me, 1, put("new")), WriteOutcome::Done);
    }

    #[test]
    fn clients_that_wrote_long_ago_are_forgotten_first() {
        let mut state = State::default();
        let (first, second) = (register(&mut state, 0), register(&mut state, 1));
        for index in 2..=MAX_SESSIONS as u64 {
            register(&mut state, index);
            if index == 9 {
                // The first client writes again, and is not the oldest any more.
                write(&mut state, index, first, 1, put("w"));
            }
        }
        assert_eq!((state.sessions.len(), state.recent.len()), (MAX_SESSIONS, MAX_SESSIONS));
        assert!(state.sessions.get(&first).is_some() && state.sessions.get(&second).is_none());
    }
}
