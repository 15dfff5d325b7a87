//! Whether a member may direct this one: its own election has to name it, in that very term.

use std::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_runtime::{ElectionState, Observer};
use tokio::time::timeout;

use super::orders::Refusal;

/// What the own election says of a member that claims to lead it in a term.
#[derive(Debug, PartialEq, Eq)]
enum Claim {
    Holds,
    /// The election has not heard of that term. It may be about to.
    Unheard,
    Refused(Refusal),
}

/// Whether that member leads the election in that term. A term that the election has not heard of is waited for, so
/// long: the winner asks as soon as it has won, and may be faster than the news.
pub(super) async fn of(
    observer: &Observer,
    from: MemberId,
    term: u64,
    wait: Duration,
) -> Result<(), Refusal> {
    let mut state = observer.state();
    let waiting = async {
        loop {
            let claim = judge(&state.borrow_and_update(), from, term);
            match claim {
                Claim::Holds => return Ok(()),
                Claim::Refused(refusal) => return Err(refusal),
                Claim::Unheard => {}
            }
            if state.changed().await.is_err() {
                return Err(Refusal::Stopped);
            }
        }
    };
    timeout(wait, waiting).await.unwrap_or(Err(Refusal::NotElected))
}

fn judge(state: &ElectionState, from: MemberId, term: u64) -> Claim {
    let (leader, known) = match state {
        ElectionState::Following { leader, term, .. } => (Some(*leader), term.get()),
        ElectionState::Stopped => return Claim::Refused(Refusal::Stopped),
        state => match state.mandate() {
            Some(mandate) => (None, mandate.term().get()),
            None => return Claim::Unheard,
        },
    };
    if known > term {
        return Claim::Refused(Refusal::Superseded { term: known });
    }
    match (known == term, leader == Some(from)) {
        (true, true) => Claim::Holds,
        (true, false) => Claim::Refused(Refusal::NotElected),
        (false, _) => Claim::Unheard,
    }
}

#[cfg(test)]
mod tests {
    use mandate_proto::identity::Term;

    use super::*;

    #[test]
    fn only_whom_the_own_election_names_may_direct() {
        let (leader, other) = (MemberId::new(2), MemberId::new(3));
        let state = ElectionState::Following { leader, term: Term::new(7), value: None };
        assert_eq!(judge(&state, leader, 7), Claim::Holds);
        assert_eq!(judge(&state, other, 7), Claim::Refused(Refusal::NotElected));
        assert_eq!(judge(&state, leader, 6), Claim::Refused(Refusal::Superseded { term: 7 }));
        assert_eq!(judge(&state, leader, u64::MAX), Claim::Unheard);
        assert_eq!(judge(&ElectionState::Electing, leader, 7), Claim::Unheard);
        let stopped = judge(&ElectionState::Stopped, leader, 7);
        assert_eq!(stopped, Claim::Refused(Refusal::Stopped));
    }
}
