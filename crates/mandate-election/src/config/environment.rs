//! What a configuration file takes from the environment, so that all hosts can share one file.
//!
//! `${NAME}` in a value stands for a variable, `${NAME:-otherwise}` says what to take where there is none, and `$${` is a plain `${`.
//! A variable that is not there is an error: an empty address or path would be found out late. Values are put into what was read, not into
//! the text: a quotation mark in a variable is a quotation mark and ends nothing, and comments may say what they like.
//!
//! `MANDATE_MEMBER` and `MANDATE_LISTEN` take the place of `member` and `listen`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

/// Says which member this is, instead of `member`.
pub(super) const MEMBER: &str = "MANDATE_MEMBER";

/// Says where this member listens, instead of `listen`.
pub(super) const LISTEN: &str = "MANDATE_LISTEN";

/// Variables by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// This process's. Variables that are no text are left out.
    pub(super) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Environment(std::env::vars_os().filter_map(text).collect())
    }

    #[cfg(test)]
    pub(super) fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Environment(variables.iter().map(owned).collect())
    }

    /// A variable that is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Reads a file's text, with variables put in.
    pub(super) fn read<T: DeserializeOwned>(&self, text: &str) -> anyhow::Result<T> {
        if !text.contains("${") {
            // Errors name lines then.
            return Ok(toml::from_str(text)?);
        }
        let mut table: toml::Table = toml::from_str(text)?;
        for (key, value) in &mut table {
            self.fill(key, value)?;
        }
        Ok(table.try_into()?)
    }

    fn fill(&self, key: &str, value: &mut toml::Value) -> anyhow::Result<()> {
        match value {
            toml::Value::String(text) => {
                *text = self.expand(text).with_context(|| key.to_owned())?
            }
            toml::Value::Array(values) => {
                for value in values {
                    self.fill(key, value)?;
                }
            }
            toml::Value::Table(table) => {
                for (inner, value) in table {
                    self.fill(&format!("{key}.{inner}"), value)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn expand(&self, text: &str) -> anyhow::Result<String> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                expanded = expanded + before + "${";
                rest = after;
                continue;
            }
            let Some((inside, after)) = after.split_once('}') else {
                bail!("`${{{after}` has no end: write ${{NAME}}, or $${{ for a plain ${{");
            };
            let (name, otherwise) = match inside.split_once(":-") {
                Some((name, otherwise)) => (name, Some(otherwise)),
                None => (inside, None),
            };
            let Some(value) = self.get(name).or(otherwise) else {
                bail!("the environment has no {name}: set it, or write ${{{name}:-OTHERWISE}}");
            };
            expanded = expanded + before + value;
            rest = after;
        }
        Ok(expanded + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment::of(&[("HOST", "db1"), ("ODD", "a\"b\\c"), ("EMPTY", "")])
    }

    #[test]
    fn variables_stand_in_values_and_what_is_missing_is_named() {
        let expand = |text: &str| environment().expand(text).map_err(|error| error.to_string());
        for (text, expected) in [
            ("plain $HOST }{", "plain $HOST }{"),
            ("${HOST}:7101", "db1:7101"),
            ("${HOST}${HOST}", "db1db1"),
            ("${NONE:-p1}.pem", "p1.pem"),
            ("${EMPTY:-p1}", "p1"),
            ("${NONE:-}", ""),
            ("$${HOST}", "${HOST}"),
            ("${ODD}", "a\"b\\c"),
        ] {
            assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in
            [("${NONE}", "has no NONE"), ("${EMPTY}", "has no EMPTY"), ("${HOST", "has no end")]
        {
            assert!(expand(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn they_are_put_into_values_and_not_into_the_text() {
        let text = "# ${NONE}\na = '${ODD}'\n[b]\nc = [1, '${HOST}']\n";
        let read: toml::Table = environment().read(text).unwrap();
        assert_eq!(read["a"].as_str(), Some("a\"b\\c"));
        assert_eq!(read["b"]["c"][1].as_str(), Some("db1"));
        let error = environment().read::<toml::Table>("[b]\nc = ['${NONE}']").unwrap_err();
        assert!(format!("{error:#}").starts_with("b.c: the environment has no NONE"), "{error:#}");
    }
}
