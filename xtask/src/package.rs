//! `cargo xtask package`: every published crate, packed as it would be uploaded, and compiled from its package alone.
//!
//! A crate that is compiled in the workspace can rely on files that its package lacks: a page that is included, a licence, a
//! crate that is not published. So the packages are unpacked beside each other, each takes the place of the published crate of its
//! name, and all are checked.
//!
//! Not by `cargo package` itself, which can compile the packages against each other, too: it unpacks them once and for
//! all in cargo's home, so that the next run sees the old text of a crate whose version is the same; and it compiles each with
//! features of its own, which means tokio eight times.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::command::{cargo, root, run as run_command};

/// What a page of a registry shows. Cargo itself only warns.
const METADATA: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];
const FILES: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

const UNPACKED: &str = "target/package/unpacked";

pub(crate) fn run() -> anyhow::Result<()> {
    let published = published()?;
    // What is left of another run counts as published otherwise.
    let packed = root().join("target/package");
    if packed.exists() {
        fs::remove_dir_all(&packed).context("remove the packages of an earlier run")?;
    }
    let mut package = cargo(["package", "--no-verify", "--locked", "--quiet"]);
    // A change is tried before it is committed.
    package.arg("--allow-dirty");
    for name in &published {
        package.args(["--package", name]);
    }
    run_command(&mut package)?;
    let directories = unpack()?;
    for directory in &directories {
        for file in FILES {
            ensure!(
                root().join(UNPACKED).join(directory).join(file).is_file(),
                "the package {directory} has no {file}"
            );
        }
    }
    let ours = fs::read_to_string(root().join("Cargo.toml")).context("read Cargo.toml")?;
    let manifest = workspace(&directories) + &dev_profiles(&ours);
    fs::write(root().join(UNPACKED).join("Cargo.toml"), manifest)
        .context("write the workspace of the packages")?;
    fs::copy(root().join("Cargo.lock"), root().join(UNPACKED).join("Cargo.lock"))
        .context("copy Cargo.lock")?;
    let mut check = cargo(["check", "--workspace", "--target-dir", "target", "--manifest-path"]);
    run_command(check.arg(format!("{UNPACKED}/Cargo.toml")))?;
    println!("package: {}", directories.join(", "));
    Ok(())
}

/// The crates that are published, in order.
fn published() -> anyhow::Result<Vec<String>> {
    let mut published = Vec::new();
    for entry in fs::read_dir(root().join("crates")).context("list the crates")? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml"))
            .with_context(|| format!("could not read the manifest of {name}"))?;
        if is_published(&manifest) {
            let missing = missing_metadata(&manifest);
            ensure!(missing.is_empty(), "the manifest of {name} lacks {}", missing.join(", "));
            published.push(name);
        }
    }
    published.sort();
    Ok(published)
}

/// The directories of all packages, under [`UNPACKED`].
fn unpack() -> anyhow::Result<Vec<String>> {
    let unpacked = root().join(UNPACKED);
    fs::create_dir_all(&unpacked).context("make a directory for the packages")?;
    let mut directories = Vec::new();
    for entry in fs::read_dir(root().join("target/package")).context("list the packages")? {
        let path: PathBuf = entry?.path();
        if path.extension().is_some_and(|extension| extension == "crate") {
            run_command(Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&unpacked))?;
            directories.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    directories.sort();
    Ok(directories)
}

/// A workspace of the packages, in which each takes the place of the published crate.
fn workspace(directories: &[String]) -> String {
    let members: Vec<String> = directories.iter().map(|name| format!("{name:?}")).collect();
    let patches: String = directories
        .iter()
        .filter_map(|directory| {
            // The version begins with a digit, and may have a dash itself.
            let version = |(at, _): &(usize, &str)| {
                directory[at + 1..].starts_with(|c: char| c.is_ascii_digit())
            };
            let (end, _) = directory.match_indices('-').find(version)?;
            Some(format!("{} = {{ path = {directory:?} }}\n", &directory[..end]))
        })
        .collect();
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n[patch.crates-io]\n{patches}",
        members.join(", ")
    )
}

/// What a manifest says of `[profile.dev]` for dependencies and all packages: with the same, dependencies are not compiled again.
/// Sections that name a package of ours are left out, since not all of them are published.
fn dev_profiles(manifest: &str) -> String {
    let mut profiles = String::new();
    let mut is_wanted = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_wanted = ["[profile.dev]", "[profile.dev.package.\"*\"]"].contains(&line);
        }
        if is_wanted {
            profiles += line;
            profiles.push('\n');
        }
    }
    profiles
}

fn is_published(manifest: &str) -> bool {
    !manifest.lines().any(|line| line == "publish = false")
}

fn missing_metadata(manifest: &str) -> Vec<&'static str> {
    let has = |key: &str| {
        manifest
            .lines()
            .any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.'])))
    };
    METADATA.into_iter().filter(|key| !has(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_without_keywords_is_incomplete() {
        let manifest = "[package]\ndescription = \"d\"\nlicense.workspace = true\nreadme = \"README.md\"\ncategories = []\n";
        assert_eq!(missing_metadata(manifest), ["keywords"]);
    }

    #[test]
    fn profiles_are_those_of_the_workspace() {
        let manifest = "[workspace]\na = 1\n[profile.dev]\ndebug = 1\n[profile.dev.package.\"*\"]\n# why\nopt-level = 1\n\
                        [profile.dev.package.mandate-sim]\nopt-level = 2\n";
        let expected =
            "[profile.dev]\ndebug = 1\n[profile.dev.package.\"*\"]\n# why\nopt-level = 1\n";
        assert_eq!(dev_profiles(manifest), expected);
    }

    #[test]
    fn what_says_so_is_not_published() {
        assert!(is_published("[package]\nname = \"a\"\n"));
        assert!(!is_published("[package]\npublish = false\n"));
    }

    #[test]
    fn each_package_takes_the_place_of_the_published_crate() {
        let manifest = workspace(&["mandate-proto-0.2.0-rc.1".to_owned()]);
        assert!(manifest.contains("members = [\"mandate-proto-0.2.0-rc.1\"]"));
        assert!(manifest.contains("\nmandate-proto = { path = \"mandate-proto-0.2.0-rc.1\" }\n"));
    }
}
