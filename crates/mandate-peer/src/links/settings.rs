//! What a member says of its configuration in the greeting, so that members that must not count each other's votes find out,
//! and can say what differs.
//!
//! Lines of text, a name and a value each. The digest decides; the list of members and the guarantee stand
//! behind it, and are there to be named. The rest may differ, but is hardly meant to: it is warned of.

use std::fmt;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::ConfigId;

use super::failure::printable;
use super::limits::MAX_SETTINGS_BYTES;

const DIGEST: &str = "config";
const MEMBERS: &str = "members";
const GUARANTEE: &str = "guarantee";

/// A member's configuration, as far as the others should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    config: Option<ConfigId>,
    /// Names and values; the list of members and the guarantee come first.
    lines: Vec<(String, String)>,
}

impl Settings {
    /// Of a member that votes: this list, this guarantee in a word, and what that comes to.
    pub fn new(config: ConfigId, members: &[MemberId], guarantee: &str) -> Self {
        let members: Vec<_> = members.iter().map(MemberId::to_string).collect();
        let lines = vec![(MEMBERS.into(), members.join(" ")), (GUARANTEE.into(), guarantee.into())];
        Settings { config: Some(config), lines }
    }

    /// Says something else, which may differ, but is worth a warning.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.lines.push((name.into(), value.to_string().replace('\n', " ")));
        self
    }

    /// What must be the same, if anything must.
    pub fn config(&self) -> Option<ConfigId> {
        self.config
    }

    /// Whether both may count each other's votes.
    pub(crate) fn agrees(&self, theirs: &Settings) -> bool {
        match (self.config, theirs.config) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => true,
        }
    }

    /// What may differ and does: its name, our value and theirs.
    pub(crate) fn differences(&self, theirs: &Settings) -> Vec<(&str, &str, String)> {
        let differs = |(name, ours): &'_ &(String, String)| {
            theirs.value(name).is_some_and(|theirs| theirs != ours.as_str())
        };
        self.lines
            .iter()
            .filter(differs)
            .map(|(name, ours)| {
                let theirs = printable(theirs.value(name).unwrap_or_default());
                (name.as_str(), ours.as_str(), theirs)
            })
            .collect()
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.lines.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// As text, of at most [`MAX_SETTINGS_BYTES`].
    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        if let Some(config) = self.config {
            text = format!("{DIGEST} {config}\n");
        }
        for (name, value) in &self.lines {
            let line = format!("{name} {value}\n");
            if text.len() + line.len() <= MAX_SETTINGS_BYTES {
                text.push_str(&line);
            }
        }
        text
    }

    /// Reads the other side's.
    pub(crate) fn decode(text: &str) -> Self {
        let mut settings = Settings::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            if name == DIGEST {
                let digest = u64::from_str_radix(value, 16).ok();
                settings.config = digest.map(ConfigId::new);
            } else {
                settings.lines.push((name.into(), value.into()));
            }
        }
        settings
    }
}

/// The list of members and the guarantee, for an operator.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |name| printable(self.value(name).unwrap_or("unknown"));
        write!(f, "members {}, guarantee {}", value(MEMBERS), value(GUARANTEE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(digest: u64, members: &[u32]) -> Settings {
        let members: Vec<_> = members.iter().copied().map(MemberId::new).collect();
        Settings::new(ConfigId::new(digest), &members, "leased").with("lease", "1s")
    }

    #[test]
    fn settings_read_back_as_written_and_name_what_differs() {
        let ours = settings(7, &[1, 2, 3]);
        assert_eq!(Settings::decode(&ours.encode()), ours);
        assert_eq!(
            ours.encode(),
            "config 0000000000000007\nmembers p1 p2 p3\nguarantee leased\nlease 1s\n"
        );
        let theirs = settings(8, &[1, 2]);
        assert!(!ours.agrees(&theirs) && ours.agrees(&ours));
        assert_eq!(theirs.to_string(), "members p1 p2, guarantee leased");
        assert_eq!(ours.differences(&theirs), [("members", "p1 p2 p3", "p1 p2".to_owned())]);
        // Who does not vote agrees with everyone.
        assert!(ours.agrees(&Settings::default()));
    }

    #[test]
    fn the_longest_list_and_a_long_oracle_fit() {
        let members: Vec<_> = (0..64).map(|n| u32::MAX - n).collect();
        let long = settings(u64::MAX, &members).with("oracle", "x".repeat(700));
        assert!(long.encode().len() <= MAX_SETTINGS_BYTES);
        assert_eq!(Settings::decode(&long.encode()), long);
    }

    #[test]
    fn what_the_other_side_sends_cannot_forge_lines_of_a_log() {
        let forged = Settings::decode("members p1\u{1b}[2J\rERROR\nguarantee x");
        assert_eq!(forged.to_string(), "members p1[2JERROR, guarantee x");
    }
}
