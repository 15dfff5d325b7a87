//! What a leader has said of the members of a group that changes stays so: no two lists have one number, and no leader that comes
//! later goes by an older list than one that was settled.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;
use mandate_proto::pole::installation::{Roster, RosterId, Stored};

use crate::fault::MemberName;
use crate::network::HostIndex;

/// The name under which it is reported.
pub(crate) const NAME: &str = "changes stay";

/// Which lists were made, and which counted.
#[derive(Default)]
pub(crate) struct ChangesStay {
    rosters: BTreeMap<RosterId, Roster>,
    /// By which one each member went last.
    present: BTreeMap<HostIndex, RosterId>,
    /// By the term of the leader that settled it.
    settled: BTreeMap<Term, RosterId>,
}

impl ChangesStay {
    /// A process starts with what is on its disk.
    pub(crate) fn started(&mut self, host: HostIndex, stored: Option<&Stored>) {
        let roster = stored.and_then(|stored| stored.roster.as_ref());
        self.present.insert(host, roster.map_or(RosterId::SEED, Roster::id));
    }

    /// A member goes by this list from now on.
    pub(crate) fn changed(&mut self, host: HostIndex, roster: &Roster) -> Result<(), String> {
        let id = roster.id();
        self.present.insert(host, id);
        let made = self.rosters.entry(id).or_insert_with(|| roster.clone());
        if made == roster {
            return Ok(());
        }
        Err(format!("the list {id} is {made} and, for {}, {roster}", MemberName(host)))
    }

    /// The leader of this term says that a list will stay.
    pub(crate) fn settled(&mut self, term: Term, roster: RosterId) {
        let settled = self.settled.entry(term).or_default();
        *settled = roster.max(*settled);
    }

    /// A member leads in this term. It goes by no list that is older than one that the leader of a lower term has settled.
    pub(crate) fn installed(&mut self, host: HostIndex, term: Term) -> Result<(), String> {
        let present = self.present.get(&host).copied().unwrap_or(RosterId::SEED);
        let newer = self.settled.range(..term).find(|(_, settled)| present < **settled);
        let Some((before, settled)) = newer else { return Ok(()) };
        let host = MemberName(host);
        Err(format!(
            "{host} leads in term {term} by the list {present}, and the leader of term {before} had settled {settled}"
        ))
    }

    /// The newest list that was settled.
    pub(crate) fn newest_settled(&self) -> RosterId {
        self.settled.values().copied().max().unwrap_or_default()
    }
}
