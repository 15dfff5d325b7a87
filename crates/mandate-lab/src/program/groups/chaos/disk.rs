//! A small disk, which can be full.
//!
//! A tmpfs, in a mount namespace of this process alone: nobody else sees it, and it is gone with the
//! process, however that ends.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// What fills it.
const FILLING: &str = "filling";

/// From now on what this thread mounts, and what it starts sees, is its own. Call it before there are others.
pub(super) fn leave_mounts() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)
        .context("could not leave the machine's mounts; that needs root")?;
    // Else what is mounted here is mounted there, too.
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)
        .context("could not keep mounts to ourselves")
}

/// A disk.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Puts one at a path, with these options of tmpfs.
    pub(super) fn insert(path: &Path, options: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("could not make {}", path.display()))?;
        let kind = Some("tmpfs");
        mount(Some("mandate"), path, kind, MsFlags::empty(), Some(options))
            .with_context(|| format!("could not mount a small disk at {}", path.display()))?;
        Ok(Disk { path: path.to_owned() })
    }

    /// Fills it to the last byte.
    pub(super) fn fill(&self) -> anyhow::Result<()> {
        let mut file = File::create(self.path.join(FILLING)).context("could not fill a disk")?;
        let page = [0; 4096];
        loop {
            match file.write_all(&page) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error).context("could not fill a disk"),
            }
        }
    }

    /// Removes everything but what has these names.
    pub(super) fn clear(&self, but: &[&str]) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.path).context("could not look at a disk")? {
            let entry = entry.context("could not look at a disk")?;
            if !but.iter().any(|name| entry.file_name() == *name) {
                fs::remove_file(entry.path()).context("could not clear a disk")?;
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub(super) fn free(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.path.join(FILLING)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("could not free a disk")
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also while a member that is about to be killed has a file open there.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}
