//! What a member has on disk, and whether it may start from that.
//!
//! Raft holds as long as a member remembers its votes and what it has acknowledged. An empty log in the place of a lost
//! one forgets both, and acknowledged writes are lost as soon as another member fails. So a log is made once, when
//! the member takes part for the first time. It has a random number, and a record of that number lies beside the
//! election's state. Later starts want state, record and log to be there, and to belong together. A snapshot that
//! the log relies on must be there as well, under the log's number: openraft would take a missing one for an empty state.
//!
//! | step of a first start | on disk after it | what a start finds that comes after a crash |
//! | --- | --- | --- |
//! | the record, log not made | record | no election state: the first start is repeated |
//! | the election starts | record, state | log not made: it is made now, since Raft has never run |
//! | the log, under its name when it is whole | record, state, log | the same; it is made again |
//! | the record, log made | all | all |
//!
//! What this cannot see is an older copy of a log that was put in the place of the newer one.

use std::path::{Path, PathBuf};

use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use mandate_runtime::durable::{DurableError, DurableFile, Owner};
use serde::{Deserialize, Serialize};

use super::log::Log;
use super::machine::Machine;
use super::member::Mutant;
use super::snapshot::{self, Snapshots};

/// What to do about a file that is gone.
const GONE: &str = "If it was moved, put it back. If it is lost, leave this member down: it would have forgotten writes \
                    that it acknowledged and votes that it gave. The others go on as long as a majority of all members \
                    runs. Do not start it as a new member, and do not put an older copy in its place";

/// Why a member cannot start from what is on its disk. Nothing was changed that it needs.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// It is to start from what is stored, and nothing is.
    #[error(
        "there is no state of the election at {}. Start this member as a new one only if it has never run before. {GONE}",
        .0.display()
    )]
    NoState(PathBuf),
    /// It is to take part for the first time, and has before.
    #[error(
        "there is {} already: this member has taken part before. Start it from what is stored, not as a new one",
        .0.display()
    )]
    TookPart(PathBuf),
    /// It says that it has lost its disk.
    #[error(
        "a member of this service that has lost its disk cannot come back: it would have forgotten writes that it \
         acknowledged. The others go on as long as a majority of all members runs"
    )]
    Lost,
    /// It is to be added to a service that runs.
    #[error(
        "no member can be added to this service while it runs: its log has the members that it was set up with"
    )]
    Joins,
    /// The record of the log's number is gone.
    #[error("there is no record at {} of which log is this member's. {GONE}", .0.display())]
    NoRecord(PathBuf),
    /// The log is gone.
    #[error("the log {} is gone. {GONE}", .0.display())]
    NoLog(PathBuf),
    /// The log is another.
    #[error(
        "the log {} is not the one that belongs to the election's state beside it: it is another member's, or one of the \
         two was replaced. {GONE}",
        .0.display()
    )]
    OtherLog(PathBuf),
    /// The snapshot is gone, or older than the log says.
    #[error(
        "the snapshot {} is gone or too old: the log begins after it. {GONE}",
        .0.display()
    )]
    NoSnapshot(PathBuf),
    /// The snapshot is another's.
    #[error(
        "the snapshot {} is not the one that belongs to the log beside it: it is another member's, or an older version of \
         this program made it. {GONE}",
        .0.display()
    )]
    OtherSnapshot(PathBuf),
    /// The list of members was another.
    #[error(
        "{} was written with {before}, and now the configuration says {now}. Members that count votes among different \
         members elect two leaders. Correct the configuration: members of this service are fixed",
        path.display()
    )]
    Differs {
        /// The election's state.
        path: PathBuf,
        /// What it was written with.
        before: String,
        /// What is configured.
        now: String,
    },
    /// The election's state, or the record, is damaged.
    #[error("{} is damaged ({what}). {GONE}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The election's state, or the record, is in use or another member's.
    #[error("{0}")]
    File(String),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(std::io::Error),
    /// A file cannot be used.
    #[error(
        "cannot use {}: {source}. If the file is damaged, leave this member down and keep the file: without it, it would \
         have forgotten writes that it acknowledged. The others go on as long as a majority of all members runs",
        path.display()
    )]
    Unusable {
        /// The file or directory that cannot be used.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
}

/// Which log is this member's.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    /// The log's number, as text: JSON has no room for it.
    log: String,
    /// Whether the log was made. Raft has never run before that.
    made: bool,
}

/// Where a member keeps things.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Log and snapshots.
    pub(crate) directory: PathBuf,
    /// The election's state.
    pub(crate) state: PathBuf,
    pub(crate) service: String,
    pub(crate) me: MemberId,
}

impl Places {
    fn log(&self) -> PathBuf {
        self.directory.join("log.redb")
    }

    fn snapshots(&self) -> PathBuf {
        self.directory.join("snapshots")
    }

    fn record(&self) -> PathBuf {
        let mut name = self.state.as_os_str().to_owned();
        name.push(".raft-log");
        name.into()
    }

    /// Whether the member may start so, as far as files tell. Nothing but the record of a first start is written.
    pub(crate) fn check(self, start: Start) -> Result<Checked, StorageError> {
        let is_new = match start {
            Start::New => true,
            // Another list of members concerns the election; the log stays. A log does not find out by itself whether it is new.
            Start::Stored | Start::Changed | Start::Auto => false,
            Start::Lost => return Err(StorageError::Lost),
            Start::Join => return Err(StorageError::Joins),
        };
        let (has_state, has_log) = (exists(&self.state)?, exists(&self.log())?);
        match (is_new, has_state) {
            (false, false) => return Err(StorageError::NoState(self.state)),
            (true, true) => return Err(StorageError::TookPart(self.state)),
            (true, false) if has_log => return Err(StorageError::TookPart(self.log())),
            _ => {}
        }
        if is_new {
            let directory = self.snapshots();
            let at = |source| StorageError::Unusable { path: directory.clone(), source };
            if let Some(left) = snapshot::all(&directory).map_err(at)?.pop() {
                return Err(StorageError::TookPart(left));
            }
        }
        let path = self.record();
        if !is_new && !exists(&path)? {
            return Err(StorageError::NoRecord(path));
        }
        if is_new {
            make_directory(&self.directory)?;
        }
        let owner = Owner { group: self.service.clone(), member: self.me.to_string() };
        let (file, stored) = DurableFile::open::<Record>(&path, owner)?;
        let record = match stored {
            Some(record) if is_new && record.made => return Err(StorageError::TookPart(path)),
            Some(record) => record,
            None => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(|error| StorageError::Random(error.into()))?;
                let log = format!("{:032x}", u128::from_le_bytes(bytes));
                let drawn = Record { log, made: false };
                file.store(&drawn)?;
                drawn
            }
        };
        if record.made && !has_log {
            return Err(StorageError::NoLog(self.log()));
        }
        Ok(Checked { places: self, file, record })
    }
}

/// A member that may start, if what the files hold is right, too.
#[derive(Debug)]
pub(crate) struct Checked {
    places: Places,
    /// Locked while the member runs.
    file: DurableFile,
    record: Record,
}

/// What a member runs on.
pub(crate) struct Storage {
    pub(crate) log: Log,
    pub(crate) machine: Machine,
    /// To be kept while the member runs: it is locked.
    pub(crate) record: DurableFile,
}

impl Checked {
    /// Whether Raft may have run: then everything is there that it needs, or the member may not start.
    pub(crate) fn is_made(&self) -> bool {
        self.record.made
    }

    /// Whether the election's state is on disk.
    pub(crate) fn has_state(&self) -> Result<bool, StorageError> {
        exists(&self.places.state)
    }

    /// Opens log and state; makes the log where Raft has never run.
    pub(crate) fn open(self, mutant: Option<Mutant>) -> Result<Storage, StorageError> {
        let (path, directory) = (self.places.log(), self.places.snapshots());
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| StorageError::Unusable { path, source }
        };
        let damaged = |_| StorageError::Damaged {
            path: self.places.record(),
            what: format!("{} is no number of a log", self.record.log),
        };
        let number = u128::from_str_radix(&self.record.log, 16).map_err(damaged)?;
        let log = if self.record.made {
            Log::open(&path, mutant).map_err(at(&path))?
        } else {
            Log::create(&path, number, mutant).map_err(at(&path))?
        };
        if log.number().map_err(at(&path))? != Some(number) {
            return Err(StorageError::OtherLog(path));
        }
        if !self.record.made {
            let made = Record { made: true, ..self.record };
            self.file.store(&made)?;
        }
        let snapshots =
            Snapshots::new(&directory, number, log.coverage()).map_err(at(&directory))?;
        if let Some(other) = snapshots.of_another().map_err(at(&directory))? {
            return Err(StorageError::OtherSnapshot(other));
        }
        let current = snapshots.current();
        let machine = Machine::open(snapshots.clone()).map_err(at(&current))?;
        let applied = machine.applied();
        if log.purged() > applied {
            return Err(StorageError::NoSnapshot(current));
        }
        if let Some(applied) = applied {
            log.begin_after(applied).map_err(at(&path))?;
        }
        snapshots.remove_unfinished().map_err(at(&directory))?;
        Ok(Storage { log, machine, record: self.file })
    }
}

fn exists(path: &Path) -> Result<bool, StorageError> {
    let at = |source| StorageError::Unusable { path: path.to_owned(), source };
    path.try_exists().map_err(at)
}

fn make_directory(path: &Path) -> Result<(), StorageError> {
    let at = |source| StorageError::Unusable { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(at)
}

/// In words of this service: those of a state file advise what the service does not have.
impl From<DurableError> for StorageError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Damaged { path, what } => StorageError::Damaged { path, what },
            error => StorageError::File(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
    use tempfile::TempDir;

    use super::super::log::testing::blank;
    use super::*;

    /// For what hangs.
    const BOUND: std::time::Duration = std::time::Duration::from_secs(60);

    fn places(directory: &TempDir) -> Places {
        Places {
            directory: directory.path().join("data"),
            state: directory.path().join("election"),
            service: "kv".into(),
            me: MemberId::new(1),
        }
    }

    /// Starts for the first time, as far as this module goes.
    fn first_start(places: &Places) -> Storage {
        let checked = places.clone().check(Start::New).unwrap();
        fs::write(&places.state, "the election's").unwrap();
        checked.open(None).unwrap()
    }

    async fn stop(storage: Storage) {
        storage.log.close().await.unwrap();
    }

    fn again(places: &Places) -> Result<Storage, StorageError> {
        places.clone().check(Start::Stored)?.open(None)
    }

    #[tokio::test]
    async fn a_member_starts_again_from_what_it_has() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        let mut storage = first_start(&places);
        storage.log.blocking_append([blank(1, 0)]).await.unwrap();
        stop(storage).await;
        let mut storage = again(&places).unwrap();
        assert_eq!(storage.log.get_log_state().await.unwrap().last_log_id.unwrap().index, 0);
        let twice = places.clone().check(Start::New).unwrap_err();
        assert!(matches!(twice, StorageError::TookPart(_)), "{twice}");
    }

    #[tokio::test]
    async fn a_log_that_is_gone_or_another_is_refused_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        stop(first_start(&places)).await;
        let aside = directory.path().join("aside.redb");
        fs::rename(places.log(), &aside).unwrap();
        assert!(matches!(again(&places), Err(StorageError::NoLog(_))));
        assert!(!places.log().exists(), "nothing is made");
        drop(Log::create(&places.log(), 5, None).unwrap().close().await);
        assert!(matches!(again(&places), Err(StorageError::OtherLog(_))));
        fs::rename(&aside, places.log()).unwrap();
        stop(again(&places).unwrap()).await;
        fs::remove_file(places.record()).unwrap();
        assert!(matches!(again(&places), Err(StorageError::NoRecord(_))));
    }

    #[tokio::test]
    async fn a_snapshot_that_is_gone_is_not_an_empty_state() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        let mut storage = first_start(&places);
        storage.log.blocking_append([blank(1, 0), blank(1, 1)]).await.unwrap();
        storage.log.coverage().reaches(blank(1, 0).log_id);
        storage.log.purge(blank(1, 0).log_id).await.unwrap();
        stop(storage).await;
        let received = places.directory.join("snapshots/received-1.unfinished");
        fs::write(&received, "it may be all that is left").unwrap();
        let refused = again(&places).err().unwrap();
        assert!(matches!(refused, StorageError::NoSnapshot(_)), "{refused}");
        assert!(received.exists(), "whoever is refused loses nothing");
    }

    /// What a process that was killed now would leave.
    fn killed(places: &Places) -> (TempDir, Places) {
        let left = tempfile::tempdir().unwrap();
        let copy = self::places(&left);
        fs::create_dir(&copy.directory).unwrap();
        let files = [(places.log(), copy.log()), (places.record(), copy.record())];
        for (from, to) in files.iter().chain([&(places.state.clone(), copy.state.clone())]) {
            fs::copy(from, to).unwrap();
        }
        (left, copy)
    }

    /// openraft has the log cut off before the snapshot is stored.
    #[tokio::test]
    async fn a_log_is_cut_off_when_a_snapshot_covers_it_and_not_before() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        let mut storage = first_start(&places);
        storage.log.blocking_append([blank(1, 0), blank(1, 1)]).await.unwrap();
        storage.log.purge(blank(2, 9).log_id).await.unwrap();
        let mut log = storage.log.clone();
        let append = tokio::spawn(async move { log.blocking_append([blank(2, 10)]).await });
        // Votes do not wait, and come after whatever was to be written before.
        let vote = openraft::Vote::new(3, 2);
        tokio::time::timeout(BOUND, storage.log.save_vote(&vote)).await.unwrap().unwrap();
        let state = storage.log.get_log_state().await.unwrap();
        assert_eq!(state.last_purged_log_id, Some(blank(2, 9).log_id), "as far as Raft sees");
        let (_left, copy) = killed(&places);
        let mut after = again(&copy).unwrap();
        let state = after.log.get_log_state().await.unwrap();
        assert_eq!(state.last_log_id, Some(blank(1, 1).log_id), "as before the snapshot");
        assert_eq!(after.log.read_vote().await.unwrap(), Some(vote));
        assert!(!append.is_finished(), "nothing after the snapshot is acknowledged");

        storage.log.coverage().reaches(blank(2, 9).log_id);
        tokio::time::timeout(BOUND, append).await.unwrap().unwrap().unwrap();
        let (_left, copy) = killed(&places);
        assert!(matches!(again(&copy), Err(StorageError::NoSnapshot(_))), "now it is cut off");
    }

    #[tokio::test]
    async fn what_waits_for_a_snapshot_that_does_not_come_fails() {
        let directory = tempfile::tempdir().unwrap();
        let mut storage = first_start(&places(&directory));
        storage.log.purge(blank(2, 9).log_id).await.unwrap();
        let mut log = storage.log.clone();
        let append = tokio::spawn(async move { log.blocking_append([blank(2, 10)]).await });
        storage.log.save_vote(&openraft::Vote::new(3, 2)).await.unwrap();
        storage.log.coverage().fails().await;
        tokio::time::timeout(BOUND, append).await.unwrap().unwrap().unwrap_err();
    }

    /// A crash after a received snapshot was stored and before the log was cut off. The log's last entry is of a later
    /// term, and was never committed.
    #[tokio::test]
    async fn a_log_that_a_snapshot_replaces_begins_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        let mut storage = first_start(&places);
        storage.log.blocking_append([blank(1, 0), blank(5, 1)]).await.unwrap();
        let snapshots = places.snapshots();
        let number = storage.log.number().unwrap().unwrap();
        let snapshots = Snapshots::new(&snapshots, number, storage.log.coverage()).unwrap();
        stop(storage).await;
        let last_log_id = Some(blank(4, 7).log_id);
        let meta = super::super::snapshot::Meta { last_log_id, ..Default::default() };
        let path = snapshots.unfinished("received-1");
        super::super::snapshot::write(&path, &meta, Default::default()).unwrap();
        snapshots.adopt(&path).unwrap();
        let mut storage = again(&places).unwrap();
        let state = storage.log.get_log_state().await.unwrap();
        assert_eq!((state.last_purged_log_id, state.last_log_id), (last_log_id, last_log_id));
        storage.log.blocking_append([blank(6, 8)]).await.unwrap();
        stop(storage).await;
        // What the snapshot and the log both have stays.
        let mut storage = again(&places).unwrap();
        let state = storage.log.get_log_state().await.unwrap();
        assert_eq!(state.last_log_id, Some(blank(6, 8).log_id));
    }

    #[tokio::test]
    async fn a_snapshot_of_another_log_is_refused_and_one_that_is_left_means_that_the_member_took_part()
     {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        fs::create_dir_all(places.snapshots()).unwrap();
        for name in ["snapshot", "snapshot-0000000000000000000000000000000a"] {
            let left = places.snapshots().join(name);
            fs::write(&left, "somebody's").unwrap();
            let refused = places.clone().check(Start::New).unwrap_err();
            assert!(matches!(&refused, StorageError::TookPart(path) if *path == left), "{refused}");
            fs::remove_file(left).unwrap();
        }
        stop(first_start(&places)).await;
        let others = places.snapshots().join("snapshot-0000000000000000000000000000000a");
        fs::write(&others, "another member's").unwrap();
        assert!(matches!(again(&places), Err(StorageError::OtherSnapshot(_))));
        assert!(others.exists());
    }

    #[tokio::test]
    async fn a_member_without_state_is_not_made_by_starting_it() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        let refused = places.clone().check(Start::Stored).unwrap_err();
        assert!(matches!(refused, StorageError::NoState(_)), "{refused}");
        assert!(!refused.to_string().contains("--"), "no option is advised: {refused}");
        assert!(!places.directory.exists() && !places.record().exists());
        assert!(matches!(places.check(Start::Lost), Err(StorageError::Lost)));
    }

    /// Raft runs once the record says that the log was made, and not before.
    #[tokio::test]
    async fn a_first_start_that_crashed_is_taken_up_again() {
        let directory = tempfile::tempdir().unwrap();
        let places = places(&directory);
        drop(places.clone().check(Start::New).unwrap());
        // Before the election started: once more.
        drop(places.clone().check(Start::New).unwrap());
        // After that: as any later start.
        fs::write(&places.state, "the election's").unwrap();
        fs::write(places.log().with_extension("unfinished"), "half of one").unwrap();
        stop(again(&places).unwrap()).await;
        again(&places).unwrap();
    }
}
