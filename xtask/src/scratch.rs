//! Where tests keep their temporary files: in memory, where there is room.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::command::output;

/// A file system in memory, on every Linux.
const MEMORY: &str = "/dev/shm";

/// Three Galera nodes, two brokers and a browser at a time took less than half of it.
const ROOM_KIB: u64 = 6 << 20;

/// A directory for temporary files; gone with this value. Nothing if there is little room in memory, or if the user has chosen a place
/// (`TMPDIR`).
#[derive(Debug)]
pub(crate) struct Scratch(Option<PathBuf>);

impl Scratch {
    /// Makes one, and removes those of runs that were killed.
    pub(crate) fn make() -> anyhow::Result<Self> {
        if std::env::var_os("TMPDIR").is_some() || !has_room()? {
            return Ok(Scratch(None));
        }
        remove_orphans(Path::new(MEMORY))?;
        let path = Path::new(MEMORY).join(name(std::process::id()));
        let could_not = || format!("could not make {}", path.display());
        fs::create_dir(&path).with_context(could_not)?;
        // Servers run as users of their own.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).with_context(could_not)?;
        Ok(Scratch(Some(path)))
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn name(process: u32) -> String {
    format!("mandate-tests-{process}")
}

/// The process whose directory has this name.
fn process(name: &str) -> Option<u32> {
    name.strip_prefix("mandate-tests-")?.parse().ok()
}

fn remove_orphans(within: &Path) -> anyhow::Result<()> {
    for entry in
        fs::read_dir(within).with_context(|| format!("could not read {}", within.display()))?
    {
        let path = entry?.path();
        let of = path.file_name().and_then(|name| process(name.to_str()?));
        if of.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(path);
        }
    }
    Ok(())
}

fn has_room() -> anyhow::Result<bool> {
    if !Path::new(MEMORY).is_dir() {
        return Ok(false);
    }
    let free = output(Command::new("df").args(["--output=avail", "--block-size=1K", MEMORY]))?;
    let free = String::from_utf8_lossy(&free.stdout);
    let free = free.lines().last().and_then(|line| line.trim().parse().ok());
    Ok(free.is_some_and(|free: u64| free >= ROOM_KIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_nothing_else() {
        let within = std::env::temp_dir().join(format!("mandate-orphans-{}", std::process::id()));
        // No process has this number: it is above what Linux gives.
        let orphan = within.join(name(u32::MAX));
        let kept = [within.join(name(std::process::id())), within.join("mandate-tests-of-mine")];
        for path in kept.iter().chain([&orphan]) {
            fs::create_dir_all(path.join("deeper")).unwrap();
        }
        remove_orphans(&within).unwrap();
        assert!(!orphan.exists());
        assert!(kept.iter().all(|path| path.exists()));
        fs::remove_dir_all(&within).unwrap();
    }
}
