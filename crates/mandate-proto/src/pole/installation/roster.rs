//! Who the members are: a list that a running group can change.
//!
//! A roster has a number: the term of the leader that decided it, and a version. Of two rosters the one with the higher
//! number is newer, and every member goes by the newest that it has heard of. The list that a group is set up with, from its
//! configuration files, is the seed: term 0, version 1. A process that is to be added has none at all.
//!
//! How a roster is changed, and why that is safe, is said in the module `changing`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::identity::{Incarnation, MemberId, Term};

/// The number of a roster: the newer one has the higher.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RosterId {
    /// Of the leader that decided it; none for a seed.
    pub term: Term,
    /// Rises with every change.
    pub version: u64,
}

impl RosterId {
    /// Of a process that knows of no group yet.
    pub const NONE: RosterId = RosterId { term: Term::NONE, version: 0 };

    /// Of the list in the configuration files.
    pub const SEED: RosterId = RosterId { term: Term::NONE, version: 1 };

    /// Whether the list is the one that the group was set up with, or none.
    pub fn is_seed(self) -> bool {
        self.term == Term::NONE
    }
}

/// Written `3.2`: term and version.
impl fmt::Display for RosterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.version)
    }
}

/// What a member's part in the group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Membership {
    /// It votes, and may lead.
    Voter {
        /// Who leaves now that this one votes.
        replaces: Option<MemberId>,
        /// The incarnation in which it joined, if it was added: only with the disk of that one it votes.
        joined: Option<Incarnation>,
    },
    /// It was added, and does not count yet: the leader makes it a voter as soon as it follows.
    Learner {
        /// Who leaves when this one votes.
        replaces: Option<MemberId>,
    },
    /// It follows and never votes.
    Observer,
}

/// Where and under which name a member is found. Empty where the configuration files say it: in a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Contact {
    /// The user's choice, [`MAX_NAME`] bytes at most.
    pub name: String,
    /// As `host:port`, [`MAX_ADDRESS`] bytes at most.
    pub address: String,
}

impl Contact {
    /// Whether name and address are no longer than they may be.
    pub fn fits(&self) -> bool {
        self.name.len() <= MAX_NAME && self.address.len() <= MAX_ADDRESS
    }
}

/// The most bytes of a member's name.
pub const MAX_NAME: usize = 63;

/// The most bytes of a member's address.
pub const MAX_ADDRESS: usize = 128;

/// A line of a roster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The member.
    pub id: MemberId,
    /// What it does.
    pub part: Membership,
    /// Where it is.
    pub contact: Contact,
}

impl Entry {
    /// A voter of whom nothing else is said.
    pub fn voter(id: MemberId) -> Self {
        Entry {
            id,
            part: Membership::Voter { replaces: None, joined: None },
            contact: Contact::default(),
        }
    }

    /// Whether it votes.
    pub fn is_voter(&self) -> bool {
        matches!(self.part, Membership::Voter { .. })
    }

    /// Who leaves once this one votes.
    pub fn replaces(&self) -> Option<MemberId> {
        match self.part {
            Membership::Voter { replaces, .. } | Membership::Learner { replaces } => replaces,
            Membership::Observer => None,
        }
    }
}

/// A list of members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Roster {
    id: RosterId,
    /// The highest id that a member ever had: ids are never used again.
    last_id: MemberId,
    /// In order of ids, each of them once.
    entries: Vec<Entry>,
}

impl Roster {
    /// Of a process that knows of no group yet.
    pub const NONE: Roster =
        Roster { id: RosterId::NONE, last_id: MemberId::new(0), entries: Vec::new() };

    /// The list in the configuration files: all of them vote.
    pub fn seed(members: impl IntoIterator<Item = MemberId>) -> Self {
        Roster::new(RosterId::SEED, members.into_iter().map(Entry::voter))
    }

    /// With this number; of two lines of one member the first counts.
    pub fn new(id: RosterId, entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_by_key(|entry| entry.id);
        entries.dedup_by_key(|entry| entry.id);
        let last_id = entries.last().map_or(MemberId::new(0), |entry| entry.id);
        Roster { id, last_id, entries }
    }

    /// Its number.
    pub fn id(&self) -> RosterId {
        self.id
    }

    /// The highest id that a member has, or had: a member that is added has a higher one.
    pub fn last_id(&self) -> MemberId {
        self.last_id
    }

    /// The same list under another number.
    pub(super) fn numbered(&self, id: RosterId) -> Self {
        Roster { id, ..self.clone() }
    }

    /// A list with these lines instead, whose members have had ids before.
    pub(super) fn with_entries(&self, entries: Vec<Entry>) -> Self {
        let changed = Roster::new(self.id, entries);
        Roster { last_id: changed.last_id.max(self.last_id), ..changed }
    }

    /// Whether a member that goes by version `known` can be told it: lines in order, no id above the highest, one that votes at
    /// least, and not so many changes later that one wrong number could use up all versions.
    pub(super) fn is_sound_after(&self, known: u64) -> bool {
        let is_of_a_group = self.id == RosterId::NONE || self.voters().next().is_some();
        is_of_a_group
            && self.entries.is_sorted_by(|a, b| a.id < b.id)
            && self.entries.last().is_none_or(|entry| entry.id <= self.last_id)
            && self.id.version <= known.saturating_add(1 << 32)
    }

    /// The same list, with names and places for those of which it says neither.
    #[must_use]
    pub fn with_contacts(mut self, contacts: &BTreeMap<MemberId, Contact>) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.contact == Contact::default()) {
            entry.contact = contacts.get(&entry.id).cloned().unwrap_or_default();
        }
        self
    }

    /// All members, in order of ids.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The line of a member.
    pub fn entry(&self, member: MemberId) -> Option<&Entry> {
        let place = self.entries.binary_search_by_key(&member, |entry| entry.id).ok()?;
        self.entries.get(place)
    }

    /// All members, whether they vote or not.
    pub fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.entries.iter().map(|entry| entry.id)
    }

    /// Those that vote.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.entries.iter().filter(|entry| entry.is_voter()).map(|entry| entry.id)
    }

    /// How many are needed to decide anything.
    pub fn quorum(&self) -> usize {
        crate::election::quorum(self.voters().count())
    }

    /// Whether it names this member.
    pub fn has(&self, member: MemberId) -> bool {
        self.entry(member).is_some()
    }

    /// Whether this member votes.
    pub fn has_voter(&self, member: MemberId) -> bool {
        self.entry(member).is_some_and(Entry::is_voter)
    }
}

/// Written as `p1 p2 p3 (p4)`: in brackets, who does not vote.
impl fmt::Display for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, entry) in self.entries.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            match entry.is_voter() {
                true => write!(f, "{space}{}", entry.id)?,
                false => write!(f, "{space}({})", entry.id)?,
            }
        }
        Ok(())
    }
}
