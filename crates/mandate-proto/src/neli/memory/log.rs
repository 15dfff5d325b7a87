//! Partitions: records in order, with their keeper's clock.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::neli::{LedgerRecord, Partition};
use crate::time::WallTime;

use super::protocol::Fetched;

/// Records that are kept of each partition. Offsets go on when the oldest are dropped.
const RETAINED: usize = 1024;

/// Records that one fetch hands out at most.
const FETCHED: usize = 256;

#[derive(Clone, Debug, Default)]
struct Records {
    first: u64,
    kept: VecDeque<(WallTime, LedgerRecord)>,
}

/// All partitions.
#[derive(Clone, Debug)]
pub struct Log {
    partitions: Vec<Records>,
}

impl Log {
    /// So many empty ones.
    pub fn new(partitions: u32) -> Self {
        Log { partitions: vec![Records::default(); partitions as usize] }
    }

    /// Appends a record, and says where it stands; `None` if there is no such partition.
    pub fn append(
        &mut self,
        partition: Partition,
        record: LedgerRecord,
        stamp: WallTime,
    ) -> Option<u64> {
        let records = self.partitions.get_mut(partition.get() as usize)?;
        records.kept.push_back((stamp, record));
        if records.kept.len() > RETAINED {
            records.kept.pop_front();
            records.first += 1;
        }
        Some(records.first + records.kept.len() as u64 - 1)
    }

    /// Records of a partition from an offset on (`None`: from the end on), and where to go on.
    pub fn fetch(&self, partition: Partition, from: Option<u64>) -> (Vec<Fetched>, u64) {
        let Some(records) = self.partitions.get(partition.get() as usize) else {
            return (Vec::new(), 0);
        };
        let end = records.first + records.kept.len() as u64;
        let from = from.unwrap_or(end).clamp(records.first, end);
        let fetched: Vec<_> = (from..end)
            .take(FETCHED)
            .filter_map(|offset| {
                let (stamp, record) = records.kept.get((offset - records.first) as usize)?.clone();
                Some(Fetched { partition, offset, stamp, record })
            })
            .collect();
        let next = from + fetched.len() as u64;
        (fetched, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Incarnation, MemberId};
    use crate::neli::{Agreement, Mode, PROTOCOL, RecordKind};

    const P0: Partition = Partition::new(0);

    fn record(sent_nanos: u64) -> LedgerRecord {
        let (member, life) = (MemberId::new(1), Incarnation::new(1));
        let agreement = Agreement { partitions: 1, roles: 1, mode: Mode::Exclusive };
        LedgerRecord {
            protocol: PROTOCOL,
            member,
            life,
            sent_nanos,
            kind: RecordKind::Beat,
            agreement,
        }
    }

    #[test]
    fn offsets_go_on_when_old_records_are_dropped() {
        let mut log = Log::new(1);
        for sent in 0..(RETAINED as u64 + 10) {
            let offset = log.append(P0, record(sent), WallTime::from_unix_nanos(sent));
            assert_eq!(offset, Some(sent));
        }
        let (fetched, next) = log.fetch(P0, Some(0));
        assert_eq!((fetched[0].offset, next), (10, 10 + FETCHED as u64));
        assert_eq!(fetched[0].record.sent_nanos, 10);
    }

    #[test]
    fn the_end_is_where_the_next_record_comes() {
        let mut log = Log::new(1);
        assert_eq!(log.fetch(P0, None), (Vec::new(), 0));
        log.append(P0, record(0), WallTime::from_unix_nanos(0));
        assert_eq!(log.fetch(P0, None), (Vec::new(), 1));
        assert_eq!(log.append(Partition::new(9), record(0), WallTime::from_unix_nanos(0)), None);
    }
}
