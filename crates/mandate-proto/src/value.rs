//! A value that a leader publishes with its term: where it is reached, or anything else that fits into a few lines.
//!
//! A value belongs to one leader and one term, and is shown with those or not at all. Every engine keeps that rule in its
//! own way: members compare the term with the one they follow, the control row of a database names the term beside
//! the value, and a claim on a ledger is of one term anyway.
//!
//! It is text, since it is shown in JSON, in headers and in environments. Control characters are refused but for tabs
//! and line ends: PostgreSQL stores no zero byte, and terminals obey some of the others.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// No value is longer: an address or a small JSON document, and little enough to travel with heartbeats.
pub const MAX_VALUE_BYTES: usize = 4096;

/// What a leader publishes: text of 1 to [`MAX_VALUE_BYTES`] bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Arc<str>);

/// Why something cannot be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidValue {
    /// There is nothing to show.
    #[error("a value has at least one byte")]
    Empty,
    /// It would not fit.
    #[error("a value has at most {MAX_VALUE_BYTES} bytes, not {0}")]
    TooLong(usize),
    /// It could not be shown.
    #[error("a value is text in UTF-8: byte {0} is not")]
    NotText(usize),
    /// A terminal might obey it.
    #[error(
        "a value has no control characters but tabs and line ends: byte {at} is one ({code:#04x})"
    )]
    Control {
        /// Where, in bytes.
        at: usize,
        /// The character's Unicode code point.
        code: u32,
    },
}

/// Why a value was not published. What was published before is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPublish {
    /// Only who leads publishes, and only in the term that it holds.
    #[error(
        "this member does not lead, or not in that term any more: only the leader publishes a value"
    )]
    NotLeading,
    /// A ledger's claims are records, and a record is not changed.
    #[error("on a ledger a value goes with the claim: give it to the member before it starts")]
    WithClaim,
    /// NFD-L: without terms nobody could tell an old value from a new one.
    #[error("this engine has no terms, and so no values with them")]
    Unsupported,
}

impl Value {
    /// Checks a text.
    pub fn new(text: &str) -> Result<Self, InvalidValue> {
        Self::check(text)?;
        Ok(Value(text.into()))
    }

    /// Checks bytes from anywhere.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidValue> {
        if bytes.len() > MAX_VALUE_BYTES {
            return Err(InvalidValue::TooLong(bytes.len()));
        }
        let text = core::str::from_utf8(bytes);
        Self::new(text.map_err(|error| InvalidValue::NotText(error.valid_up_to()))?)
    }

    fn check(text: &str) -> Result<(), InvalidValue> {
        match text.len() {
            0 => return Err(InvalidValue::Empty),
            length if length > MAX_VALUE_BYTES => return Err(InvalidValue::TooLong(length)),
            _ => {}
        }
        let is_refused = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
        match text.char_indices().find(|(_, c)| is_refused(*c)) {
            Some((at, c)) => Err(InvalidValue::Control { at, code: c.into() }),
            None => Ok(()),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for Value {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Value::new(text)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Value::new(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_address_and_a_document_of_many_lines_are_values() {
        for text in ["10.0.0.7:8080", "{\n\t\"url\": \"http://orders-0\"\r\n}", "Straße"] {
            assert_eq!(Value::new(text).unwrap().as_str(), text);
            assert_eq!(Value::from_bytes(text.as_bytes()), text.parse());
        }
    }

    #[test]
    fn the_last_byte_that_fits_is_taken_and_the_next_is_not() {
        let longest = "x".repeat(MAX_VALUE_BYTES);
        assert_eq!(Value::new(&longest).unwrap().as_str().len(), MAX_VALUE_BYTES);
        let error = Value::new(&(longest + "x")).unwrap_err();
        assert_eq!(error.to_string(), "a value has at most 4096 bytes, not 4097");
    }

    #[test]
    fn what_could_not_be_shown_is_refused_and_the_error_says_where() {
        assert_eq!(Value::new(""), Err(InvalidValue::Empty));
        assert_eq!(Value::from_bytes(b"ab\xff"), Err(InvalidValue::NotText(2)));
        let error = Value::new("a\u{1b}[2J").unwrap_err();
        assert_eq!(error, InvalidValue::Control { at: 1, code: 0x1b });
        assert!(error.to_string().ends_with("byte 1 is one (0x1b)"), "{error}");
        assert!(Value::new("a\0").is_err());
    }
}
