//! What a member must not forget, in one small file.
//!
//! Three lines: what the file is, the state as JSON, its checksum. It can be read by people, and
//! anything that is not whole is an error: a member that takes a damaged file for an empty one forgets
//! its promises. Written to a new file, forced to disk, and renamed over the old one, so that a crash
//! leaves one or the other. A lock beside it keeps a second process out.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const HEADER: &str = "mandate state 1";

/// Whose state a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The group.
    pub group: String,
    /// The member, as `p5`.
    pub member: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the group {}", self.member, self.group)
    }
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    owner: Owner,
    state: T,
}

/// Why a file cannot be used. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// Another process has it.
    #[error("{path} is in use by another process: is this member running already?")]
    InUse {
        /// The lock.
        path: PathBuf,
    },
    /// The file is not whole.
    #[error(
        "{path} is damaged ({what}): it must not be taken for empty, or this member forgets what it \
         promised. Restore it, or move it away and start the member with --lost, so that it asks the others"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file is another member's.
    #[error("{path} is the state of {found}, not of {wanted}: is it the wrong file?")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: Owner,
        /// Whose it should be.
        wanted: Owner,
    },
    /// The system refused.
    #[error("could not {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// The file of one member, locked for as long as this lives.
#[derive(Debug)]
pub struct DurableFile {
    path: PathBuf,
    owner: Owner,
    _lock: File,
}

impl DurableFile {
    /// Opens the file at `path`, which need not exist, and locks it; what it holds, if it does.
    pub fn open<T: DeserializeOwned>(
        path: impl Into<PathBuf>,
        owner: Owner,
    ) -> Result<(Self, Option<T>), DurableError> {
        let path = path.into();
        let lock = lock(&path)?;
        let file = DurableFile { path, owner, _lock: lock };
        let stored = match fs::read_to_string(&file.path) {
            Ok(text) => Some(file.parse(&text)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(file.damaged("it is not text"));
            }
            Err(source) => return Err(io_error("read", &file.path, source)),
        };
        Ok((file, stored))
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, DurableError> {
        let mut lines = text.lines();
        if lines.next() != Some(HEADER) {
            return Err(self.damaged("it does not begin like a state file of this version"));
        }
        let json = lines.next().ok_or_else(|| self.damaged("it ends too soon"))?;
        if lines.next() != Some(&checksum(json)) || lines.next().is_some() || !text.ends_with('\n')
        {
            return Err(self.damaged("its checksum is wrong"));
        }
        let content: Content<T> =
            serde_json::from_str(json).map_err(|error| self.damaged(&error.to_string()))?;
        if content.owner != self.owner {
            let (path, found) = (self.path.clone(), content.owner);
            return Err(DurableError::Foreign { path, found, wanted: self.owner.clone() });
        }
        Ok(content.state)
    }

    fn damaged(&self, what: &str) -> DurableError {
        DurableError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }

    /// Replaces what the file holds. When this returns, it would survive a crash; if it fails, the
    /// file holds what it held, or the new state: read it back.
    pub fn store<T: Serialize>(&self, state: &T) -> Result<(), DurableError> {
        let content = Content { owner: self.owner.clone(), state };
        let json = serde_json::to_string(&content).expect("states have only plain fields");
        let text = format!("{HEADER}\n{json}\n{}\n", checksum(&json));
        let new = beside(&self.path, "new");
        write_through(&new, &text).map_err(|error| io_error("write", &new, error))?;
        fs::rename(&new, &self.path).map_err(|error| io_error("replace", &self.path, error))?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| io_error("force to disk", directory, error))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn write_through(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn lock(path: &Path) -> Result<File, DurableError> {
    let path = beside(path, "lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).truncate(false).open(&path);
    let file = file.map_err(|error| io_error("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(DurableError::InUse { path }),
        Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path, source)),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn checksum(json: &str) -> String {
    format!("crc32 {:08x}", crc32fast::hash(json.as_bytes()))
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> DurableError {
    DurableError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(member: &str) -> Owner {
        Owner { group: "orders".into(), member: member.into() }
    }

    fn open(path: &Path) -> Result<(DurableFile, Option<u64>), DurableError> {
        DurableFile::open(path, owner("p5"))
    }

    #[test]
    fn what_was_stored_is_found_again_and_can_be_read_by_people() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (file, stored) = open(&path).unwrap();
        assert_eq!(stored, None);
        file.store(&41u64).unwrap();
        file.store(&42u64).unwrap();
        drop(file);
        assert_eq!(open(&path).unwrap().1, Some(42));
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(r#"{"owner":{"group":"orders","member":"p5"},"state":42}"#),
            "{text}"
        );
    }

    #[test]
    fn every_damage_of_a_byte_or_of_the_length_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        open(&path).unwrap().0.store(&42u64).unwrap();
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(open(&path), Err(DurableError::Damaged { .. })), "byte {place}");
            fs::write(&path, &whole[..place]).unwrap();
            assert!(matches!(open(&path), Err(DurableError::Damaged { .. })), "length {place}");
        }
    }

    #[test]
    fn the_file_of_another_member_and_one_in_use_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (file, _) = open(&path).unwrap();
        file.store(&42u64).unwrap();
        assert!(matches!(open(&path), Err(DurableError::InUse { .. })));
        drop(file);
        let other = DurableFile::open::<u64>(&path, owner("p4"));
        let error = other.unwrap_err();
        assert!(matches!(error, DurableError::Foreign { .. }));
        let words = "the state of p5 of the group orders, not of p4 of the group orders";
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn a_place_that_cannot_be_written_to_says_which() {
        let error = open(Path::new("/nowhere/at/all/state")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all/state.lock"), "{error}");
    }
}
