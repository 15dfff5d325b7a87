//! Marks as offset commits: the term is the offset, because a claim's term is the position behind it, and what else there is to
//! say is the commit's metadata, in words that a person who lists the group's offsets can read.

use std::time::Duration;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Mark, Partition};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

const HELD: &str = "held for";
const OVER: &str = "over";

/// What to commit so that these marks are kept.
pub(super) fn commit_of(topic: &str, marks: &[(Partition, Mark)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, mark) in marks {
        let (term, words) = match mark {
            Mark::Held { term, lease } => (term, format!("{HELD} {} us", lease.as_micros())),
            Mark::Over { term } => (term, OVER.to_owned()),
        };
        let mut one = list.add_partition(topic, partition.get() as i32);
        // An offset that does not fit would be a topic of 2^63 records.
        let _ = one.set_offset(Offset::Offset(i64::try_from(term.get()).unwrap_or(i64::MAX)));
        one.set_metadata(words);
    }
    list
}

/// The mark that a commit was; `None` if it was none of ours.
pub(super) fn mark_of(committed: &TopicPartitionListElem<'_>) -> Option<Mark> {
    let Offset::Offset(offset) = committed.offset() else { return None };
    read(Term::new(u64::try_from(offset).ok()?), committed.metadata())
}

fn read(term: Term, words: &str) -> Option<Mark> {
    if words == OVER {
        return Some(Mark::Over { term });
    }
    let micros = words.strip_prefix(HELD)?.strip_suffix("us")?.trim().parse().ok()?;
    Some(Mark::Held { term, lease: Duration::from_micros(micros) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_read_again() {
        let (p0, p7) = (Partition::new(0), Partition::new(7));
        let held = Mark::Held { term: Term::new(12), lease: Duration::from_micros(75_001) };
        let marks = [(p0, held), (p7, Mark::Over { term: Term::new(1) })];
        let list = commit_of("roles", &marks);
        let read: Vec<_> = list
            .elements()
            .iter()
            .filter_map(|one| Some((Partition::new(one.partition() as u32), mark_of(one)?)))
            .collect();
        assert_eq!(read, marks);
        assert_eq!(list.elements()[0].offset(), Offset::Offset(12));
        assert_eq!(list.elements()[0].metadata(), "held for 75001 us");
    }

    #[test]
    fn what_others_commit_is_no_mark() {
        for words in ["", "held", "held for  us", "held for -3 us", "overdue", "0"] {
            assert_eq!(read(Term::new(3), words), None, "{words:?}");
        }
    }
}
