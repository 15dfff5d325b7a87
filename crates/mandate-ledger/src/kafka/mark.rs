//! Marks as offset commits: the term is the offset, because a claim's term is the position behind it, and what else there is to
//! say is the commit's metadata, in words that a person who lists the group's offsets can read. A newer release may say more behind
//! what is said here, after a comma: it is passed over. What it says in front of it must stay as it is.

use std::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::{Agreement, Mark, Mode, Partition, PartitionHolder};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

const HELD: &str = "held for";
const OVER: &str = "over";
const LEADS: &str = "leads";
const WANTS: &str = "wants";
const RENEWAL: &str = "renewal ";

/// What to commit so that these marks are kept.
pub(super) fn commit_of(topic: &str, marks: &[(Partition, Mark)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, mark) in marks {
        let (term, words) = match mark {
            Mark::Held { term, lease, holder } => (term, words(*lease, *holder)),
            Mark::Over { term } => (term, OVER.to_owned()),
        };
        let mut one = list.add_partition(topic, partition.get() as i32);
        // An offset that does not fit would be a topic of 2^63 records.
        let _ = one.set_offset(Offset::Offset(i64::try_from(term.get()).unwrap_or(i64::MAX)));
        one.set_metadata(words);
    }
    list
}

fn words(lease: Duration, holder: Option<PartitionHolder>) -> String {
    let held = format!("{HELD} {} us", lease.as_micros());
    match holder {
        None => held,
        Some(PartitionHolder { member, agreement, leads, renewal }) => {
            let does = if leads { LEADS } else { WANTS };
            format!("{held}, {agreement}, {member} {does}, {RENEWAL}{renewal}")
        }
    }
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
    let (held, holder) = match words.split_once(", ") {
        Some((held, rest)) => (held, Some(holder(rest)?)),
        // Of a release that did not say more.
        None => (words, None),
    };
    let micros = held.strip_prefix(HELD)?.strip_suffix("us")?.trim().parse().ok()?;
    Some(Mark::Held { term, lease: Duration::from_micros(micros), holder })
}

fn holder(words: &str) -> Option<PartitionHolder> {
    let parts: Vec<_> = words.split(", ").collect();
    // What a newer release says behind that is its own business.
    let [layout, mode, does, renewal, ..] = parts[..] else { return None };
    let mut numbers = layout.split(' ').filter_map(|word| word.parse().ok());
    let (roles, partitions) = (numbers.next()?, numbers.next()?);
    let mode =
        [Mode::Exclusive, Mode::NonExclusive].into_iter().find(|one| one.to_string() == mode)?;
    let (member, does) = does.split_once(' ')?;
    let member = MemberId::new(member.strip_prefix('p')?.parse().ok()?);
    let leads = match does {
        LEADS => true,
        WANTS => false,
        _ => return None,
    };
    let renewal = renewal.strip_prefix(RENEWAL)?.parse().ok()?;
    Some(PartitionHolder {
        member,
        agreement: Agreement { partitions, roles, mode },
        leads,
        renewal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_read_again() {
        let (p0, p7) = (Partition::new(0), Partition::new(7));
        let agreement = Agreement { partitions: 8, roles: 1, mode: Mode::NonExclusive };
        let holder =
            Some(PartitionHolder { member: MemberId::new(5), agreement, leads: true, renewal: 87 });
        let (term, lease) = (Term::new(12), Duration::from_micros(75_001));
        let marks = [
            (p0, Mark::Held { term, lease, holder }),
            (Partition::new(3), Mark::Held { term, lease, holder: None }),
            (p7, Mark::Over { term: Term::new(1) }),
        ];
        let list = commit_of("roles", &marks);
        let read: Vec<_> = list
            .elements()
            .iter()
            .filter_map(|one| Some((Partition::new(one.partition() as u32), mark_of(one)?)))
            .collect();
        assert_eq!(read, marks);
        assert_eq!(list.elements()[0].offset(), Offset::Offset(12));
        let words =
            "held for 75001 us, 1 role over 8 partitions, non-exclusive, p5 leads, renewal 87";
        assert_eq!(list.elements()[0].metadata(), words);
        assert_eq!(list.elements()[1].metadata(), "held for 75001 us", "as earlier releases");
    }

    /// Offset commits of the release that speaks protocol version 4, and one of a release to come.
    #[test]
    fn what_other_releases_commit_is_read() {
        let term = Term::new(12);
        let agreement = Agreement { partitions: 8, roles: 1000, mode: Mode::Exclusive };
        let holder =
            PartitionHolder { member: MemberId::new(5), agreement, leads: true, renewal: 87 };
        let held = Mark::Held { term, lease: Duration::from_millis(75), holder: Some(holder) };
        let of_4 = include_str!("../../tests/fixtures/marks-4.txt");
        let marks: Vec<_> = of_4.lines().map(|words| read(term, words)).collect();
        let bare = Mark::Held { term, lease: Duration::from_millis(75), holder: None };
        assert_eq!(marks, [Some(held), Some(bare), Some(Mark::Over { term })]);
        let first = of_4.lines().next().unwrap();
        let more = format!("{first}, protocol 9, something else");
        assert_eq!(read(term, &more), Some(held), "what follows is passed over");
        let list = commit_of("roles", &[(Partition::new(0), held)]);
        assert_eq!(list.elements()[0].metadata(), first, "and written as ever");
    }

    #[test]
    fn what_others_commit_is_no_mark() {
        let cut = "held for 3 us, 1 role over 8 partitions, exclusive, p5 leads";
        for words in ["", "held", "held for  us", "held for -3 us", "overdue", "0", cut] {
            assert_eq!(read(Term::new(3), words), None, "{words:?}");
        }
    }
}
