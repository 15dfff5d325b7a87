//! What is replicated: commands on keys, each of a client and with its number.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// No key is longer, in bytes.
pub const MAX_KEY: usize = 1024;

/// No value is longer, in bytes.
pub const MAX_VALUE: usize = 1 << 20;

openraft::declare_raft_types!(
    /// The types of the service, as openraft wants to know them.
    pub Kv:
        D = Batch,
        R = Outcomes,
        NodeId = u64,
        Node = openraft::BasicNode,
        SnapshotData = tokio::fs::File,
);

/// What an entry of the log holds: writes that waited together, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The writes.
    pub commands: Vec<WriteCommand>,
}

/// Bytes of the keys and values of an entry.
pub(crate) fn bytes_of(entry: &openraft::Entry<Kv>) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(batch) => {
            batch.commands.iter().map(|command| command.operation.size()).sum()
        }
        openraft::EntryPayload::Blank | openraft::EntryPayload::Membership(_) => 0,
    }
}

/// What came of them, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes(pub Vec<WriteOutcome>);

/// A write of a client. The number makes it safe to repeat: a number is carried out at most once, whichever members it is sent to and
/// however often.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCommand {
    /// Who: the number that the service gave the client when it registered ([`Operation::Register`]).
    pub client: u64,
    /// Which of its writes, from 1. A client has one under way at a time.
    pub number: u64,
    /// What to do.
    pub operation: Operation,
}

impl fmt::Debug for WriteCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}#{} {}", self.client, self.number, self.operation)
    }
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Makes a new client known. Its number comes from the place of this in the log, so it is never given twice, and a
    /// repeated registration makes another client.
    Register,
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Bytes,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
    /// Sets a key if it has a certain value, or none.
    CompareAndSwap {
        /// The key.
        key: String,
        /// What it must have.
        expected: Option<Bytes>,
        /// What it gets.
        value: Bytes,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Register => f.write_str("register"),
            Operation::Put { key, value } => write!(f, "put {key} ({} bytes)", value.len()),
            Operation::Delete { key } => write!(f, "delete {key}"),
            Operation::CompareAndSwap { key, value, .. } => {
                write!(f, "compare and swap {key} ({} bytes)", value.len())
            }
        }
    }
}

/// A key or value that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    /// The key.
    #[error("a key has at most {MAX_KEY} bytes, not {0}")]
    Key(usize),
    /// The value.
    #[error("a value has at most {MAX_VALUE} bytes, not {0}")]
    Value(usize),
}

impl Operation {
    /// How many bytes its key and values have.
    pub fn size(&self) -> usize {
        match self {
            Operation::Register => 0,
            Operation::Put { key, value } => key.len() + value.len(),
            Operation::Delete { key } => key.len(),
            Operation::CompareAndSwap { key, expected, value } => {
                key.len() + value.len() + expected.as_ref().map_or(0, Bytes::len)
            }
        }
    }

    /// Whether key and value are not too long.
    pub fn check(&self) -> Result<(), TooLong> {
        let (key, value) = match self {
            Operation::Register => return Ok(()),
            Operation::Put { key, value } => (key, value.len()),
            Operation::Delete { key } => (key, 0),
            Operation::CompareAndSwap { key, expected, value } => {
                (key, value.len().max(expected.as_ref().map_or(0, Bytes::len)))
            }
        };
        check_key(key)?;
        if value > MAX_VALUE { Err(TooLong::Value(value)) } else { Ok(()) }
    }
}

/// Whether a key is not too long.
pub fn check_key(key: &str) -> Result<(), TooLong> {
    if key.len() > MAX_KEY { Err(TooLong::Key(key.len())) } else { Ok(()) }
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteOutcome {
    /// It is done.
    Done,
    /// The key did not have the value that was expected. Nothing was changed.
    Unequal,
    /// The client has had a later write carried out since. This one was carried out before that, or never will be.
    Superseded,
    /// The client is known from now on, by this number.
    Registered(u64),
    /// The client is not known any more: so many others have written since. It was not carried out now; whether it was
    /// before, nobody knows. The client has to register again.
    Expired,
}
