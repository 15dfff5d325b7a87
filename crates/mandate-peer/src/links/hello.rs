//! The first words on a connection, once TLS has told who speaks.
//!
//! The dialler sends magic, version, life and group on a stream of its own; the accepting side answers
//! with the same, followed by the number for the watch. Later it sends one byte more, when the watch has
//! shown that number. TLS already proves the group by the name in the certificate, but a certificate may
//! name a member of two groups: so both sides say which one they mean.

use super::failure::{Failure, Refusal};
use super::limits::MAX_GROUP_BYTES;
use super::nonce::{NONCE_BYTES, Nonce};

/// So that another protocol is told apart at once.
const MAGIC: [u8; 4] = *b"MNDT";

/// Magic, version, life, and the length of the group's name.
const FIXED_BYTES: usize = 4 + 4 + 8 + 1;

/// The byte by which the accepting side says that it has the watch.
pub(crate) const WATCHED: u8 = 1;

/// What both sides say about themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Of the protocol within frames.
    pub(crate) version: u32,
    /// A random number drawn at each start: shows in the log whether a member was restarted.
    pub(crate) life: u64,
    pub(crate) group: String,
}

impl Hello {
    /// As bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_be_bytes());
        bytes.extend(self.life.to_be_bytes());
        let group = &self.group.as_bytes()[..self.group.len().min(MAX_GROUP_BYTES)];
        bytes.push(group.len() as u8);
        bytes.extend(group);
        bytes
    }

    /// Reads the other side's.
    pub(crate) async fn read(stream: &mut quinn::RecvStream) -> Result<Hello, Failure> {
        let mut fixed = [0; FIXED_BYTES];
        stream.read_exact(&mut fixed).await?;
        let [a, b, c, d, version @ .., length] = fixed;
        if [a, b, c, d] != MAGIC || usize::from(length) > MAX_GROUP_BYTES {
            return Err(Refusal::NoGreeting.into());
        }
        let [e, f, g, h, life @ ..] = version;
        let mut group = vec![0; usize::from(length)];
        stream.read_exact(&mut group).await?;
        let group = String::from_utf8(group).map_err(|_| Refusal::NoGreeting)?;
        let version = u32::from_be_bytes([e, f, g, h]);
        Ok(Hello { version, life: u64::from_be_bytes(life), group })
    }

    /// Whether the other side's fits ours.
    pub(crate) fn check(&self, theirs: &Hello) -> Result<(), Refusal> {
        if theirs.group != self.group {
            let (theirs, ours) = (super::failure::printable(&theirs.group), self.group.clone());
            return Err(Refusal::OtherGroup { theirs, ours });
        }
        if theirs.version != self.version {
            return Err(Refusal::OtherVersion { theirs: theirs.version, ours: self.version });
        }
        Ok(())
    }
}

/// Reads the number for the watch, which follows the accepting side's greeting.
pub(crate) async fn read_nonce(stream: &mut quinn::RecvStream) -> Result<Nonce, Failure> {
    let mut bytes = [0; NONCE_BYTES];
    stream.read_exact(&mut bytes).await?;
    Ok(Nonce::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: u32, group: &str) -> Hello {
        Hello { version, life: 7, group: group.to_owned() }
    }

    #[test]
    fn a_mismatch_names_both_sides() {
        let ours = hello(1, "shop");
        assert_eq!(ours.check(&Hello { life: 8, ..ours.clone() }), Ok(()));
        let version = ours.check(&hello(2, "shop")).unwrap_err().to_string();
        assert!(version.contains("version 2") && version.contains("version 1"), "{version}");
        let group = ours.check(&hello(1, "bank")).unwrap_err().to_string();
        assert!(group.contains("bank") && group.contains("shop"), "{group}");
    }

    #[test]
    fn the_greeting_has_the_documented_bytes() {
        let bytes = hello(3, "ab").encode();
        assert_eq!(bytes, b"MNDT\0\0\0\x03\0\0\0\0\0\0\0\x07\x02ab");
    }
}
