//! Where a follower's log agrees with the leader's, found in one round trip where nothing is amiss, and in two or
//! three where it is.
//!
//! openraft 0.9 looks for it by halving, from the middle of all that was ever appended: a round trip for each step,
//! ten of them for a log of ten thousand entries, and a service of members 77 ms apart does not serve for the better
//! part of a second after a crash. A follower that was there knows better. So a leader's first message is the one
//! that Raft's paper begins with: what it has appended itself, and the entry before that. A follower that lacks that entry
//! says where its own log ends; the leader tries with the last entry of its own that can be in there, and so on.
//! Then openraft's questions are answered by what was found.
//!
//! Nothing of Raft changes. What is tried are messages that the leader could have sent itself, with its vote, and
//! only an answer that is a success is taken for one. Where a follower's log ends decides what is tried next, and
//! that is all.

use std::io;
use std::time::Duration;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft::{LogId, Vote};
use tokio::time::Instant;

use super::log::Log;
use super::types::Kv;
use super::wire::{Reply, Request};

/// Bytes of entries in the first message, or one entry.
const MAX_MESSAGE: usize = 256 << 10;

/// Then openraft may look for itself.
const TRIES: usize = 4;

/// For so long openraft is answered from what was found; it asks at once.
const FRESH: Duration = Duration::from_millis(100);

/// What a follower was found to have of a leader's log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreement {
    vote: Vote<u64>,
    /// It has that entry, and so all before it. `None`: that is not known.
    upto: Option<LogId<u64>>,
    /// Its log ends with this index, or before the first. `None`: that is not known.
    end: Option<Option<u64>>,
    /// openraft was told that it lacks this entry, and goes on with earlier ones.
    lacked: Option<u64>,
    found: Instant,
}

/// What came of looking.
#[derive(Debug)]
pub(crate) enum Search {
    /// It has all that the leader had when it began to lead, and what came along with the question.
    Level(Agreement),
    /// It lacks something.
    Behind(Agreement),
    /// Its vote is higher.
    Deposed(AppendEntriesResponse<u64>),
}

impl Agreement {
    /// Nothing is known of it: openraft may look for itself.
    pub(crate) fn unknown(vote: Vote<u64>) -> Self {
        Agreement { vote, upto: None, end: None, lacked: None, found: Instant::now() }
    }

    /// Asks a follower.
    pub(crate) async fn search<A: Future<Output = io::Result<Reply>>>(
        mut ask: impl FnMut(Request) -> A,
        log: &Log,
        vote: Vote<u64>,
        committed: Option<LogId<u64>>,
    ) -> io::Result<Search> {
        let (mut before, mut entries) = log.since(vote, MAX_MESSAGE)?;
        let mut end = None;
        let agreed = |upto, end| Agreement { upto, end, ..Agreement::unknown(vote) };
        for tried in 0..TRIES {
            let upto = entries.last().map(|entry| entry.log_id).or(before);
            let message = AppendEntriesRequest {
                vote,
                prev_log_id: before,
                entries: std::mem::take(&mut entries),
                leader_commit: committed,
            };
            match ask(Request::Append(message)).await? {
                Reply::Append { response: AppendEntriesResponse::Success, .. } => {
                    return Ok(match tried {
                        0 => Search::Level(agreed(upto, end)),
                        _ => Search::Behind(agreed(upto, end)),
                    });
                }
                Reply::Append { response: AppendEntriesResponse::Conflict, end: ends, .. } => {
                    end = Some(ends.map(|last| last.index));
                    let Some(next) = ends.map(|last| log.not_after(last)).transpose()?.flatten()
                    else {
                        break;
                    };
                    before = Some(next);
                }
                Reply::Append { response, .. } => return Ok(Search::Deposed(response)),
                reply => return Err(reply.unexpected()),
            }
        }
        Ok(Search::Behind(agreed(None, end)))
    }

    /// The last entry that it is known to have.
    pub(crate) fn upto(&self) -> Option<LogId<u64>> {
        self.upto
    }

    /// Whether it was found in this leader's term.
    pub(crate) fn is_of(&self, vote: &Vote<u64>) -> bool {
        self.vote == *vote
    }

    /// It is sent something: its log may be longer then.
    pub(crate) fn is_sent_more(&mut self) {
        self.end = None;
    }

    /// What the follower would say to a message of openraft's, if that is known; `None` if the message has to be
    /// sent.
    pub(crate) fn stand_in(
        &mut self,
        message: &AppendEntriesRequest<Kv>,
    ) -> Option<AppendEntriesResponse<u64>> {
        let (first, last) = (message.entries.first()?, message.entries.last()?);
        if message.vote != self.vote || self.found.elapsed() >= FRESH {
            return None;
        }
        if self.upto >= Some(last.log_id) {
            return Some(AppendEntriesResponse::Success);
        }
        if self.upto >= Some(first.log_id) {
            return Some(AppendEntriesResponse::PartialSuccess(self.upto));
        }
        let before = message.prev_log_id?.index;
        // One that is not earlier than the last says that it was given something meanwhile: a snapshot, which goes another way.
        if self.lacked.is_some_and(|lacked| lacked <= before) {
            self.end = None;
        }
        let lacks_it = self.end.is_some_and(|end| Some(before) > end);
        self.lacked = lacks_it.then_some(before).or(self.lacked);
        lacks_it.then_some(AppendEntriesResponse::Conflict)
    }
}

#[cfg(test)]
mod tests {
    use openraft::Entry;
    use proptest::prelude::*;
    use std::cell::RefCell;

    use super::*;
    use crate::log::testing::{blank, log};

    /// A follower's log, which answers as Raft's rules want it.
    struct Follower(RefCell<Vec<LogId<u64>>>);

    impl Follower {
        fn has(&self, id: Option<LogId<u64>>) -> bool {
            id.is_none_or(|id| self.0.borrow().contains(&id))
        }

        async fn append(&self, request: Request) -> io::Result<Reply> {
            let Request::Append(message) = request else { unreachable!("nothing else is asked") };
            let has_it = self.has(message.prev_log_id);
            let mut log = self.0.borrow_mut();
            let keep = message.prev_log_id.map_or(0, |id| id.index + u64::from(has_it));
            let is_new = |entry: &Entry<Kv>| !log.contains(&entry.log_id);
            if !has_it || message.entries.iter().any(is_new) {
                log.truncate(usize::try_from(keep).unwrap());
            }
            if !has_it {
                let response = AppendEntriesResponse::Conflict;
                return Ok(Reply::Append { response, took_us: 0, end: log.last().copied() });
            }
            let new = message.entries.iter().map(|entry| entry.log_id);
            let new: Vec<_> = new.filter(|id| !log.contains(id)).collect();
            log.extend(new);
            let response = AppendEntriesResponse::Success;
            Ok(Reply::Append { response, took_us: 0, end: None })
        }
    }

    /// Two logs that Raft allows: alike up to somewhere, and of other terms after that. The leader's ends with its own.
    fn logs() -> impl Strategy<Value = (Vec<u64>, Vec<u64>, u64)> {
        let rising = |most: usize| prop::collection::vec(0..3_u64, 0..most);
        (rising(12), rising(6), rising(6), 0..3_usize).prop_map(|(alike, leads, follows, own)| {
            let sums = |from: u64, by: u64, steps: Vec<u64>| {
                steps.into_iter().scan(from, move |term, step| {
                    *term += step * by;
                    Some(*term)
                })
            };
            let alike: Vec<u64> = sums(1, 1, alike).collect();
            // Even terms here, odd terms there.
            let base = (alike.last().copied().unwrap_or(1) + 2) / 2 * 2;
            let mut leader: Vec<u64> = alike.iter().copied().chain(sums(base, 2, leads)).collect();
            let follower = alike.into_iter().chain(sums(base + 1, 2, follows)).collect();
            leader.extend(std::iter::repeat_n(100, own));
            (leader, follower, 100)
        })
    }

    fn ids(terms: &[u64]) -> Vec<LogId<u64>> {
        (0..).zip(terms).map(|(index, term)| blank(*term, index).log_id).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_found_is_so((leader, follower, term) in logs()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (_directory, log) = log(&leader, false).await;
                let leader = ids(&leader);
                let follower = Follower(RefCell::new(ids(&follower)));
                let vote = Vote::new_committed(term, 1);
                let found = Agreement::search(|it| follower.append(it), &log, vote, None).await;
                let (mut found, is_level) = match found.unwrap() {
                    Search::Level(found) => (found, true),
                    Search::Behind(found) => (found, false),
                    Search::Deposed(answer) => unreachable!("{answer:?}"),
                };
                if let Some(upto) = found.upto {
                    let agreed = usize::try_from(upto.index).unwrap() + 1;
                    assert_eq!(follower.0.borrow()[..agreed], leader[..agreed]);
                }
                if is_level {
                    assert_eq!(found.upto, leader.last().copied());
                }
                // openraft's questions are answered as the follower would have.
                for (index, entry) in leader.iter().enumerate().rev() {
                    let before = index.checked_sub(1).map(|before| leader[before]);
                    let entry = blank(entry.leader_id.term, entry.index);
                    let entries = vec![entry];
                    let message = AppendEntriesRequest {
                        vote, prev_log_id: before, entries, leader_commit: None,
                    };
                    match found.stand_in(&message) {
                        Some(AppendEntriesResponse::Success) => {
                            assert!(follower.has(Some(message.entries[0].log_id)));
                        }
                        Some(AppendEntriesResponse::Conflict) => assert!(!follower.has(before)),
                        Some(answer) => unreachable!("{answer:?}"),
                        None => {}
                    }
                }
            });
        }
    }

    #[tokio::test]
    async fn a_follower_that_was_given_a_snapshot_is_asked_again() {
        let vote = Vote::new_committed(2, 1);
        let mut found = Agreement { end: Some(Some(3)), ..Agreement::unknown(vote) };
        let mut told = |before| {
            let (prev_log_id, entries) =
                (Some(blank(2, before).log_id), vec![blank(2, before + 1)]);
            found.stand_in(&AppendEntriesRequest {
                vote,
                prev_log_id,
                entries,
                leader_commit: None,
            })
        };
        assert_eq!(told(40), Some(AppendEntriesResponse::Conflict));
        assert_eq!(told(20), Some(AppendEntriesResponse::Conflict), "openraft looks further down");
        assert_eq!(told(20), None, "after a snapshot it goes on from there");
        assert_eq!(told(50), None);
    }

    #[tokio::test]
    async fn a_follower_that_was_there_is_asked_once_and_one_that_lags_twice() {
        for (has, tries, level) in [(900, 1, true), (500, 2, false), (0, 1, false)] {
            let mut terms = vec![1; 900];
            terms.push(2);
            let (_directory, log) = log(&terms, false).await;
            let follower = Follower(RefCell::new(ids(&terms[..has])));
            let asked = RefCell::new(0);
            let ask = |request| {
                *asked.borrow_mut() += 1;
                follower.append(request)
            };
            let vote = Vote::new_committed(2, 1);
            let found = Agreement::search(ask, &log, vote, None).await.unwrap();
            assert_eq!((*asked.borrow(), matches!(found, Search::Level(_))), (tries, level));
        }
    }
}
