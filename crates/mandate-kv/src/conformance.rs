//! openraft's own suite for storage, on ours.

use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, LogId, StorageError, StorageIOError};
use tempfile::TempDir;

use super::log::Log;
use super::machine::Machine;
use super::snapshot::Snapshots;
use super::types::Kv;

struct OnDisk;

impl StoreBuilder<Kv, Log, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, Log, Machine), StorageError<u64>> {
        let failed = |error: std::io::Error| StorageIOError::read(&error);
        let directory = tempfile::tempdir().map_err(failed)?;
        let log = Log::create(&directory.path().join("log.redb"), 1, None).map_err(failed)?;
        let snapshots = Snapshots::new(&directory.path().join("snapshots"), 1, log.coverage())
            .map_err(failed)?;
        // The suite cuts off what no snapshot has.
        log.coverage().reaches(LogId::new(CommittedLeaderId::new(0, 0), u64::MAX));
        let machine = Machine::open(snapshots).map_err(failed)?;
        Ok((directory, log, machine))
    }
}

#[test]
fn log_and_state_machine_are_as_openraft_wants_them() {
    Suite::test_all(OnDisk).unwrap();
}
