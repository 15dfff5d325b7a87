//! Names of public types, and how often each is declared.

use std::collections::BTreeMap;

/// Every protocol, engine and scenario has its own, in its own module, and it means the same in each.
const CONVENTION: [&str; 16] = [
    "Boot",
    "Builder",
    "Config",
    "Effect",
    "Error",
    "Event",
    "Input",
    "InvalidConfig",
    "Member",
    "MemberConfig",
    "Message",
    "Mutant",
    "Options",
    "Reason",
    "Setup",
    "StartError",
];

pub(super) type Counts = BTreeMap<String, usize>;

/// How often each public type's name is declared.
pub(super) fn count<'a>(sources: impl Iterator<Item = &'a str>) -> Counts {
    let mut counts = Counts::new();
    for name in sources.flat_map(str::lines).filter_map(declared) {
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// `unreachable_pub` is a lint of the workspace, so what is declared `pub` is public.
fn declared(line: &str) -> Option<&str> {
    let (kind, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
    let is_type = ["enum", "struct", "trait", "type", "union"].contains(&kind);
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
    (is_type && !name.is_empty()).then_some(name)
}

/// Names with two meanings, a line each.
pub(super) fn ambiguous(declared: &Counts) -> Vec<String> {
    let ambiguous =
        declared.iter().filter(|(name, found)| **found > 1 && !CONVENTION.contains(&name.as_str()));
    let told = |(name, found)| {
        format!(
            "`{name}` is declared {found} times as a public type: a name has one meaning. Choose another; \
             `git grep -nE 'pub (struct|enum|trait|type) {name}\\b'` shows them"
        )
    };
    ambiguous.map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(source: &str) -> Counts {
        count([source].into_iter())
    }

    #[test]
    fn only_public_types_are_counted() {
        let source = "pub struct Term(u64);\n    pub enum Term<T> {\npub(crate) struct Seat;\npub fn term() {}\npub type $name = u8;\n";
        assert_eq!(counts(source), Counts::from([("Term".to_owned(), 2)]));
    }

    #[test]
    fn a_name_with_two_meanings_is_reported_unless_it_is_conventional() {
        let declared =
            counts("pub struct Term;\npub struct Term;\npub enum Event {}\npub enum Event {}\n");
        let found = ambiguous(&declared);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("`Term` is declared 2 times"), "{}", found[0]);
    }
}
