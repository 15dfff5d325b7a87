//! `cargo xtask readme`: the README's first command, built and run as it is written there.
//!
//! It is the first thing a newcomer types, with fewer features than the tests are built with. Nothing else would notice if it
//! stopped to work.

use std::fs;

use anyhow::{Context, bail, ensure};

use crate::command::{cargo, output, root, shown};

/// What the demo says once a leader was elected.
const ELECTED: &str = "leads in term";

pub(crate) fn run() -> anyhow::Result<()> {
    let readme =
        fs::read_to_string(root().join("README.md")).context("could not read README.md")?;
    let words = first_command(&readme).context("the README has no command in a shell block")?;
    let ["cargo", args @ ..] = &words[..] else {
        bail!("the README's first command is `{}`, and not one of cargo", words.join(" "));
    };
    // Without a terminal the demo plays its script, and ends.
    let mut command = cargo(args.iter().copied());
    // Whether it builds and elects does not depend on optimisation, which is half of the time that it takes. Apart, so that nobody
    // measures what is left in target/release.
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0").env("CARGO_TARGET_DIR", "target/readme");
    let done = output(&mut command)?;
    let told = String::from_utf8_lossy(&done.stdout);
    ensure!(
        done.status.success() && told.contains(ELECTED),
        "`{}` elected no leader ({}):\n{told}{}",
        shown(&command),
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    println!("readme: `{}` elects a leader", words.join(" "));
    Ok(())
}

/// The words of the first line of the first shell block, without its comment.
fn first_command(readme: &str) -> Option<Vec<&str>> {
    let (_, block) = readme.split_once("```sh\n")?;
    let line = block.lines().next()?;
    Some(line.split('#').next()?.split_ascii_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_command_is_that_of_the_first_shell_block() {
        let readme =
            "# Title\n\n```console\n$ ls\n```\n\n```sh\ncargo run -- demo    # look\nls\n```\n";
        assert_eq!(first_command(readme), Some(vec!["cargo", "run", "--", "demo"]));
        assert_eq!(first_command("no block"), None);
    }
}
