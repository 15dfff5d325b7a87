//! The file that sets a daemon up: the member's configuration, and the daemon's own part of it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use mandate::Builder;
use serde::Deserialize;

use super::access::{AccessFiles, AccessTable};
use crate::input;

/// A configuration is a page or two.
const MAX_BYTES: u64 = 1 << 20;

/// What is the daemon's alone; the rest is the member's.
#[derive(Debug, Deserialize)]
struct File {
    api: SocketAddr,
    #[serde(default)]
    api_access: AccessTable,
}

/// A daemon's setup, resolved and checked.
#[derive(Debug)]
pub struct NodeConfig {
    pub api: SocketAddr,
    pub access: AccessFiles,
    pub member: Builder,
}

impl NodeConfig {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = input::read_text(path, MAX_BYTES)?;
        NodeConfig::parse(&text, path.parent().unwrap_or(Path::new("")))
            .with_context(|| format!("{} cannot be used", path.display()))
    }

    fn parse(text: &str, directory: &Path) -> anyhow::Result<Self> {
        let member = mandate::config::parse(text, directory)?;
        let file: File = mandate::config::parse_part(text)?;
        let access = file.api_access.resolve(file.api, directory)?;
        Ok(NodeConfig { api: file.api, access, member })
    }
}

#[cfg(test)]
mod tests {
    use mandate::config::EXAMPLE;

    use super::*;

    /// The first file of the help text itself.
    fn example() -> String {
        let lines = EXAMPLE
            .lines()
            .skip_while(|line| !line.starts_with("  group"))
            .take_while(|line| !line.starts_with("On a database"));
        lines.map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_api_that_others_can_reach_needs_a_token_or_tls() {
        let text = example().replacen("127.0.0.1:8101", "0.0.0.0:8101", 1);
        let access = |lines: &[&str]| {
            let without = |text: String, line: &&str| text.replacen(line, "", 1);
            let text = lines.iter().fold(text.clone(), without);
            NodeConfig::parse(&text, Path::new("")).map(drop)
        };
        let token = "token_file = \"api.token\"";
        let tls = ["certificate = \"api.pem\"", "key = \"api.key\""];
        assert!(access(&[]).is_ok() && access(&[token]).is_ok() && access(&tls).is_ok());
        let error = access(&[token, tls[0], tls[1]]).unwrap_err();
        assert!(format!("{error:#}").contains("needs [api_access] with a token_file"), "{error:#}");
    }

    #[test]
    fn what_is_wrong_with_the_api_is_named() {
        let half = example().replacen("\nkey = \"api.key\"", "", 1);
        let none = example().replacen("api =", "# api =", 1);
        for (text, expected) in [(half, "give both, or neither"), (none, "missing field `api`")] {
            let error = format!("{:#}", NodeConfig::parse(&text, Path::new("")).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
