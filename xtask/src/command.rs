//! Running other programs, and saying how to repeat by hand what was run.
//!
//! A step that fails is only useful with the command that repeats it. The text shown is made from
//! the very [`Command`] that runs, so the two cannot drift apart.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a directory of the workspace")
}

/// `cargo` with these arguments, at the root of the workspace.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    // Not the name `cargo`: with `cargo +nightly xtask test` the steps belong to nightly too.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    // Would make clippy pass over the clippy.toml of each crate.
    command.env_remove("CLIPPY_CONF_DIR");
    // What cargo says of this very package. Build scripts look at it (ring's does), and would run again after every change
    // between this program and a shell.
    let of_this_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_this_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs it with its output on the terminal; an error unless it succeeds.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status =
        command.status().with_context(|| format!("could not start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs it with its output caught, whatever its exit code.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start `{}`", shown(command)))
}

/// Whether it starts and succeeds; nothing is shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The line to type at the root of the workspace in order to run it again.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.display(), quoted(&value.to_string_lossy())));
        }
    }
    let program = Path::new(command.get_program());
    words.push(match program.file_stem() {
        // The path of the toolchain would tell the reader nothing.
        Some(stem) if stem == "cargo" => "cargo".to_owned(),
        _ => quoted(&program.to_string_lossy()),
    });
    for arg in command.get_args() {
        words.push(quoted(&arg.to_string_lossy()));
    }
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/some/toolchain/bin/cargo");
        command.args(["doc", "--locked"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        command.env_remove("CLIPPY_CONF_DIR");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --locked");
    }

    #[test]
    fn a_quote_inside_a_word_survives_the_shell() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
