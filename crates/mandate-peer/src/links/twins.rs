//! Two processes under one id: a cloned host, a member started twice, a state that was replaced.
//!
//! Both would vote, each from a disk of its own, so that a term could have two leaders. Three things give them away:
//!
//! - A process draws a number at its start, its *incarnation*. Whoever comes with another one while the link with
//!   the first answers is a second process: it is refused, and both are told.
//! - An incarnation that comes back after another one was there was not restarted: the two take turns. That is warned of, and
//!   the one that comes is let in: the other does not answer now, and which of the two is the right one cannot be told from here. The
//!   first may have been cut off while somebody started a second by mistake and stopped it since; refused, it would stay out for as
//!   long as this process lives. While the other answers, the rule above refuses whoever comes.
//! - A state file has a number for its life. A member that shows another than before has lost what it voted, and is let in
//!   only if it says so (`--lost`), because then it has no vote until it has asked all others.
//!
//! What others have shown is remembered for as long as this process lives, from the first frame on: before, a member may
//! not have written its state yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mandate_proto::identity::MemberId;
use mandate_runtime::Start;
use tokio::sync::{mpsc, oneshot};

use super::control::Challenge;
use super::failure::Refusal;
use super::hello::Hello;
use super::peers::Peer;
use super::shared::Shared;

/// Incarnations of a member that are remembered: two that take turns are found within these.
const INCARNATIONS: usize = 8;

/// What a member has shown of itself.
#[derive(Default)]
pub(crate) struct Shown {
    /// The number of its state; 0 before the first frame.
    disk: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Of the link that is up: which incarnation, and how to ask whether it is there.
    present: Option<(u64, mpsc::Sender<Challenge>)>,
    /// The latest last.
    incarnations: VecDeque<u64>,
}

impl Shown {
    /// A frame came from a member with this state.
    pub(crate) fn spoke(&self, disk: u64) {
        self.disk.store(disk, Ordering::Relaxed);
    }

    /// A link is up.
    pub(crate) fn up(&self, life: u64, challenges: mpsc::Sender<Challenge>) {
        let mut seen = self.seen();
        seen.present = Some((life, challenges));
        seen.incarnations.retain(|known| *known != life);
        seen.incarnations.push_back(life);
        if seen.incarnations.len() > INCARNATIONS {
            seen.incarnations.pop_front();
        }
    }

    /// It has ended.
    pub(crate) fn down(&self) {
        self.seen().present = None;
    }

    /// Whether another incarnation than this one answers now.
    async fn another_lives(&self, life: u64) -> bool {
        let present = self.seen().present.clone();
        let Some((_, challenges)) = present.filter(|(known, _)| *known != life) else {
            return false;
        };
        let (answered, answer) = oneshot::channel();
        // If the link ends meanwhile, the answer is dropped.
        challenges.send(answered).await.is_ok() && answer.await.is_ok()
    }

    /// Whether this incarnation was followed by another one.
    fn takes_turns(&self, life: u64) -> bool {
        let seen = self.seen();
        seen.incarnations.contains(&life) && seen.incarnations.back() != Some(&life)
    }

    fn shows_another_disk(&self, disk: u64) -> bool {
        let known = self.disk.load(Ordering::Relaxed);
        known != 0 && known != disk
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the process that greets may be the member that it names.
pub(crate) async fn check(
    shared: &Shared,
    (member, peer): (MemberId, &Peer),
    theirs: &Hello,
) -> Result<(), Refusal> {
    if peer.shown.another_lives(theirs.life).await {
        shared.found_twin(member).await;
        return Err(Refusal::Twin(member));
    }
    // Who says that it has lost its state, or may have, or that the group was changed, asks everyone before it votes.
    let asks = matches!(theirs.start, Start::Lost | Start::Auto | Start::Changed);
    // Of who is no member nothing counts yet.
    let votes_are_forgotten = shared.keeps_votes && !asks && peer.is_listed();
    if votes_are_forgotten && peer.shown.shows_another_disk(theirs.disk) {
        return Err(Refusal::OtherState(member));
    }
    if peer.shown.takes_turns(theirs.life) {
        tracing::warn!(
            %member,
            "two processes take turns under this id: stop one of them; if its host was cloned, give it an id of its own"
        );
        shared.found_twin(member).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_that_comes_back_after_another_takes_turns_with_it() {
        let (shown, (challenges, _)) = (Shown::default(), mpsc::channel(1));
        assert!(!shown.takes_turns(1), "the first");
        shown.up(1, challenges.clone());
        assert!(!shown.takes_turns(1), "it dialled again");
        assert!(!shown.takes_turns(2), "it was restarted");
        shown.up(2, challenges.clone());
        assert!(shown.takes_turns(1), "it never ended");
        for life in 3..100 {
            assert!(!shown.takes_turns(life), "a restart");
            shown.up(life, challenges.clone());
        }
        assert_eq!(shown.seen().incarnations.len(), INCARNATIONS);
    }

    #[test]
    fn a_state_is_remembered_from_the_first_frame_on() {
        let shown = Shown::default();
        assert!(!shown.shows_another_disk(7));
        shown.spoke(7);
        assert!(!shown.shows_another_disk(7) && shown.shows_another_disk(8));
    }
}
