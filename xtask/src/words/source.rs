//! What of a file is read by users.

use std::path::Path;

/// Doc comments in files that say one of these are help texts, or descriptions of the interface.
const SHOWN: [&str; 6] = ["Args", "Parser", "Subcommand", "ToSchema", "ValueEnum", "utoipa::path"];

pub(super) fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests") || path.iter().any(|part| part == "tests")
}

/// A module of tests is the last thing in a file.
pub(super) fn without_tests(source: &str) -> &str {
    source.split_once("#[cfg(test)]\nmod tests").map_or(source, |(code, _)| code)
}

/// String literals, and doc comments where they are shown to users; each with its line, from 1. A string of one word is a name.
pub(super) fn texts(source: &str) -> Vec<(usize, String)> {
    let has_help = source.lines().any(|line| {
        line.trim_start().starts_with("#[") && SHOWN.iter().any(|shown| line.contains(shown))
    });
    let mut texts = Vec::new();
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let line = || source[..at].matches('\n').count() + 1;
        at += if rest.starts_with("///") && has_help {
            let (length, text) = doc_comment(rest);
            texts.push((line(), text));
            length
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = raw_string(rest) {
            texts.push((line(), rest[..length].to_owned()));
            length
        } else if next == '"' {
            let length = string(rest);
            if rest[..length].contains(' ') {
                texts.push((line(), joined(&rest[..length])));
            }
            length
        } else if next == '\'' {
            character(rest)
        } else {
            next.len_utf8()
        };
    }
    texts
}

/// All its lines.
fn doc_comment(rest: &str) -> (usize, String) {
    let mut length = 0;
    let mut text = String::new();
    for line in rest.split_inclusive('\n') {
        let Some(said) = line.trim_start().strip_prefix("///") else { break };
        text += said;
        length += line.len();
    }
    (length, text)
}

fn raw_string(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('r')?.trim_start_matches('#');
    let hashes = rest.len() - 1 - inner.len();
    let end = format!("\"{}", "#".repeat(hashes));
    let body = inner.strip_prefix('"')?;
    Some(rest.len() - body.len() + body.find(&end)? + end.len())
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A backslash at the end of a line goes with the space that follows. Line ends that are written `\n` are spaces.
fn joined(string: &str) -> String {
    let lines: Vec<&str> = string
        .split('\n')
        .enumerate()
        .map(|(number, line)| if number == 0 { line } else { line.trim_start() })
        .map(|line| line.strip_suffix('\\').unwrap_or(line))
        .collect();
    // The lines are counted, so a line end stays one.
    lines.join("\n").replace("\\n", " ")
}

/// A character literal, or the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(1, |end| end + 4),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// Markdown with its code replaced by spaces; the lines stay.
pub(super) fn without_code(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some(start) = rest.find('`') {
        let (before, from) = rest.split_at(start);
        let ticks = from.len() - from.trim_start_matches('`').len();
        let (fence, inner) = from.split_at(ticks);
        let length = inner.find(fence).map_or(inner.len(), |end| end + ticks);
        text += before;
        text.extend(inner[..length].chars().map(|c| if c == '\n' { c } else { ' ' }));
        rest = &inner[length..];
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_and_comments_and_names_are_not() {
        let source = "// \"a comment\"\nlet c = '\"';\nlet q = '\\'';\nsay(\"one \\\"two\\\"\", \"name\");\nfn f<'a>(x: &'a str) {}\nlet raw = r#\"a \"b\"\"#;\n";
        let texts: Vec<_> = texts(source);
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0], (4, "\"one \\\"two\\\"\"".to_owned()));
        assert_eq!(texts[1], (6, "r#\"a \"b\"\"#".to_owned()));
    }

    #[test]
    fn a_string_over_several_lines_is_one_text() {
        let source = "let text = \"acts for \\\n            ever\\nand ever\";\n";
        assert_eq!(texts(source), [(1, "\"acts for \never and ever\"".to_owned())]);
    }

    #[test]
    fn doc_comments_are_read_where_they_are_help() {
        let plain = "/// What it is.\nstruct A;\n";
        let help =
            "#[derive(Debug, Args)]\nstruct A {\n    /// What it\n    /// is.\n    a: u8,\n}\n";
        assert!(texts(plain).is_empty());
        assert_eq!(texts(help), [(3, " What it\n is.\n".to_owned())]);
    }

    #[test]
    fn code_in_markdown_is_left_out() {
        let markdown = "a `b c`\n```sh\nd\n```\ne `f\ng` h";
        let words: Vec<String> =
            without_code(markdown).split_whitespace().map(str::to_owned).collect();
        assert_eq!(words, ["a", "e", "h"]);
        assert_eq!(without_code(markdown).matches('\n').count(), markdown.matches('\n').count());
    }
}
