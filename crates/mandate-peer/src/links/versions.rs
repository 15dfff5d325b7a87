//! Which versions of the protocol a member speaks, so that members of several releases can be in one group: a link speaks the
//! highest that both sides can.
//!
//! A member says the lowest version in the head of its greeting, where releases that spoke one version only expect theirs, and the
//! highest in the settings, where those releases pass over what they do not know. So they take a member that still speaks their
//! version for one of their own.

use std::fmt;

/// The versions that a member speaks, of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Which protocol it is: members of two never understand each other.
    pub protocol: u16,
    /// The lowest version.
    pub oldest: u32,
    /// The highest.
    pub newest: u32,
}

/// The bits of a number in a greeting that say the version; those above say the protocol.
const VERSION_BITS: u32 = 16;

impl Versions {
    /// What the head of a greeting says.
    pub(crate) fn head(self) -> u32 {
        u32::from(self.protocol) << VERSION_BITS | self.oldest
    }

    /// What the head of a greeting says, of a member that says nothing else.
    pub(crate) fn of_head(head: u32) -> Self {
        let version = head & ((1 << VERSION_BITS) - 1);
        let protocol = u16::try_from(head >> VERSION_BITS).unwrap_or(u16::MAX);
        Versions { protocol, oldest: version, newest: version }
    }

    /// The same with the highest version that the settings say, in the form `4-5`. What says less than the head is not taken.
    pub(crate) fn with_said(self, said: &str) -> Self {
        let newest = said.split_once('-').and_then(|(_, newest)| newest.parse().ok());
        Versions { newest: newest.unwrap_or(self.oldest).max(self.oldest), ..self }
    }

    /// In the settings.
    pub(crate) fn said(self) -> String {
        format!("{}-{}", self.oldest, self.newest)
    }

    /// The same without versions below this one.
    pub(crate) fn since(self, oldest: u32) -> Self {
        Versions { oldest: self.oldest.max(oldest), ..self }
    }

    /// The highest version that both speak.
    pub(crate) fn common(self, theirs: Versions) -> Option<u32> {
        let (oldest, newest) = (self.oldest.max(theirs.oldest), self.newest.min(theirs.newest));
        (self.protocol == theirs.protocol && oldest <= newest).then_some(newest)
    }

    /// What is to be done where there is none.
    pub(crate) fn advice(self, theirs: Versions) -> &'static str {
        if self.protocol != theirs.protocol {
            "one has the guarantee overlap and the other has not: give all members the same guarantee"
        } else if theirs.newest < self.oldest {
            "upgrade it, or remove `protocol` from its configuration if that holds it back"
        } else {
            "upgrade this member, or remove `protocol` from its configuration if that holds it back"
        }
    }
}

/// `version 4`, or `versions 4 to 5`.
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { oldest, newest, .. } = self;
        if oldest < newest {
            write!(f, "versions {oldest} to {newest}")
        } else {
            write!(f, "version {newest}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(oldest: u32, newest: u32) -> Versions {
        Versions { protocol: 0, oldest, newest }
    }

    #[test]
    fn a_link_speaks_the_highest_version_that_both_can() {
        for (ours, theirs, common) in [
            ((4, 5), (4, 4), Some(4)),
            ((4, 5), (4, 5), Some(5)),
            ((4, 5), (5, 7), Some(5)),
            ((4, 7), (5, 6), Some(6)),
            ((5, 5), (4, 4), None),
            ((4, 5), (6, 7), None),
        ] {
            let (ours, theirs) = (versions(ours.0, ours.1), versions(theirs.0, theirs.1));
            assert_eq!(ours.common(theirs), common);
            assert_eq!(theirs.common(ours), common);
        }
        let overlap = Versions { protocol: 1, ..versions(4, 5) };
        assert_eq!(versions(4, 5).common(overlap), None);
        assert!(versions(4, 5).advice(overlap).contains("guarantee"));
    }

    #[test]
    fn a_greeting_says_them_so_that_a_release_with_one_version_sees_its_own() {
        let ours = Versions { protocol: 1, oldest: 4, newest: 5 };
        assert_eq!(ours.head(), 0x1_0004, "what it was compared with");
        assert_eq!(Versions::of_head(ours.head()).with_said(&ours.said()), ours);
        let strict = Versions::of_head(5);
        assert_eq!((strict.oldest, strict.newest), (5, 5));
        for wrong in ["", "5", "5-", "5-x", "5-4", "-"] {
            assert_eq!(strict.with_said(wrong), strict, "{wrong}");
        }
    }

    #[test]
    fn who_is_too_old_is_named() {
        let (old, new) = (versions(4, 4), versions(5, 6));
        assert!(new.advice(old).starts_with("upgrade it"));
        assert!(old.advice(new).starts_with("upgrade this member"));
        assert_eq!(
            (old.to_string(), new.to_string()),
            ("version 4".into(), "versions 5 to 6".into())
        );
    }
}
