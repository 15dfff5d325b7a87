//! `cargo xtask words`: one meaning for a public type's name, and the field's words where users read.
//!
//! People find things by searching for them. Two fences keep that possible:
//!
//! 1. no name is declared `pub` for two types, outside the per-protocol convention;
//! 2. no banned word stands in the README, a guide, the demo's page, a help text or a string literal of the programs, and so in no
//!    log line, error or output.
//!
//! Rust is read by a small scanner and not by a parser: a parser would be the task runner's largest dependency, and the
//! project's own sources, formatted by rustfmt, need none.

mod names;
mod prose;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::command::root;

/// Texts for people at the root. The others are found.
const PAGES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
];

pub(crate) fn run() -> anyhow::Result<()> {
    let sources = sources()?;
    let declared = names::count(sources.iter().map(|file| file.text.as_str()));
    let mut wrong = names::ambiguous(&declared);

    let mut texts = 0;
    for file in &sources {
        for (line, text) in source::texts(&file.text) {
            texts += 1;
            wrong.extend(prose::find(&text).map(|(inner, found)| file.at(line + inner, found)));
        }
    }
    for page in pages()? {
        texts += 1;
        wrong.extend(prose::find(&page.text).map(|(line, found)| page.at(line + 1, found)));
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    println!("words: {} public names, {texts} texts", declared.len());
    Ok(())
}

struct File {
    path: PathBuf,
    text: String,
}

impl File {
    fn at(&self, line: usize, found: String) -> String {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        format!("{}:{line}: {found}", path.display())
    }
}

/// The sources of all crates, without their tests.
fn sources() -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    for directory in crates()? {
        collect(&directory.join("src"), &["rs"], &mut files)?;
    }
    files.retain(|file| !source::is_test(&file.path));
    for file in &mut files {
        let length = source::without_tests(&file.text).len();
        file.text.truncate(length);
    }
    Ok(files)
}

fn pages() -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    for page in PAGES {
        let path = root().join(page);
        files.push(File { text: read(&path)?, path });
    }
    collect(&root().join("docs"), &["md"], &mut files)?;
    for directory in crates()? {
        let readme = directory.join("README.md");
        if readme.is_file() {
            files.push(File { text: read(&readme)?, path: readme });
        }
        let web = directory.join("web");
        if web.is_dir() {
            collect(&web, &["html", "js"], &mut files)?;
        }
    }
    for file in &mut files {
        if file.path.extension().is_some_and(|extension| extension == "md") {
            file.text = source::without_code(&file.text);
        }
    }
    Ok(files)
}

fn crates() -> anyhow::Result<Vec<PathBuf>> {
    entries(&root().join("crates"))
}

fn collect(directory: &Path, extensions: &[&str], files: &mut Vec<File>) -> anyhow::Result<()> {
    for path in entries(directory)? {
        if path.is_dir() {
            collect(&path, extensions, files)?;
        } else if path.extension().is_some_and(|found| extensions.iter().any(|e| found == *e)) {
            files.push(File { text: read(&path)?, path });
        }
    }
    Ok(())
}

/// Sorted, so that what is reported does not depend on the file system.
fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = || format!("could not list {}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(found)? {
        paths.push(entry.with_context(found)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
}
