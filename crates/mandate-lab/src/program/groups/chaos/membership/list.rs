//! Lists of members as leaders tell them, and what none of them may say.

use std::collections::BTreeSet;
use std::str::FromStr;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{MemberChange, RosterId};

/// The list that a member goes by.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) id: RosterId,
    /// Whether the member, as the leader, says that a quorum has it on disk.
    pub(super) is_settled: bool,
    pub(super) voters: BTreeSet<MemberId>,
    /// Learners and observers.
    others: BTreeSet<MemberId>,
    /// Those that leave once another votes.
    pub(super) replaced: BTreeSet<MemberId>,
}

impl Listed {
    /// Whether a member is on it, with a vote or without.
    pub(super) fn has(&self, member: MemberId) -> bool {
        self.voters.contains(&member) || self.others.contains(&member)
    }

    /// Whether these vote, nobody else is on it, and nobody is to leave.
    pub(super) fn is_of(&self, voters: &BTreeSet<MemberId>) -> bool {
        self.voters == *voters && self.others.is_empty() && self.replaced.is_empty()
    }

    /// Whether it says that a change was made: an added member is on it, a removed one is not.
    pub(super) fn shows(&self, change: &MemberChange) -> bool {
        self.has(change.member()) != matches!(change, MemberChange::Remove { .. })
    }
}

impl FromStr for Listed {
    type Err = String;

    /// Reads the answer of a member.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (id, state) = (words.next().and_then(number), words.next());
        let (Some(id), Some("settled" | "open")) = (id, state) else {
            return Err(format!("`{text}` is no list of members"));
        };
        let mut listed = Listed {
            id,
            is_settled: state == Some("settled"),
            voters: BTreeSet::new(),
            others: BTreeSet::new(),
            replaced: BTreeSet::new(),
        };
        for word in words {
            let (id, part, replaces) =
                line(word).ok_or_else(|| format!("`{word}` is no line of a list of members"))?;
            match part {
                "voter" => listed.voters.insert(id),
                _ => listed.others.insert(id),
            };
            listed.replaced.extend(replaces);
        }
        Ok(listed)
    }
}

/// The number of a list: `TERM.VERSION`.
pub(super) fn number(text: &str) -> Option<RosterId> {
    let (term, version) = text.split_once('.')?;
    Some(RosterId { term: Term::new(term.parse().ok()?), version: version.parse().ok()? })
}

/// `MEMBER:PART`, perhaps with `>MEMBER`.
fn line(word: &str) -> Option<(MemberId, &str, Option<MemberId>)> {
    let (id, part) = word.split_once(':')?;
    let (part, replaces) = match part.split_once('>') {
        Some((part, old)) => (part, Some(old.parse().ok()?)),
        None => (part, None),
    };
    Some((id.parse().ok()?, part, replaces))
}

/// Who votes no more after a change.
pub(super) fn leaving(change: &MemberChange) -> Option<MemberId> {
    match change {
        MemberChange::Add { replaces, .. } => *replaces,
        MemberChange::Remove { member } => Some(*member),
        _ => None,
    }
}

/// What is known of a group, whatever its leader says.
pub(super) struct Known<'a> {
    /// Who voted before the changes that are under way.
    pub(super) voters: &'a BTreeSet<MemberId>,
    /// The changes that are under way, and the list of those that are settled.
    pub(super) asked: Vec<(&'a MemberChange, Option<RosterId>)>,
    /// Those that were members.
    pub(super) gone: BTreeSet<MemberId>,
}

impl Known<'_> {
    /// Everything in the list of a leader that must not be: a settled change that is missing, a member that nobody has removed and
    /// that is missing, one that was removed or that nobody has added.
    pub(super) fn violations(&self, leader: MemberId, listed: &Listed) -> Vec<String> {
        let mut found = Vec::new();
        let changes = || self.asked.iter().map(|(change, _)| *change);
        for (change, settled) in &self.asked {
            let Some(settled) = settled else { continue };
            if listed.id < *settled || !listed.shows(change) {
                let id = listed.id;
                found.push(format!(
                    "{} was settled in list {settled}, and {leader} leads by list {id}, {}",
                    told(change),
                    if listed.shows(change) { "which is older" } else { "without it" }
                ));
            }
        }
        for voter in self.voters {
            let is_to_leave = changes().any(|change| leaving(change) == Some(*voter));
            if !is_to_leave && !listed.voters.contains(voter) {
                found.push(format!(
                    "{voter} votes, nobody has removed it, and {leader} leads by a list in which it does not"
                ));
            }
        }
        for member in listed.voters.iter().chain(&listed.others) {
            let is_added = changes().any(|change| {
                change.member() == *member && !matches!(change, MemberChange::Remove { .. })
            });
            if self.gone.contains(member) {
                found.push(format!(
                    "{member} was removed, and {leader} leads by a list that names it: its id was used twice, or the change undone"
                ));
            } else if !self.voters.contains(member) && !is_added {
                found.push(format!(
                    "nobody has added {member}, and {leader} leads by a list that names it"
                ));
            }
        }
        found
    }
}

/// A change, for people.
pub(super) fn told(change: &MemberChange) -> String {
    let member = change.member();
    match change {
        MemberChange::Add { replaces: Some(old), .. } => format!("{member} in place of {old}"),
        MemberChange::Add { .. } => format!("{member} added"),
        MemberChange::Observe { .. } => format!("{member} observing"),
        MemberChange::Promote { .. } => format!("{member} voting"),
        MemberChange::Remove { .. } => format!("{member} removed"),
    }
}

#[cfg(test)]
mod tests {
    use mandate_proto::pole::installation::Contact;

    use super::*;

    fn ids(numbers: &[u32]) -> BTreeSet<MemberId> {
        numbers.iter().copied().map(MemberId::new).collect()
    }

    fn add(member: u32, replaces: Option<u32>) -> MemberChange {
        let (member, contact) = (MemberId::new(member), Contact::default());
        MemberChange::Add { member, contact, replaces: replaces.map(MemberId::new) }
    }

    fn remove(member: u32) -> MemberChange {
        MemberChange::Remove { member: MemberId::new(member) }
    }

    /// Of three members, p1 to p3; p4 was one.
    fn violations(asked: &[(MemberChange, Option<&str>)], list: &str) -> Vec<String> {
        let asked = asked.iter();
        let known = Known {
            voters: &ids(&[1, 2, 3]),
            asked: asked.map(|(change, list)| (change, list.and_then(number))).collect(),
            gone: ids(&[4]),
        };
        known.violations(MemberId::new(1), &list.parse().expect("a list"))
    }

    #[test]
    fn lists_are_read_with_who_learns_and_who_leaves() {
        let listed: Listed = "7.12 settled p1:voter p5:voter>p2 p6:learner".parse().unwrap();
        assert_eq!((listed.id, listed.is_settled), (number("7.12").unwrap(), true));
        assert_eq!((&listed.voters, &listed.replaced), (&ids(&[1, 5]), &ids(&[2])));
        assert!(listed.has(MemberId::new(6)) && !listed.is_of(&ids(&[1, 5])));
        let open: Listed = "0.1 open p1:voter".parse().unwrap();
        assert!(!open.is_settled && open.is_of(&ids(&[1])) && open.id.is_seed());
        for text in
            ["", "7 settled p1:voter", "7.12 p1:voter", "7.12 open p1", "7.1 open p1:voter>x"]
        {
            assert!(text.parse::<Listed>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_asked_for_may_be_made_or_not_until_it_is_settled() {
        let asked = [(add(5, Some(2)), None), (remove(3), None)];
        for list in [
            "0.1 open p1:voter p2:voter p3:voter",
            "2.2 open p1:voter p2:voter p3:voter p5:learner>p2",
            "2.4 settled p1:voter p3:voter p5:voter",
            "2.5 settled p1:voter p5:voter",
        ] {
            assert!(violations(&asked, list).is_empty(), "{list}");
        }
    }

    #[test]
    fn a_settled_change_that_is_missing_is_a_violation() {
        let asked = [(add(5, None), Some("2.2"))];
        let found = violations(&asked, "3.1 open p1:voter p2:voter p3:voter");
        assert!(found[0].contains("p5 added was settled in list 2.2"), "{found:?}");
        assert!(found[0].contains("without it"), "{found:?}");
        let found = violations(&asked, "2.1 settled p1:voter p2:voter p3:voter p5:voter");
        assert!(found[0].contains("which is older"), "{found:?}");
        let asked = [(remove(3), Some("2.2"))];
        let found = violations(&asked, "3.2 settled p1:voter p2:voter p3:voter");
        assert!(found[0].contains("p3 removed was settled"), "{found:?}");
    }

    #[test]
    fn a_member_that_is_missing_or_that_nobody_has_added_is_a_violation() {
        let found = violations(&[], "3.2 settled p1:voter p2:voter");
        assert!(found[0].starts_with("p3 votes, nobody has removed it"), "{found:?}");
        let found = violations(&[], "3.2 settled p1:voter p2:voter p3:voter p9:observer");
        assert!(found[0].starts_with("nobody has added p9"), "{found:?}");
    }

    #[test]
    fn an_id_that_is_used_twice_is_a_violation() {
        let found = violations(&[], "3.2 settled p1:voter p2:voter p3:voter p4:voter");
        assert!(
            found[0].contains("p4 was removed") && found[0].contains("used twice"),
            "{found:?}"
        );
    }
}
