//! What members told their operators, each thing once.

use std::collections::BTreeMap;

/// Messages in a log, and how often: without the time, and with `#` for whatever counts or names one thing of many.
pub(super) fn distinct<'a>(logs: impl Iterator<Item = &'a str>) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for line in logs.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()) {
        *found.entry(general(line)).or_default() += 1;
    }
    found
}

/// A message is what follows its level; numbers are not part of it, unless they are codes in brackets.
fn general(line: &str) -> String {
    let levels = [" WARN ", " ERROR ", " INFO "];
    let message = levels.iter().find_map(|level| Some(line.split_once(level)?.1)).unwrap_or(line);
    let mut text = String::new();
    let mut before = ' ';
    for letter in message.chars() {
        let counts = letter.is_ascii_digit() && !before.is_ascii_alphanumeric() && before != '(';
        match letter {
            _ if counts => text.push('#'),
            _ if letter.is_ascii_digit() && text.ends_with('#') => {}
            _ => text.push(letter),
        }
        before = letter;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_only_in_numbers_are_one_and_codes_stay() {
        let log = "2026-01-02T03:04:05.6Z  WARN not done times=1 reason=\"locked (55P03)\"\n\
                   2026-01-02T03:04:06.7Z  WARN not done times=12 reason=\"locked (55P03)\"\n\n\
                   Error: no (1047)\n";
        let found = distinct([log].into_iter());
        let expected = [("Error: no (1047)", 1), ("not done times=# reason=\"locked (55P03)\"", 2)];
        assert_eq!(found, expected.map(|(text, count)| (text.to_owned(), count)).into());
    }
}
