//! Whose mandate a wrapper lends to its command: that of a member of its own, or the local daemon's.

use std::fs::File;
use std::sync::Arc;

use mandate::{Election, ElectionState, Loan, Member, Term, Value};
use tokio::time::timeout;

use super::daemon::{Daemon, FAREWELL};
use super::recall::{Acting, Recall};
use crate::node::member::others;

pub(crate) enum Lender<'a> {
    /// A member of this process.
    Member { member: &'a Member, election: Election, recall: Recall },
    /// The daemon, which is told when nothing acts on its mandate any more.
    Daemon(Arc<Daemon>),
}

/// Until it is dropped, leadership is not given to another in good order, where the engine can wait.
pub(crate) struct Lent {
    _loan: Option<Loan>,
    _acting: Option<Acting>,
}

impl Lender<'_> {
    /// Lends the mandate of this term; nothing if it does not hold any more.
    pub(crate) fn lend(&self, term: Term) -> Option<Lent> {
        match self {
            Lender::Member { election, recall, .. } => {
                let acting = recall.begin()?;
                let state = election.state().borrow().clone();
                let loan = state.mandate().filter(|mandate| mandate.term() == term)?.lend()?;
                Some(Lent { _loan: Some(loan), _acting: Some(acting) })
            }
            // The holder has been promised that.
            Lender::Daemon(_) => Some(Lent { _loan: None, _acting: None }),
        }
    }

    /// The lock of the member's state, for the guard.
    pub(crate) fn lock(&self) -> Option<File> {
        match self {
            Lender::Member { election, .. } => election.state_lock(),
            Lender::Daemon(_) => None,
        }
    }

    /// Has the daemon publish a value with this term. A member of this process does that by itself, with its first moment.
    pub(crate) async fn publish(&self, term: Term, value: &Value) {
        if let Lender::Daemon(daemon) = self {
            daemon.publish(term, value).await;
        }
    }

    /// Lets go for a while: the command has ended, and waits for another turn.
    pub(crate) async fn let_go(&self) {
        if let Lender::Daemon(daemon) = self {
            daemon.let_go(false).await;
        }
    }

    /// Lets go for good, and has this term given back unless another command needs it. A member of this process does
    /// that when it is shut down.
    pub(crate) async fn end(&self, give_back: Option<Term>) {
        if let Lender::Daemon(daemon) = self {
            match give_back {
                Some(term) => daemon.resign(term).await,
                None => {
                    // If the daemon hangs, what it promised ends by itself.
                    let _ = timeout(FAREWELL, daemon.let_go(true)).await;
                }
            }
        }
    }

    /// Why it does not lead, for people; nothing if that is not known.
    pub(crate) async fn why_not(&self) -> Option<String> {
        match self {
            Lender::Daemon(daemon) => daemon.why_not(),
            Lender::Member { member, election, .. } => {
                let state = election.state().borrow().clone();
                match state {
                    ElectionState::Following { leader, term, .. } => {
                        let others = others(member).await;
                        let label = others.iter().find(|other| other.id == leader);
                        let label = label.and_then(|other| other.label.as_ref());
                        let label = label.map(|label| format!(" ({label})")).unwrap_or_default();
                        Some(format!("{leader}{label} leads in term {term}"))
                    }
                    // Members on a ledger do not know of each other.
                    ElectionState::Electing if member.kafka().is_some() => {
                        Some("the role is another member's, or nobody's yet".into())
                    }
                    ElectionState::Electing => Some("no leader is known yet".into()),
                    _ => None,
                }
            }
        }
    }
}
