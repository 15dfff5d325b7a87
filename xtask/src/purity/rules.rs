//! The rules in a `clippy.toml`, and which of them clippy reported.
//!
//! Only the paths are wanted, out of a file that is ours: a scanner of strings, brackets and
//! comments does, and spares everyone who runs the tests the compilation of a TOML parser.

/// The lints that carry the rules.
pub(super) const LINTS: [&str; 3] =
    ["clippy::disallowed_types", "clippy::disallowed_methods", "clippy::disallowed_macros"];

/// Their names as keys of `clippy.toml`.
const KEYS: [&str; 3] = ["disallowed-types", "disallowed-methods", "disallowed-macros"];

/// Every path the file disallows, in its order, in both forms: `"path"` and `{ path = "path" }`.
pub(super) fn paths(clippy_toml: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut inside_rules = false;
    let mut inside_table = false;
    // The last bare word: outside of an array it is the key of that array, inside the key of a value.
    let mut word = "";
    for token in tokens(clippy_toml) {
        match token {
            Token::Word(found) => word = found,
            Token::Mark('[') => inside_rules = KEYS.contains(&word),
            Token::Mark(']') => inside_rules = false,
            Token::Mark('{') => inside_table = true,
            Token::Mark('}') => inside_table = false,
            Token::Text(text) if inside_rules && (!inside_table || word == "path") => {
                paths.push(text.to_owned());
            }
            Token::Text(_) | Token::Mark(_) => {}
        }
    }
    paths
}

/// Those of `rules` that clippy did not report on the line where the fixture breaks them; the
/// fixture breaks the rule at index `i` on line `i + 1`. `report` is in the form of
/// `--message-format=short`.
pub(super) fn unreported<'a>(rules: &'a [String], report: &str) -> Vec<&'a str> {
    rules
        .iter()
        .enumerate()
        .filter(|(index, rule)| {
            let place = format!("lib.rs:{}:", index + 1);
            let path = format!("`{rule}`");
            !report.lines().any(|line| {
                line.contains(&place) && line.contains("error: use of") && line.contains(&path)
            })
        })
        .map(|(_, rule)| rule.as_str())
        .collect()
}

enum Token<'a> {
    Word(&'a str),
    Text(&'a str),
    Mark(char),
}

fn tokens(toml: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = toml;
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first == '#' {
            (None, rest.find('\n').unwrap_or(rest.len()))
        } else if first == '"' || first == '\'' {
            let text = string_body(&rest[1..], first);
            // An unclosed string ends with the file.
            (Some(Token::Text(text)), (text.len() + 2).min(rest.len()))
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            (Some(Token::Word(&rest[..length])), length)
        } else {
            let mark = (!first.is_whitespace()).then_some(Token::Mark(first));
            (mark, first.len_utf8())
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    tokens
}

/// What comes before the closing quote; a `"` string may have escaped quotes inside.
fn string_body(after_quote: &str, quote: char) -> &str {
    let mut escaped = false;
    for (index, c) in after_quote.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote == '"' => escaped = true,
            _ if c == quote => return &after_quote[..index],
            _ => {}
        }
    }
    after_quote
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_rule_are_found_and_reasons_are_not() {
        let toml = r#"
            # "std::in::comment" = [
            msrv = "1.95"
            disallowed-types = [
                { path = "std::time::Instant", reason = "say \"no\", use [ours]" }, # "std::late"
                { reason = "reason { first", path = 'std::time::SystemTime' },
            ]
            disallowed-names = ["foo"]
            disallowed-methods = ["std::env::var", { path = "std::fs::read" }]
            disallowed-macros = []
        "#;
        assert_eq!(
            paths(toml),
            ["std::time::Instant", "std::time::SystemTime", "std::env::var", "std::fs::read"]
        );
    }

    #[test]
    fn a_file_cut_short_is_read_as_far_as_it_goes() {
        assert_eq!(paths("disallowed-types = [\"std::time"), ["std::time"]);
        assert!(paths("disallowed-types = [ # \"nothing\"").is_empty());
        assert!(paths("").is_empty());
    }

    #[test]
    fn a_rule_counts_as_reported_only_on_its_own_line_and_by_its_own_name() {
        let rules = ["std::fs::read", "std::fs::write", "std::env::var"].map(str::to_owned);
        let report = "\
src/lib.rs:1:22: error: use of a disallowed method `std::fs::read`
src/lib.rs:12:22: error: use of a disallowed method `std::fs::write`
src/lib.rs:3:9: warning: `std::env::var` does not refer to a reachable function
";
        assert_eq!(unreported(&rules, report), ["std::fs::write", "std::env::var"]);
    }
}
