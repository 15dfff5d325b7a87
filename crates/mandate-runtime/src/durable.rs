//! What a member must not forget, in one small file.
//!
//! Three lines: what the file is, the state as JSON, its checksum. It can be read by people, and
//! anything that is not whole is an error: a member that takes a damaged file for an empty one forgets
//! its promises. Written to a new file, forced to disk, and renamed over the old one, so that a crash
//! leaves one or the other. A lock beside it keeps a second process out.
//!
//! **Never back the file up, and never restore it.** An older copy has forgotten the latest votes, and a
//! member that starts from it can vote a second time in a term: two leaders with one term. The cure for a
//! lost or damaged file is to ask the others ([`Start::Lost`](crate::Start::Lost)).
//!
//! **A symbolic link is followed when the file is opened**, and file and lock are where it points to. A
//! rename over the link would leave the old state on the volume that it points to, and that state would come
//! back with the volume. Links were not refused: a file that is mounted elsewhere is common in containers.
//!
//! **The first line says the form.** What every release can read is written in form 1. What an older one would misread (a list of
//! members that it knows nothing of) is written in form 2, which it refuses; a file goes from one to the other when there is
//! something of that kind to write, and never before.
//!
//! **Each file has a random number**, drawn when it is made and kept as long as it exists. Members show it to each other, so
//! that a second file under the same member id is noticed.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first line, before the number of the form.
const HEADER: &str = "mandate state ";

/// The form that every release reads.
pub(crate) const FIRST_FORM: u32 = 1;

/// The form of a state with a list of members, which releases that speak version 4 of the protocol would pass over.
pub(crate) const FORM_WITH_ROSTER: u32 = 2;

/// The newest form that this release reads.
const NEWEST_FORM: u32 = FORM_WITH_ROSTER;

/// Symbolic links that are followed, one after the other: as many as Linux follows.
const MAX_LINKS: u32 = 40;

/// Who may open the lock. A process that can open it can take it, and so keep the member from starting.
const LOCK_MODE: u32 = 0o600;

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

/// What all members of a group must have alike, as it was when the state was written. What was promised counts among
/// these members only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// All members, in order, as `p5`.
    pub members: Vec<String>,
    /// The guarantee, in a word.
    pub guarantee: String,
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "members {}, guarantee {}", self.members.join(" "), self.guarantee)
    }
}

#[derive(Serialize, Deserialize)]
struct Content<T> {
    owner: Owner,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agreed: Option<Agreed>,
    state: T,
    /// Absent in files of earlier releases.
    #[serde(default)]
    disk: Option<u64>,
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
        "{path} is damaged ({what}). Move it away and start the member with `Start::Lost`, so that it asks the others \
         what it may have promised. Do not put an older copy in its place: this member could then vote twice in \
         one term, and two members could lead in it"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A newer release has written it, in a form that this one does not know.
    #[error(
        "{path} was written by a newer release, in form {form}, and this release reads forms up to {NEWEST_FORM}. Nothing is wrong with \
         the file: start the member with the release that has written it, or a newer one"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its form.
        form: u32,
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

/// The file of one member, locked until this is dropped.
#[derive(Debug)]
pub struct DurableFile {
    /// Without symbolic links.
    path: PathBuf,
    owner: Owner,
    agreed: Option<Agreed>,
    disk: u64,
    lock: File,
}

impl DurableFile {
    /// Opens the file at `path`, which need not exist, and locks it; what it holds, if it does.
    pub fn open<T: DeserializeOwned>(
        path: impl Into<PathBuf>,
        owner: Owner,
    ) -> Result<(Self, Option<T>), DurableError> {
        let given = path.into();
        let path = resolve(&given).map_err(|source| io_error("follow", &given, source))?;
        if fs::symlink_metadata(&given).is_ok_and(|found| found.is_symlink()) {
            tracing::info!(link = %given.display(), state = %path.display(), "the state is kept where the symbolic link points to");
        }
        let lock = lock(&path)?;
        let drawn = getrandom::u64().map_err(|error| {
            io_error("draw a number for", &path, io::Error::other(error.to_string()))
        })?;
        let mut file = DurableFile { path, owner, agreed: None, disk: drawn, lock };
        let text = match fs::read_to_string(&file.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((file, None)),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(file.damaged("it is not text"));
            }
            Err(source) => return Err(io_error("read", &file.path, source)),
        };
        let (form, content) = file.parse::<T>(&text)?;
        file.agreed = content.agreed;
        match content.disk {
            Some(disk) => file.disk = disk,
            // A file of an earlier release: it gets its number now, so that the next start finds it.
            None => file.store_in(form, &file.parse::<serde_json::Value>(&text)?.1.state)?,
        }
        Ok((file, Some(content.state)))
    }

    /// The form, and what it says.
    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<(u32, Content<T>), DurableError> {
        let mut lines = text.lines();
        let form = lines.next().and_then(|line| line.strip_prefix(HEADER));
        let form = form.and_then(|form| form.parse().ok()).filter(|form| *form >= FIRST_FORM);
        let form = form.ok_or_else(|| self.damaged("it does not begin like a state file"))?;
        let json = lines.next().ok_or_else(|| self.damaged("it ends too soon"))?;
        if lines.next() != Some(&checksum(json)) || lines.next().is_some() || !text.ends_with('\n')
        {
            return Err(self.damaged("its checksum is wrong"));
        }
        if form > NEWEST_FORM {
            return Err(DurableError::Newer { path: self.path.clone(), form });
        }
        let content: Content<T> =
            serde_json::from_str(json).map_err(|error| self.damaged(&error.to_string()))?;
        if content.owner != self.owner {
            let (path, found) = (self.path.clone(), content.owner);
            return Err(DurableError::Foreign { path, found, wanted: self.owner.clone() });
        }
        Ok((form, content))
    }

    /// What the members agreed on when the state was written; `None` in a file of an earlier release, and where it
    /// does not matter.
    pub fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_ref()
    }

    /// This is written with every state from now on.
    pub fn agree(&mut self, agreed: Option<Agreed>) {
        self.agreed = agreed;
    }

    fn damaged(&self, what: &str) -> DurableError {
        DurableError::Damaged { path: self.path.clone(), what: what.to_owned() }
    }

    /// Replaces what the file holds. When this returns, it would survive a crash; if it fails, the
    /// file holds what it held, or the new state: read it back.
    pub fn store<T: Serialize>(&self, state: &T) -> Result<(), DurableError> {
        self.store_in(FIRST_FORM, state)
    }

    /// The same in this form.
    pub(crate) fn store_in<T: Serialize>(&self, form: u32, state: &T) -> Result<(), DurableError> {
        let content = Content {
            owner: self.owner.clone(),
            agreed: self.agreed.clone(),
            state,
            disk: Some(self.disk),
        };
        let json = serde_json::to_string(&content).expect("states have only plain fields");
        let text = format!("{HEADER}{form}\n{json}\n{}\n", checksum(&json));
        let new = beside(&self.path, "new");
        write_through(&new, &text).map_err(|error| io_error("write", &new, error))?;
        fs::rename(&new, &self.path).map_err(|error| io_error("replace", &self.path, error))?;
        let directory = directory(&self.path);
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| io_error("force to disk", directory, error))
    }

    /// Whether the state at `path` could be opened now: an error if another process has it. Nothing is kept.
    pub fn is_free(path: &Path) -> Result<(), DurableError> {
        let path = resolve(path).map_err(|source| io_error("follow", path, source))?;
        lock(&path).map(drop)
    }

    /// The lock, shared: it is held until every copy is closed, also by other processes.
    pub(crate) fn lock_copy(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// Where it is, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The random number of this file. A file that takes the place of a lost one has another.
    pub fn disk(&self) -> u64 {
        self.disk
    }
}

/// Where a file really is, or would be: with its last name and its directory freed of symbolic links.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = directory(&path).join(target),
            // No link, or nothing there yet. What else is wrong shows when the lock is taken.
            Err(_) => {
                return Ok(match (fs::canonicalize(directory(&path)), path.file_name()) {
                    (Ok(directory), Some(name)) => directory.join(name),
                    _ => path,
                });
            }
        }
    }
    Err(io::Error::other("too many symbolic links, one after the other"))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_through(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn lock(path: &Path) -> Result<File, DurableError> {
    let path = beside(path, "lock");
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).truncate(false).mode(LOCK_MODE).open(&path);
    let file = file.map_err(|error| io_error("open", &path, error))?;
    // One of an earlier release, which everyone could open. Another owner's cannot be changed, and need not be.
    let _ = file.set_permissions(fs::Permissions::from_mode(LOCK_MODE));
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
            text.contains(r#"{"owner":{"group":"orders","member":"p5"},"state":42,"disk":"#),
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
    fn a_damaged_file_is_not_to_be_restored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        fs::write(&path, "mandate state 1\n").unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(!error.to_lowercase().contains("restore"), "{error}");
        assert!(
            error.contains("Start::Lost") && error.contains("Do not put an older copy"),
            "{error}"
        );
    }

    #[test]
    fn a_symbolic_link_stays_one_and_the_state_and_its_lock_are_where_it_points_to() {
        let directory = tempfile::tempdir().unwrap();
        let (volume, etc) = (directory.path().join("volume"), directory.path().join("etc"));
        fs::create_dir(&volume).unwrap();
        fs::create_dir(&etc).unwrap();
        let (real, link) = (volume.join("p5.state"), etc.join("p5.state"));
        // Relative, over another link, and to a file that is not there yet.
        std::os::unix::fs::symlink("../volume/p5.link", &link).unwrap();
        std::os::unix::fs::symlink("p5.state", volume.join("p5.link")).unwrap();
        let (file, stored) = open(&link).unwrap();
        assert_eq!(stored, None);
        file.store(&1u64).unwrap();
        file.store(&2u64).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!fs::symlink_metadata(&real).unwrap().is_symlink());
        assert!(matches!(open(&real), Err(DurableError::InUse { .. })), "one lock for both names");
        drop(file);
        assert_eq!(open(&real).unwrap().1, Some(2));
        assert_eq!(open(&link).unwrap().1, Some(2));
    }

    #[test]
    fn links_that_lead_nowhere_are_an_error_and_no_empty_state() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("state");
        std::os::unix::fs::symlink("state", &link).unwrap();
        assert!(open(&link).unwrap_err().to_string().contains("symbolic links"));
    }

    #[test]
    fn only_the_owner_can_open_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let mode =
            |path: &Path| fs::metadata(beside(path, "lock")).unwrap().permissions().mode() & 0o777;
        drop(open(&path).unwrap());
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(beside(&path, "lock"), fs::Permissions::from_mode(0o644)).unwrap();
        drop(open(&path).unwrap());
        assert_eq!(mode(&path), 0o600, "one of an earlier release");
    }

    #[test]
    fn a_file_keeps_its_number_and_another_has_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (file, _) = open(&path).unwrap();
        let disk = file.disk();
        file.store(&42u64).unwrap();
        drop(file);
        assert_eq!(open(&path).unwrap().0.disk(), disk);
        assert_ne!(open(&directory.path().join("other")).unwrap().0.disk(), disk);

        // As an earlier release wrote it.
        let json = r#"{"owner":{"group":"orders","member":"p5"},"state":41}"#;
        fs::write(&path, format!("{HEADER}1\n{json}\n{}\n", checksum(json))).unwrap();
        let (file, stored) = open(&path).unwrap();
        let disk = file.disk();
        assert_eq!(stored, Some(41));
        drop(file);
        let (file, stored) = open(&path).unwrap();
        assert_eq!((file.disk(), stored), (disk, Some(41)));
    }

    #[test]
    fn a_place_that_cannot_be_written_to_says_which() {
        let error = open(Path::new("/nowhere/at/all/state")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all/state.lock"), "{error}");
    }
}
