//! What the daemon says of itself, as JSON: the same for the API and for the commands that show it.

use std::collections::BTreeMap;

use mandate_proto::identity::MemberId;
use mandate_proto::oracle::{Candidate, Oracle, Standing, describe};
use mandate_proto::pole::member::Record;
use mandate_runtime::{ElectionState, Status};
use serde::{Deserialize, Serialize};

use crate::oracle_rank::reason;

/// A member's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StatusDocument {
    pub(crate) group: String,
    pub(crate) member: String,
    /// `electing`, `following`, `leading`, `jeopardy` or `stopped`.
    pub(crate) state: String,
    pub(crate) leader: Option<String>,
    pub(crate) term: Option<u64>,
    /// How long the lease lasts from now on; absent without leases, and on followers.
    pub(crate) lease_remaining_ms: Option<f64>,
    pub(crate) guarantee: String,
    pub(crate) oracle: String,
    pub(crate) has_vote: bool,
    /// What this member measures of itself, by term of the oracle.
    pub(crate) figures: BTreeMap<String, String>,
    /// Why it is no candidate, if it is none.
    pub(crate) not_a_candidate: Option<String>,
    pub(crate) members: Vec<PeerDocument>,
}

/// Another member, as seen from this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerDocument {
    pub(crate) id: String,
    pub(crate) suspected: bool,
    pub(crate) round_trip_ms: Option<f64>,
    pub(crate) requests: f64,
}

/// An election.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ElectionDocument {
    pub(crate) term: u64,
    pub(crate) leader: String,
    pub(crate) former: Option<String>,
    pub(crate) cause: String,
    pub(crate) ended: Option<String>,
    pub(crate) selection_ms: f64,
    pub(crate) installation_ms: f64,
    pub(crate) rounds: u32,
    pub(crate) suspected: Vec<String>,
    pub(crate) candidates: Vec<CandidateDocument>,
}

/// A candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CandidateDocument {
    pub(crate) id: String,
    /// What it measured of itself, by term of the oracle.
    pub(crate) figures: BTreeMap<String, String>,
    pub(crate) score: Option<Vec<f64>>,
    pub(crate) outcome: String,
}

/// What of a setup the documents show.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) group: String,
    pub(crate) me: MemberId,
    pub(crate) members: Vec<MemberId>,
    pub(crate) guarantee: String,
    pub(crate) oracle: Oracle,
}

impl About {
    pub(crate) fn status(&self, status: &Status) -> StatusDocument {
        let (name, leader, term) = match &status.state {
            ElectionState::Electing => ("electing", None, None),
            ElectionState::Stopped => ("stopped", None, None),
            ElectionState::Following { leader, term } => ("following", Some(*leader), Some(*term)),
            ElectionState::Leading(mandate) if mandate.check() => {
                ("leading", Some(self.me), Some(mandate.term()))
            }
            ElectionState::Jeopardy(mandate) if mandate.check() => {
                ("jeopardy", Some(self.me), Some(mandate.term()))
            }
            // The lease has ended, and the driver is about to say so.
            ElectionState::Leading(_) | ElectionState::Jeopardy(_) => ("electing", None, None),
        };
        let held = status.state.mandate().filter(|mandate| mandate.check());
        let remaining = held.and_then(|mandate| mandate.remaining());
        StatusDocument {
            group: self.group.clone(),
            member: self.me.to_string(),
            state: name.into(),
            leader: leader.map(|leader| leader.to_string()),
            term: term.map(|term| term.get()),
            lease_remaining_ms: remaining.map(|left| left.as_secs_f64() * 1000.0),
            guarantee: self.guarantee.clone(),
            oracle: self.oracle.to_string(),
            has_vote: status.has_vote,
            figures: self.figures(&status.standing),
            not_a_candidate: status.standing.err().map(|reason| reason.to_string()),
            members: self.peers(status),
        }
    }

    fn peers(&self, status: &Status) -> Vec<PeerDocument> {
        let others = self.members.iter().filter(|id| **id != self.me);
        let peer = |id: &MemberId| PeerDocument {
            id: id.to_string(),
            suspected: status.suspected.contains(id),
            round_trip_ms: status.view.round_trips.get(id).map(|time| time.as_secs_f64() * 1000.0),
            requests: status.view.request_rates.get(id).copied().unwrap_or(0.0),
        };
        others.map(peer).collect()
    }

    fn figures(&self, standing: &Standing) -> BTreeMap<String, String> {
        let values = standing.as_ref().map_or(&[][..], |measured| measured.values.components());
        let terms = self.oracle.terms().iter().zip(values);
        terms
            .map(|(term, value)| (term.measure.name().into(), describe(term.measure, *value)))
            .collect()
    }

    pub(crate) fn election(&self, record: &Record) -> ElectionDocument {
        let candidate = |candidate: &Candidate| CandidateDocument {
            id: candidate.id.to_string(),
            figures: candidate.measured.map_or_else(BTreeMap::new, |it| self.figures(&Ok(it))),
            score: candidate.score().map(|score| score.components().to_vec()),
            outcome: reason(candidate, &record.ranking),
        };
        ElectionDocument {
            term: record.term.get(),
            leader: record.leader.to_string(),
            former: record.former.map(|former| former.to_string()),
            cause: format!("{:?}", record.cause),
            ended: record.ended.map(|ended| format!("{ended:?}")),
            selection_ms: record.selection.as_secs_f64() * 1000.0,
            installation_ms: record.installation.as_secs_f64() * 1000.0,
            rounds: record.rounds,
            suspected: record.suspected.iter().map(MemberId::to_string).collect(),
            candidates: record.ranking.candidates.iter().map(candidate).collect(),
        }
    }
}
