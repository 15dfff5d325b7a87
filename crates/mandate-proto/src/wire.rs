//! Messages as bytes.
//!
//! One message is one frame of at most [`MAX_BYTES`]; whatever carries it keeps frames apart. The
//! format is postcard's: numbers as variable-length integers, fields in their order, nothing that
//! describes itself. Peers therefore agree on a version before they exchange any: the highest that both speak, out of
//! [`OLDEST`] to [`VERSION`], which rises with every change of a message. What is kept on a ledger has the newest only.
//!
//! Decoding is total and allocates nothing but values and lists of members, which are bounded: a frame is a message, exactly, or an error. What numbers
//! *mean* is for the machines to judge, and they ignore what cannot be.

use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::neli;
use crate::nfd_l;
use crate::pole::installation::{self, Entry, MAX_ADDRESS, MAX_MEMBERS, MAX_NAME, MemberChange};
use crate::pole::member::{self, Handover, LeaderRequest};
use crate::value::MAX_VALUE_BYTES;

mod version_4;

/// The newest version that is spoken. It rises with every change of a message, and with every behaviour that others must know of.
pub const VERSION: u32 = 5;

/// The oldest that is spoken: a member that speaks it may be in one group with this release.
pub const OLDEST: u32 = version_4::VERSION;

/// From this version on members come and go while a group runs.
pub const CHANGES_SINCE: u32 = 5;

/// From this version on members send each other requests to the leader.
pub const REQUESTS_SINCE: u32 = 5;

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

    /// Appends what version 4 makes of it; false if that version cannot say it. By default the message is the same there.
    fn write_4(&self, bytes: &mut Vec<u8>) -> bool {
        write(self, bytes);
        true
    }

    /// Reads a message of version 4, and what comes after it.
    fn read_4(bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        postcard::take_from_bytes(bytes)
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
                let fits = |entry: &Entry| entry.contact.fits();
                roster.entries().len() <= MAX_MEMBERS && roster.entries().iter().all(fits)
            }
            member::Message::Request { request: LeaderRequest::Change(change), .. } => match change
            {
                MemberChange::Add { contact, .. } | MemberChange::Observe { contact, .. } => {
                    contact.fits()
                }
                MemberChange::Promote { .. } | MemberChange::Remove { .. } => true,
            },
            _ => true,
        }
    }

    fn write_4(&self, bytes: &mut Vec<u8>) -> bool {
        let said = version_4::said(self);
        said.is_some_and(|said| {
            write(&said, bytes);
            true
        })
    }

    fn read_4(bytes: &[u8]) -> postcard::Result<(Self, &[u8])> {
        let (message, rest) = postcard::take_from_bytes::<version_4::Message>(bytes)?;
        Ok((message.into(), rest))
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Longer than any message.
    #[error("a message has at most {MAX_BYTES} bytes, not {0}")]
    TooLong(usize),
    /// Not what any message looks like.
    #[error("{0} bytes that are no message of the protocol version that was agreed on")]
    NoMessage(usize),
    /// In a version that this release does not speak.
    #[error("a message of protocol version {0}, where versions {OLDEST} to {VERSION} are spoken")]
    OtherVersion(u32),
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
    write(message, bytes);
}

/// Appends a message to `bytes` as this version has it; false if that version cannot say it, or is not spoken.
pub fn encode_as<M: Wire>(version: u32, message: &M, bytes: &mut Vec<u8>) -> bool {
    match version {
        VERSION => {
            write(message, bytes);
            true
        }
        version_4::VERSION => message.write_4(bytes),
        _ => false,
    }
}

fn write<T: Serialize>(message: &T, bytes: &mut Vec<u8>) {
    let taken = core::mem::take(bytes);
    *bytes = postcard::to_extend(message, taken).expect("every sequence knows its length");
}

/// Reads a message, the whole of `bytes`.
pub fn decode<M: Wire>(bytes: &[u8]) -> Result<M, Malformed> {
    decode_as(VERSION, bytes)
}

/// Reads a message of this version, the whole of `bytes`.
pub fn decode_as<M: Wire>(version: u32, bytes: &[u8]) -> Result<M, Malformed> {
    if bytes.len() > MAX_BYTES {
        return Err(Malformed::TooLong(bytes.len()));
    }
    let read = match version {
        VERSION => postcard::take_from_bytes::<M>(bytes),
        version_4::VERSION => M::read_4(bytes),
        _ => return Err(Malformed::OtherVersion(version)),
    };
    let (message, rest) = read.map_err(|_| Malformed::NoMessage(bytes.len()))?;
    match rest.len() {
        0 if message.is_sound() => Ok(message),
        0 => Err(Malformed::Unsound),
        trailing => Err(Malformed::Trailing(trailing)),
    }
}
