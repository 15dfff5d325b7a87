//! Files that commands read; `-` is standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;

/// Opens a file to read from.
pub fn open(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Box::new(file))
}

/// Reads a whole text of up to `limit` bytes.
pub fn read_text(path: &Path, limit: u64) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = open(path)?.take(limit + 1).read_to_string(&mut text);
    read.with_context(|| format!("cannot read {} as text", path.display()))?;
    anyhow::ensure!(text.len() as u64 <= limit, "{} is longer than {limit} bytes", path.display());
    Ok(text)
}
