//! Why there is no link, in words for an operator.
//!
//! A refusal means that somebody has to correct something; everything else (nobody there, a connection
//! lost on the way) passes by itself and is only tried again. Texts hold nothing that differs between two
//! attempts, such as the seconds since a certificate expired: each would be news.

use mandate_proto::identity::MemberId;
use quinn::{ConnectionError, ReadError, ReadExactError, VarInt, WriteError};

use super::limits::{MAX_FOREIGN_TEXT, MAX_GUESTS};
use super::name::Unnamed;
use super::settings::Settings;
use super::versions::Versions;

/// The member stops, or needs the connection no longer.
pub(crate) const STOPPING: VarInt = VarInt::from_u32(0);
/// The connection is not to become a link; the reason is sent along.
pub(crate) const REFUSED: VarInt = VarInt::from_u32(1);
/// A newer connection of the same member took its place.
pub(crate) const REPLACED: VarInt = VarInt::from_u32(2);
/// The other side broke the rules; the reason is sent along.
pub(crate) const VIOLATION: VarInt = VarInt::from_u32(3);
/// The other side did not say that it is there.
pub(crate) const NO_ANSWER: VarInt = VarInt::from_u32(4);

/// The other side has another list of members or another guarantee; ours are sent along, as text.
pub(crate) const DIFFERS: VarInt = VarInt::from_u32(16);

/// Why a connection did not become a link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// Somebody has to correct something.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// To be tried again.
    #[error("{0}")]
    Lost(String),
}

/// What has to be corrected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "its certificate is not signed by the group's certificate authority; issue it from the same CA, or \
         correct the CA that is configured here"
    )]
    ForeignAuthority,
    #[error(
        "its certificate has expired or is not valid yet; renew it, or correct the clock of either host"
    )]
    Expired,
    #[error("it shows no certificate; every member needs one, signed by the group's CA")]
    NoCertificate,
    #[error(
        "its certificate is not meant for this; allow both client and server authentication in its \
         extended key usage, or leave that out"
    )]
    OtherPurpose,
    #[error(
        "its certificate is not that of the member expected here: {0}; correct the addresses of the peers, or its certificate"
    )]
    OtherName(String),
    #[error("its certificate is not acceptable: {0}")]
    Unacceptable(String),
    #[error(
        "the TLS handshake failed: {0}; is there another program, or another release, at this address?"
    )]
    Handshake(String),
    #[error(transparent)]
    Unnamed(#[from] Unnamed),
    #[error(
        "it is {found} by its certificate, where {expected} was expected; correct the addresses of the peers"
    )]
    OtherMember { expected: MemberId, found: MemberId },
    #[error(
        "it is {0} by its certificate, which is not among the peers configured here; add it, or remove it there"
    )]
    UnknownMember(MemberId),
    #[error(
        "it is {0} by its certificate, which is not among the members as they are now; stop it, or add it to the group anew"
    )]
    NoMember(MemberId),
    #[error(
        "it is not among the members, and {MAX_GUESTS} others that are not are here already; stop those that were removed"
    )]
    TooManyGuests,
    #[error(
        "it is {0} by its certificate, as is this member; give every member an id and a certificate of its own"
    )]
    Myself(MemberId),
    #[error(
        "it is {theirs} and dials {ours}, but of two members the one with the lower id dials; are both of the same release?"
    )]
    OutOfTurn { theirs: MemberId, ours: MemberId },
    #[error(
        "it does not greet as a member does; is there another program, or another release, at this address?"
    )]
    NoGreeting,
    #[error(
        "it speaks protocol {theirs}, and this member {ours}; {} (docs/upgrades.md says which releases go together)", ours.advice(*theirs)
    )]
    OtherVersion { theirs: Versions, ours: Versions },
    #[error(
        "it belongs to the group {theirs}, and this member to the group {ours}; correct the group or the address"
    )]
    OtherGroup { theirs: String, ours: String },
    #[error(
        "it sent a frame of {length} bytes, where {most} are allowed; run the same release on both, and the same guarantee if one is overlap and the other is not"
    )]
    FrameTooLong { length: usize, most: usize },
    #[error(
        "it sent bytes over the watch, which is silent among members; is something between the two hosts answering for it?"
    )]
    WatchSpoke,
    #[error(
        "it is configured with {theirs}, and this member with {ours}: neither counts the other's votes; give all members \
         the same list and guarantee (docs/peer.md says how to change them)"
    )]
    OtherSettings { theirs: Box<Settings>, ours: Box<Settings> },
    #[error("the other side has other settings: {0}")]
    DiffersThere(String),
    #[error(
        "it says something about the link that no member of this release says; run the same release on both"
    )]
    UnknownWord,
    #[error(
        "another process runs as {0}, and answers: two processes under one id could both vote. Stop one of them; if \
         its host was cloned, give it an id, a certificate and a state of its own"
    )]
    Twin(MemberId),
    #[error(
        "{0} shows another state file than before: what it voted with the former one is forgotten. If that file was lost, \
         move the present one away and start {0} with --lost, or have the leader replace {0} by a new member, which is the only way \
         once the members were changed while the group ran; if it was moved, correct the path of its state"
    )]
    OtherState(MemberId),
    #[error("the other side refused this member's certificate: {0}")]
    CertificateRefusedThere(&'static str),
    #[error("the other side refused this member, and says of it: {0}")]
    RefusedThere(String),
}

impl From<Unnamed> for Failure {
    fn from(unnamed: Unnamed) -> Self {
        Failure::Refused(unnamed.into())
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TransportError(error) => match alert(error.code.into()) {
                Some(alert) => refused_here(alert, &error.reason).into(),
                None => Failure::Lost(error.to_string()),
            },
            ConnectionError::ConnectionClosed(close) => match alert(close.error_code.into()) {
                Some(alert) => Refusal::CertificateRefusedThere(refused_there(alert)).into(),
                None => Failure::Lost(format!("the other side ended it: {}", close.error_code)),
            },
            ConnectionError::ApplicationClosed(close)
                if [REFUSED, VIOLATION].contains(&close.error_code) =>
            {
                let reason = printable(&String::from_utf8_lossy(&close.reason));
                Refusal::RefusedThere(reason).into()
            }
            ConnectionError::ApplicationClosed(close) if close.error_code == DIFFERS => {
                let theirs = String::from_utf8_lossy(&close.reason).into_owned();
                Refusal::DiffersThere(theirs).into()
            }
            ConnectionError::ApplicationClosed(_) => {
                Failure::Lost("the other side ended it".to_owned())
            }
            ConnectionError::TimedOut => Failure::Lost("no answer".to_owned()),
            other => Failure::Lost(other.to_string()),
        }
    }
}

impl From<ReadExactError> for Failure {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::ReadError(ReadError::ConnectionLost(error)) => error.into(),
            ReadExactError::FinishedEarly(_) | ReadExactError::ReadError(ReadError::Reset(_)) => {
                Refusal::NoGreeting.into()
            }
            ReadExactError::ReadError(error) => Failure::Lost(error.to_string()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(error) => error.into(),
            other => Failure::Lost(other.to_string()),
        }
    }
}

/// The TLS alert within a QUIC error code (RFC 9001, section 4.8).
fn alert(code: u64) -> Option<u8> {
    (0x100..0x200).contains(&code).then_some(code as u8)
}

// Alerts of TLS (RFC 8446, section 6.2).
const BAD_CERTIFICATE: u8 = 42;
const UNSUPPORTED_CERTIFICATE: u8 = 43;
const CERTIFICATE_EXPIRED: u8 = 45;
const CERTIFICATE_UNKNOWN: u8 = 46;
const UNKNOWN_CA: u8 = 48;
const DECRYPT_ERROR: u8 = 51;
const CERTIFICATE_REQUIRED: u8 = 116;

/// What we found wrong with the other side's certificate.
fn refused_here(alert: u8, detail: &str) -> Refusal {
    let detail = printable(detail.trim_start_matches("invalid peer certificate: "));
    match alert {
        UNKNOWN_CA => Refusal::ForeignAuthority,
        CERTIFICATE_EXPIRED => Refusal::Expired,
        CERTIFICATE_REQUIRED => Refusal::NoCertificate,
        UNSUPPORTED_CERTIFICATE => Refusal::OtherPurpose,
        BAD_CERTIFICATE if detail.contains("not valid for name") => Refusal::OtherName(detail),
        // A foreign CA with the same name as ours is found out by its signature.
        DECRYPT_ERROR => Refusal::ForeignAuthority,
        BAD_CERTIFICATE | CERTIFICATE_UNKNOWN => Refusal::Unacceptable(detail),
        _ => Refusal::Handshake(detail),
    }
}

/// What the other side found wrong with ours; it sends no more than a number.
fn refused_there(alert: u8) -> &'static str {
    match alert {
        UNKNOWN_CA | DECRYPT_ERROR => "it is not signed by the CA that is configured there",
        CERTIFICATE_EXPIRED => {
            "it has expired or is not valid yet; renew it, or correct the clock of either host"
        }
        CERTIFICATE_REQUIRED => "none was shown",
        UNSUPPORTED_CERTIFICATE => "its extended key usage does not allow this use",
        BAD_CERTIFICATE => {
            "it expects another member, or a member of another group, at this address"
        }
        _ => "the TLS handshake failed; are both of the same release?",
    }
}

/// A text of the other side as it may appear in a log: short, without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_FOREIGN_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_other_side_sends_cannot_forge_lines_of_a_log() {
        let text = printable(&format!("a\nERROR b\u{1b}[2J{}", "x".repeat(10_000)));
        assert!(text.starts_with("aERROR b[2Jx"), "{text}");
        assert_eq!(text.len(), MAX_FOREIGN_TEXT);
    }

    #[test]
    fn the_text_of_an_expired_certificate_does_not_change_by_the_second() {
        let first = refused_here(CERTIFICATE_EXPIRED, "certificate expired: 17 seconds ago");
        assert_eq!(first, refused_here(CERTIFICATE_EXPIRED, "certificate expired: 18 seconds ago"));
    }
}
