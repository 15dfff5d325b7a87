//! What a member says of its configuration in the greeting, so that members that must not count each other's votes find out,
//! and can say what differs.
//!
//! Lines of text, a name and a value each. The digest decides; the list of members and the guarantee stand
//! behind it, and are there to be named. The rest may differ, but is hardly meant to: it is warned of.

use std::fmt;

use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{ConfigId, Fit};

use super::failure::printable;
use super::limits::MAX_SETTINGS_BYTES;

const DIGEST: &str = "config";
const MEMBERS: &str = "members";
const GUARANTEE: &str = "guarantee";

/// A member's configuration, as far as the others should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    config: Option<ConfigId>,
    /// The first version of the protocol that can say this; any, if zero.
    since: u32,
    /// Names and values; the list of members and the guarantee come first.
    lines: Vec<(String, String)>,
}

impl Settings {
    /// Of a member that votes: this list, this guarantee in a word, and what that comes to.
    pub fn new(config: ConfigId, members: &[MemberId], guarantee: &str) -> Self {
        let members: Vec<_> = members.iter().map(MemberId::to_string).collect();
        let lines = vec![(MEMBERS.into(), members.join(" ")), (GUARANTEE.into(), guarantee.into())];
        Settings { config: Some(config), since: 0, lines }
    }

    /// Members that do not speak this version of the protocol cannot be in a group with these settings.
    #[must_use]
    pub fn since(self, version: u32) -> Self {
        Settings { since: version, ..self }
    }

    /// The first version that is spoken with them.
    pub(crate) fn spoken_since(&self) -> u32 {
        self.since
    }

    /// The value of a line that is about something else than the configuration; it is in these settings no more.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let place = self.lines.iter().position(|(other, _)| other == name)?;
        Some(self.lines.remove(place).1)
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

    /// Whether both may be members of one group: neither votes, or both have the same guarantee, and the list of one is the other's, or
    /// comes before it or after it.
    pub(crate) fn agrees(&self, theirs: &Settings) -> bool {
        let (Some(ours), Some(other)) = (self.config, theirs.config) else { return true };
        match ours.fit(other) {
            Fit::Same => true,
            Fit::Older | Fit::Newer => self.value(GUARANTEE) == theirs.value(GUARANTEE),
            Fit::Differs => false,
        }
    }

    /// Whether one of the two has an older list than the other: it has something to hear.
    pub(crate) fn goes_by_another_list(&self, theirs: &Settings) -> bool {
        let (Some(ours), Some(theirs)) = (self.config, theirs.config) else { return false };
        matches!(ours.fit(theirs), Fit::Older | Fit::Newer)
    }

    /// Whether the list was changed since the group was set up.
    pub(crate) fn is_changed(&self) -> bool {
        self.config.is_some_and(|config| !config.roster().is_seed())
    }

    /// What may differ and does: its name, our value and theirs.
    pub(crate) fn differences(&self, theirs: &Settings) -> Vec<(&str, &str, String)> {
        let both_vote = self.config.is_some() && theirs.config.is_some();
        // Lists may differ for a while, and the member with the older one is told.
        let is_list = |name: &str| both_vote && name == MEMBERS;
        let differs = |(name, ours): &'_ &(String, String)| {
            !is_list(name) && theirs.value(name).is_some_and(|theirs| theirs != ours.as_str())
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
        self.encode_with([])
    }

    /// The same, and these lines before all that may be left out.
    pub(crate) fn encode_with<'a>(
        &self,
        others: impl IntoIterator<Item = (&'a str, String)>,
    ) -> String {
        let mut text = String::new();
        let mut say = |name: &str, value: &dyn fmt::Display| {
            let line = format!("{name} {value}\n");
            if text.len() + line.len() <= MAX_SETTINGS_BYTES {
                text.push_str(&line);
            }
        };
        if let Some(config) = self.config {
            say(DIGEST, &config);
        }
        others.into_iter().for_each(|(name, value)| say(name, &value));
        self.lines.iter().for_each(|(name, value)| say(name, value));
        text
    }

    /// Reads the other side's.
    pub(crate) fn decode(text: &str) -> Self {
        let mut settings = Settings::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(' ') else { continue };
            if name == DIGEST {
                settings.config = value.parse().ok();
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
    use std::time::Duration;

    use mandate_proto::identity::Term;
    use mandate_proto::pole::installation::{Entry, PeerGuarantee, Roster, RosterId};

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
        let longer = Settings { lines: vec![("lease".into(), "2s".into())], ..theirs };
        assert_eq!(ours.differences(&longer), [("lease", "1s", "2s".to_owned())]);
        // Who does not vote agrees with everyone.
        assert!(ours.agrees(&Settings::default()));
    }

    #[test]
    fn a_list_that_was_changed_fits_older_and_newer_ones_of_the_same_guarantee_and_no_other_of_its_number()
     {
        let settings = |roster: Roster, guarantee| {
            let members: Vec<_> = roster.members().collect();
            let id = ConfigId::of_roster(&roster, guarantee);
            let word = if guarantee == PeerGuarantee::Fenced { "fenced" } else { "leased" };
            Settings::new(id, &members, word)
        };
        let leased =
            PeerGuarantee::Leased { lease: Duration::from_secs(1), allowance_per_mille: 10 };
        let roster = |version, ids: &[u32]| {
            let entries = ids.iter().map(|number| Entry::voter(MemberId::new(*number)));
            Roster::new(RosterId { term: Term::new(3), version }, entries)
        };
        let seed = settings(Roster::seed([1, 2].map(MemberId::new)), leased);
        let (one, two) =
            (settings(roster(2, &[1, 2, 3]), leased), settings(roster(3, &[1, 2]), leased));
        let joins = settings(Roster::NONE, leased);
        for (ours, theirs) in [(&seed, &one), (&one, &two), (&two, &joins), (&joins, &seed)] {
            assert_eq!(Settings::decode(&ours.encode()), *ours);
            assert!(ours.agrees(theirs) && theirs.agrees(ours), "{ours:?} {theirs:?}");
            assert!(ours.goes_by_another_list(theirs) && theirs.goes_by_another_list(ours));
            assert_eq!(ours.differences(theirs), [], "nothing to warn of");
        }
        assert!(one.agrees(&one) && !one.goes_by_another_list(&one));
        assert!(one.is_changed() && !seed.is_changed() && !joins.is_changed());
        let other = settings(roster(2, &[1, 2, 4]), leased);
        assert!(!one.agrees(&other) && !one.goes_by_another_list(&other));
        let fenced = settings(roster(4, &[1, 2]), PeerGuarantee::Fenced);
        assert!(!one.agrees(&fenced), "another guarantee, whatever the list");
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
