//! Messages as bytes.
//!
//! One message is one frame of at most [`MAX_BYTES`]; whatever carries it keeps frames apart. The
//! format is postcard's: numbers as variable-length integers, fields in their order, nothing that
//! describes itself. Peers therefore agree on [`VERSION`] before they exchange any: it rises with every
//! change of a message.
//!
//! Decoding is total and allocates nothing but values and lists of members, which are bounded: a frame is a message, exactly, or an error. What numbers
//! *mean* is for the machines to judge, and they ignore what cannot be.

use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::neli;
use crate::nfd_l;
use crate::pole::installation::{self, Entry, MAX_ADDRESS, MAX_MEMBERS, MAX_NAME};
use crate::pole::member::{self, Handover};
use crate::value::MAX_VALUE_BYTES;

/// Rises with every change of a message.
pub const VERSION: u32 = 5;

/// A list of the most members with the longest names and addresses, and with each what else a line says: two ids and an
/// incarnation, what it does, and how long its texts are.
const MAX_ROSTER_BYTES: usize = MAX_MEMBERS * (MAX_NAME + MAX_ADDRESS + 26);

/// No frame is longer; one without a value or a list of members has 256 bytes at most.
pub const MAX_BYTES: usize =
    256 + if MAX_ROSTER_BYTES > MAX_VALUE_BYTES { MAX_ROSTER_BYTES } else { MAX_VALUE_BYTES };

/// A message that can be sent.
pub trait Wire: Serialize + DeserializeOwned {
    /// Whether what was read can have been written: numbers that no member sends are refused here
    /// where a type does not already do so.
    fn is_sound(&self) -> bool {
        true
    }
}

impl Wire for nfd_l::Message {}

impl Wire for neli::LedgerRecord {}

impl Wire for member::Message {
    fn is_sound(&self) -> bool {
        match self {
            member::Message::Ping { requests, .. } | member::Message::Pong { requests, .. } => {
                requests.is_finite() && *requests >= 0.0
            }
            member::Message::Handover {
                why: Handover::Better { present, predicted, .. }, ..
            } => present.is_finite() && predicted.is_finite(),
            member::Message::Installation(installation::Message::Founded { founders, .. }) => {
                founders.len() <= MAX_MEMBERS
            }
            member::Message::Installation(installation::Message::Roster { roster, .. }) => {
                let fits = |entry: &Entry| {
                    entry.contact.name.len() <= MAX_NAME
                        && entry.contact.address.len() <= MAX_ADDRESS
                };
                roster.entries().len() <= MAX_MEMBERS && roster.entries().iter().all(fits)
            }
            _ => true,
        }
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Longer than any message.
    #[error("a message has at most {MAX_BYTES} bytes, not {0}")]
    TooLong(usize),
    /// Not what any message looks like.
    #[error("{0} bytes that are no message of protocol version {VERSION}")]
    NoMessage(usize),
    /// A message, and more.
    #[error("{0} bytes more than the message")]
    Trailing(usize),
    /// A message with a number that no member sends, or a list of members that nobody can have.
    #[error(
        "a message with a number that is not finite, or negative where it cannot be, or a list of too many members or too \
         long names"
    )]
    Unsound,
}

/// Appends a message to `bytes`.
///
/// ```
/// use mandate_proto::pole::installation::ConfigId;
/// use mandate_proto::pole::member::Message;
/// use mandate_proto::wire::{decode, encode};
///
/// let config = ConfigId::new(9);
/// let ping = Message::Ping { number: 7, requests: 120.0, interval: None, config };
/// let mut bytes = Vec::new();
/// encode(&ping, &mut bytes);
/// assert_eq!(decode(&bytes), Ok(ping));
/// bytes.pop();
/// assert!(decode::<Message>(&bytes).is_err());
/// ```
pub fn encode<M: Wire>(message: &M, bytes: &mut Vec<u8>) {
    let taken = core::mem::take(bytes);
    *bytes = postcard::to_extend(message, taken).expect("every sequence knows its length");
}

/// Reads a message, the whole of `bytes`.
pub fn decode<M: Wire>(bytes: &[u8]) -> Result<M, Malformed> {
    if bytes.len() > MAX_BYTES {
        return Err(Malformed::TooLong(bytes.len()));
    }
    let read = postcard::take_from_bytes::<M>(bytes);
    let (message, rest) = read.map_err(|_| Malformed::NoMessage(bytes.len()))?;
    match rest.len() {
        0 if message.is_sound() => Ok(message),
        0 => Err(Malformed::Unsound),
        trailing => Err(Malformed::Trailing(trailing)),
    }
}
