//! Crates written to be refused.
//!
//! They live in a scratch directory, each with a workspace of its own, and are written anew each
//! time: clippy keeps its results, and would otherwise answer for a `clippy.toml` of yesterday.
//! A refusal counts only for the right reason, on the right line: a fixture that fails because of
//! a typing error, or because the compiler does not start, proves nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::{SCRATCH, rules};
use crate::command::{cargo, output, root, shown};

/// For every rule of `clippy.toml`, something that breaks it and nothing else.
const BREACHES: [(&str, &str); 13] = [
    ("std::time::Instant", "std::time::Instant::now()"),
    ("std::time::SystemTime", "std::time::SystemTime::now()"),
    ("std::collections::HashMap", "std::collections::HashMap::<u8, u8>::new()"),
    ("std::collections::HashSet", "std::collections::HashSet::<u8>::new()"),
    ("std::hash::RandomState", "std::hash::RandomState::new()"),
    (
        "std::collections::hash_map::DefaultHasher",
        "std::collections::hash_map::DefaultHasher::new()",
    ),
    ("std::thread::sleep", "std::thread::sleep(core::time::Duration::ZERO)"),
    ("std::thread::spawn", "std::thread::spawn(|| ())"),
    ("std::env::var", r#"std::env::var("HOME")"#),
    ("std::fs::read", r#"std::fs::read("file")"#),
    ("std::fs::write", r#"std::fs::write("file", "text")"#),
    ("std::println", "std::println!()"),
    ("std::eprintln", "std::eprintln!()"),
];

/// Fails unless clippy, under this `clippy.toml`, reports a breach of each of `rules`.
pub(super) fn every_rule_is_reported(clippy_toml: &str, rules: &[String]) -> anyhow::Result<()> {
    let lib = breaching_lib(rules)?;
    let directory = write("rules", &lib)?;
    write_file(&directory.join("clippy.toml"), clippy_toml)?;
    let mut clippy = cargo(["clippy", "--offline", "--message-format=short"]);
    clippy.arg("--target-dir").arg(directory.join("target"));
    // What else clippy thinks of the fixture would only hide what matters when this fails.
    clippy.args(["--", "-A", "clippy::all"]);
    for lint in rules::LINTS {
        clippy.args(["-D", lint]);
    }
    clippy.current_dir(&directory);
    let result = output(&mut clippy)?;
    let report = String::from_utf8_lossy(&result.stderr);
    let unreported = rules::unreported(rules, &report);
    ensure!(
        unreported.is_empty(),
        "clippy does not report what breaks {}: is the path in crates/mandate-proto/clippy.toml \
         the one the item is known by?\nIn {}, `{}` said:\n{report}",
        unreported.join(", "),
        directory.display(),
        shown(&clippy)
    );
    Ok(())
}

/// One function per rule, one line per function, in the order of the rules.
fn breaching_lib(rules: &[String]) -> anyhow::Result<String> {
    let mut lib = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let (_, breach) = BREACHES.iter().find(|(path, _)| path == rule).with_context(|| {
            format!(
                "crates/mandate-proto/clippy.toml disallows `{rule}`, but nothing shows that the \
                 rule bites: add an expression that breaks it to BREACHES in \
                 xtask/src/purity/fixture.rs"
            )
        })?;
        lib += &format!("pub fn rule_{index}() {{ let _ = {breach}; }}\n");
    }
    for (path, _) in BREACHES {
        ensure!(
            rules.iter().any(|rule| rule == path),
            "crates/mandate-proto/clippy.toml no longer disallows `{path}`: put the rule back, or, \
             if it had to go, take it out of BREACHES in xtask/src/purity/fixture.rs too"
        );
    }
    Ok(lib)
}

/// Fails unless a crate that says `#![no_std]` is refused when it names std, and only then.
pub(super) fn no_std_keeps_std_out() -> anyhow::Result<()> {
    let (compiles, report) = check("no-std-control", "#![no_std]\n")?;
    ensure!(compiles, "an empty no_std crate does not compile, so nothing can be shown:\n{report}");
    let (compiles, report) = check("no-std", "#![no_std]\nuse std::time::Instant;\n")?;
    ensure!(
        !compiles && report.contains("lib.rs:2:") && report.contains("`std`"),
        "a no_std crate that uses std::time::Instant was not refused for it:\n{report}"
    );
    Ok(())
}

/// Whether a crate with this `lib.rs` compiles, and what the compiler said.
fn check(name: &str, lib: &str) -> anyhow::Result<(bool, String)> {
    let directory = write(name, lib)?;
    let mut check = cargo(["check", "--offline", "--message-format=short"]);
    check.arg("--target-dir").arg(directory.join("target"));
    check.current_dir(&directory);
    let result = output(&mut check)?;
    let report = String::from_utf8_lossy(&result.stderr).into_owned();
    Ok((result.status.success(), report))
}

/// Writes the crate into an empty directory, and gives the directory.
fn write(name: &str, lib: &str) -> anyhow::Result<PathBuf> {
    let directory = root().join(SCRATCH).join(name);
    if directory.exists() {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("could not empty {}", directory.display()))?;
    }
    fs::create_dir_all(directory.join("src"))
        .with_context(|| format!("could not make {}", directory.display()))?;
    let manifest = format!(
        "[package]\nname = \"purity-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n"
    );
    write_file(&directory.join("Cargo.toml"), &manifest)?;
    write_file(&directory.join("src/lib.rs"), lib)?;
    Ok(directory)
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_rules() -> Vec<String> {
        BREACHES.map(|(path, _)| path.to_owned()).to_vec()
    }

    #[test]
    fn each_rule_is_broken_on_the_line_of_its_index() {
        let mut rules = all_rules();
        rules.reverse();
        let lib = breaching_lib(&rules).unwrap();
        let lines: Vec<&str> = lib.lines().collect();
        assert_eq!(lines.len(), rules.len());
        for (line, rule) in lines.iter().zip(&rules) {
            assert!(line.contains(rule.as_str()), "{rule} is not in {line}");
        }
    }

    #[test]
    fn a_rule_without_a_breach_is_an_error_that_names_it() {
        let mut rules = all_rules();
        rules.push("std::process::exit".to_owned());
        let error = breaching_lib(&rules).unwrap_err().to_string();
        assert!(error.contains("`std::process::exit`"), "{error}");
        assert!(error.contains("BREACHES"), "{error}");
    }

    #[test]
    fn a_breach_without_a_rule_is_an_error_that_names_it() {
        let mut rules = all_rules();
        let gone = rules.remove(3);
        let error = breaching_lib(&rules).unwrap_err().to_string();
        assert!(error.contains(&gone), "{error}");
    }
}
