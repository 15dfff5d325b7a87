//! Values that leaders publish: one that is shown was published by the holder of the term that it is shown with.
//!
//! Every value of a run is another, and names the host that is to publish it. A member that shows it must name that host as the
//! leader, and all the same term. Between members its publisher is the first to show it; in a row or on a ledger others may see it
//! before its publisher has heard that it is there.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;
use mandate_proto::value::Value;

use crate::fault::MemberName;
use crate::network::HostIndex;

/// The name under which it is reported.
pub(crate) const NAME: &str = "a value is of its term";

/// What was published in which term.
#[derive(Default)]
pub(crate) struct ValuesOfTerm {
    terms: BTreeMap<Value, Term>,
    /// Whether others may see a value before its publisher does.
    apart: bool,
}

/// The value that a host publishes when it is asked to for the `number`th time.
pub(crate) fn of_host(host: HostIndex, number: u64) -> Value {
    Value::new(&format!("{host}-{number}")).expect("a few digits")
}

fn publisher(value: &Value) -> Option<HostIndex> {
    value.as_str().split_once('-')?.0.parse().ok()
}

/// A host tells what it has published with a term; it came to lead under `held`.
pub(crate) fn of_publisher(
    host: HostIndex,
    (held, term): (Option<Term>, Term),
    value: &Value,
) -> Result<(), String> {
    let shown = format!("{} has published {value:?} with term {term}", MemberName(host));
    match publisher(value) {
        Some(by) if by == host && held == Some(term) => Ok(()),
        Some(by) if by == host => Err(format!("{shown}, and leads under {held:?}")),
        _ => Err(format!("{shown}, which is not its value")),
    }
}

impl ValuesOfTerm {
    /// Of leaders that publish somewhere else: in a row, on a ledger.
    pub(crate) fn published_apart() -> Self {
        ValuesOfTerm { apart: true, ..ValuesOfTerm::default() }
    }

    /// A host shows a value with that leader and term.
    pub(crate) fn check(
        &mut self,
        host: HostIndex,
        (leader, term): (HostIndex, Term),
        value: &Value,
    ) -> Result<(), String> {
        let (shows, names) = (MemberName(host), MemberName(leader));
        let shown = format!("{shows} shows {value:?} with {names} and term {term}");
        let by = publisher(value).ok_or_else(|| format!("{shown}, and nobody published it"))?;
        if by != leader {
            return Err(format!("{shown}, and {} published it", MemberName(by)));
        }
        let known = self.terms.get(value).copied();
        match known {
            None if host == by || self.apart => {
                self.terms.insert(value.clone(), term);
                Ok(())
            }
            None => Err(format!("{shown}, before it was published")),
            Some(known) if known != term => {
                Err(format!("{shown}, and it was published in term {known}"))
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_with_another_leader_or_term_or_too_early_is_found() {
        let mut values = ValuesOfTerm::default();
        let (value, term, next) = (of_host(2, 7), Term::new(5), Term::new(6));
        assert!(values.check(0, (2, term), &value).unwrap_err().contains("before"));
        assert_eq!(values.check(2, (2, term), &value), Ok(()));
        assert_eq!(values.check(0, (2, term), &value), Ok(()));
        assert!(values.check(0, (1, next), &value).unwrap_err().contains("p3 published it"));
        assert!(values.check(2, (2, next), &value).unwrap_err().contains("in term 5"));
        assert_eq!(of_publisher(2, (Some(term), term), &value), Ok(()));
        assert!(of_publisher(2, (Some(next), term), &value).is_err());
        assert!(of_publisher(1, (Some(term), term), &value).is_err());
    }
}
