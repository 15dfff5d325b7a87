//! No term is ever held by two members, nor twice by one.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;

use crate::fault::MemberName;
use crate::network::HostIndex;

/// The name under which it is reported.
pub(crate) const NAME: &str = "one leader per term";

/// Who has held which term.
#[derive(Default)]
pub(crate) struct OneLeaderPerTerm {
    holders: BTreeMap<Term, HostIndex>,
}

impl OneLeaderPerTerm {
    /// A member was installed.
    pub(crate) fn check(&mut self, host: HostIndex, term: Term) -> Result<(), String> {
        match self.holders.insert(term, host) {
            None => Ok(()),
            Some(before) => Err(format!(
                "term {term} was held by {} and now by {}",
                MemberName(before),
                MemberName(host)
            )),
        }
    }

    /// How many terms were held.
    pub(crate) fn terms(&self) -> usize {
        self.holders.len()
    }
}
