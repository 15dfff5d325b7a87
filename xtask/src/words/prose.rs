//! Words that nobody searches for, and what to write instead.

/// In lower case, with every form that is meant.
const BANNED: [(&str, &str); 27] = [
    ("aloud", "log, or emit an event"),
    ("amongst", "among"),
    ("befall", "happen to"),
    ("befalls", "happens to"),
    ("calendar", "wall clock"),
    ("calendars", "wall clocks"),
    ("did not do it", "failed"),
    ("for ever", "permanently, without end"),
    ("for show", "shadow mode"),
    ("hence", "so"),
    ("henceforth", "from then on"),
    ("lest", "so that ... not"),
    ("nought", "nothing"),
    ("steady clock", "monotonic clock"),
    ("steady clocks", "monotonic clocks"),
    ("strike", "inject a fault"),
    ("strikes", "injects a fault"),
    ("struck", "made to fail, hit by a fault"),
    ("thence", "from there"),
    ("thereof", "of it"),
    ("whence", "from where"),
    ("wherefore", "why"),
    ("whereto", "where to"),
    ("whilst", "while"),
    ("whoever", "the member that, anyone who"),
    ("whomever", "the member that, anyone"),
    ("whosoever", "anyone who"),
];

/// Text of the simulator's traces: a seed's trace stays the same byte for byte.
const TRACES: [&str; 2] = ["step the calendar of {}", "disk and calendar intact"];

/// The line, from 0, and what is wrong there.
pub(super) fn find(text: &str) -> impl Iterator<Item = (usize, String)> {
    let words = words(text);
    let is_trace = TRACES.iter().any(|trace| text.contains(trace));
    let starts = if is_trace { 0 } else { words.len() };
    let found: Vec<_> = (0..starts)
        .filter_map(|start| {
            let (word, instead) =
                BANNED.into_iter().find(|(word, _)| is_at(&words[start..], word))?;
            let line = text[..words[start].0].matches('\n').count();
            Some((line, format!("`{word}` is not a word of this project: write \"{instead}\"")))
        })
        .collect();
    found.into_iter()
}

fn is_at(words: &[(usize, String)], banned: &str) -> bool {
    let mut rest = words.iter();
    banned.split(' ').all(|part| rest.next().is_some_and(|(_, word)| word == part))
}

/// Each word in lower case, and where it starts. A flag, a path and a name of the code is one word: `--strikes`.
fn words(text: &str) -> Vec<(usize, String)> {
    let is_word = |c: char| c.is_alphanumeric() || "_-".contains(c);
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match start {
            None if is_word(c) => start = Some(at),
            Some(from) if !is_word(c) => {
                words.push((from, text[from..at].to_lowercase()));
                start = None;
            }
            _ => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        find(text).map(|(line, _)| line).collect()
    }

    #[test]
    fn a_banned_word_is_found_in_any_case_and_across_a_line_end() {
        assert_eq!(lines("Whoever leads\nacts for\never, and\nis struck."), [0, 1, 3]);
    }

    #[test]
    fn part_of_a_longer_word_or_a_flag_is_no_banned_word() {
        assert!(lines("forever, however, `--strikes 20`, struck_at, calendar-clock").is_empty());
    }

    #[test]
    fn the_words_are_in_order_and_each_stands_once() {
        assert!(BANNED.is_sorted_by(|a, b| a.0 < b.0));
    }
}
