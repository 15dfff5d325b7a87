//! What the daemon says of itself, as JSON: the same for the API and for the commands that show it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use mandate::runtime::disk::DiskHealth;
use mandate::runtime::event::{Cause, Handover, Record};
use mandate::{ElectionState, MemberInfo, Membership, RosterId, Status};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::neli::Partition;
use mandate_proto::oracle::{Candidate, Measure, Measured, Oracle, describe};
use mandate_proto::pole::installation::{Reason, WhyNoVote};
use mandate_proto::pole::selection::SelectionEnd;
use mandate_proto::registers::{self, Reign};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::chronicle::now_ms;
use super::quality::QualityDocument;
use crate::ledger::{RoleMapDocument, words as ledger_words};
use crate::oracle_rank::reason;
use crate::output::ms;
use crate::sql::words::{because, reason_name};

/// A member that is configured differently.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DifferingDocument {
    pub member: String,
    /// What it is configured with, in words: its list of members and its guarantee.
    pub theirs: String,
    /// What this member is configured with.
    pub ours: String,
}

/// A member's state.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StatusDocument {
    pub group: String,
    pub member: String,
    /// `electing`, `following`, `leading`, `jeopardy` or `stopped`.
    pub state: String,
    pub leader: Option<String>,
    pub term: Option<u64>,
    /// What the leader has published with its term; absent if it has published nothing, or this member does not know it yet.
    #[serde(default)]
    pub value: Option<String>,
    /// When this member first knew of the leader in that term, in milliseconds since 1970; absent where elections are not recorded.
    #[serde(default)]
    pub since_ms: Option<u64>,
    /// Why that one leads, in words; absent where elections are not recorded.
    #[serde(default)]
    pub why: Option<String>,
    /// How long the lease lasts from now on; absent without leases, and on followers.
    pub lease_remaining_ms: Option<f64>,
    /// How long a whole lease lasts; absent without leases.
    pub lease_ms: Option<f64>,
    pub guarantee: String,
    pub oracle: String,
    /// The release of this program, and the newest version of the protocol that it speaks with other members; absent where
    /// members exchange no messages.
    #[serde(default)]
    pub release: Option<String>,
    #[serde(default)]
    pub protocol: Option<u32>,
    /// Absent where nobody votes.
    pub has_vote: Option<bool>,
    /// Why it has no vote, and whose answers it waits for; absent if it has one.
    #[serde(default)]
    pub no_vote: Option<String>,
    /// How often a lease of this member was renewed since its start.
    pub renewals: u64,
    /// When the daemon was started, and what its clock reads now, in milliseconds since 1970.
    pub started_ms: u64,
    pub now_ms: u64,
    /// Requests a second that clients send to this member, as it was told; absent where an engine has no use for it.
    pub requests: Option<f64>,
    /// What this member measures of itself, by term of the oracle.
    pub figures: BTreeMap<String, String>,
    /// The same as numbers, in the unit of each measure; what is not known is left out.
    pub values: BTreeMap<String, f64>,
    /// Why it is no candidate, if it is none.
    pub not_a_candidate: Option<String>,
    pub members: Vec<PeerDocument>,
    /// By which list of members this one goes; absent where a group has none.
    #[serde(default)]
    pub list: Option<ListNumber>,
    /// What an operator should look at: a disk that fails, another process under this member's id.
    #[serde(default)]
    pub troubles: Vec<String>,
    /// How the writes of its state go; absent where a member keeps none of its own.
    #[serde(default)]
    pub disk: Option<DiskDocument>,
    /// How well leaders are watched: one entry, of the leader that is followed; none where that is not by heartbeats.
    #[serde(default)]
    pub quality: Vec<QualityDocument>,
    /// Members that are refused, because they have another list of members or another guarantee.
    #[serde(default)]
    pub differing: Vec<DifferingDocument>,
    /// Which roles this member leads; absent where a group has one.
    #[serde(default)]
    pub role_map: Option<RoleMapDocument>,
}

/// How the writes of a member's state go, since its start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskDocument {
    /// Writes that are on disk.
    pub writes: u64,
    /// Attempts that the system refused. A write is attempted until it succeeds.
    pub failures: u64,
    /// Writes that took longer than half a second.
    pub slow: u64,
    /// What all writes that are on disk took together.
    pub spent_ms: f64,
    /// What the slowest of them took.
    pub longest_ms: f64,
    /// How long the write has taken that the member waits for; absent if it waits for none.
    pub waiting_ms: Option<f64>,
    /// Why that write failed, if it did.
    pub error: Option<String>,
}

impl DiskDocument {
    pub fn new(health: &DiskHealth) -> Self {
        DiskDocument {
            writes: health.writes,
            failures: health.failures,
            slow: health.slow,
            spent_ms: ms(health.spent),
            longest_ms: ms(health.longest),
            waiting_ms: health.waiting.map(ms),
            error: health.error.clone(),
        }
    }
}

/// A member, as another knows it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PeerDocument {
    pub id: String,
    /// Who it is, for people: its name in the group's list, or, on a database, the host and process.
    #[serde(default)]
    pub label: Option<String>,
    /// Whether it is the member that says this.
    #[serde(default)]
    pub is_asked: bool,
    /// Whether it leads, as far as is known.
    #[serde(default)]
    pub leads: bool,
    /// `voter`, `learner` or `observer`, where the group has a list of members.
    #[serde(default)]
    pub part: Option<String>,
    /// Where the others reach it, as `host:port`, where that is known.
    #[serde(default)]
    pub address: Option<String>,
    /// Who leaves once this member votes.
    #[serde(default)]
    pub replaces: Option<String>,
    /// Who takes its place: it leaves once that one votes.
    #[serde(default)]
    pub replaced_by: Option<String>,
    /// By which list it goes, where that is known.
    #[serde(default)]
    pub list: Option<ListNumber>,
    /// Why it has no vote, if it has said so.
    #[serde(default)]
    pub no_vote: Option<String>,
    /// Absent where this member does not look: on a database, and it does not lead.
    pub suspected: Option<bool>,
    pub round_trip_ms: Option<f64>,
    /// Absent where the member did not say.
    pub requests: Option<f64>,
    /// Why there is no link with it, or what else is wrong with it, as far as it was found lately.
    #[serde(default)]
    pub trouble: Option<String>,
    /// The version of the protocol that the link with it speaks; absent while there is none.
    #[serde(default)]
    pub protocol: Option<u32>,
    /// The release that it is of; absent while there is no link, and of releases that speak version 4 at most.
    #[serde(default)]
    pub release: Option<String>,
}

/// The number of a list of members: of two lists the one with the higher term counts, and in one term that with the higher version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListNumber {
    /// Of the leader that made it; 0 for the list that the group was set up with.
    pub term: u64,
    /// Rises with every change; 0 while a process that is to be added knows of no list yet.
    pub version: u64,
}

impl From<RosterId> for ListNumber {
    fn from(id: RosterId) -> Self {
        ListNumber { term: id.term.get(), version: id.version }
    }
}

/// Written `3.2`: term and version.
impl fmt::Display for ListNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.version)
    }
}

/// An election.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ElectionDocument {
    pub term: u64,
    pub leader: String,
    pub former: Option<String>,
    /// Why a leader was looked for: a word, such as `no_answer` or `transferred`.
    pub cause: String,
    /// The cause in words.
    pub why: String,
    /// Who had the former leader hand over, if it did: `request` if it was asked to, `score` if another serves better.
    #[serde(default)]
    pub handed_over_by: Option<String>,
    /// When it ended, in milliseconds since 1970 by this host's clock.
    pub at_ms: u64,
    /// When this member saw that leader's time end; absent while it lasts.
    pub until_ms: Option<u64>,
    /// How the selection ended (`everyone`, `unsuspected`, `timeout` or `votes`), if this member took part in it; on a ledger,
    /// how the roles were lost.
    pub ended: Option<String>,
    pub selection_ms: f64,
    pub installation_ms: f64,
    pub rounds: u32,
    pub suspected: Vec<String>,
    pub candidates: Vec<CandidateDocument>,
    /// Which partition's roles it is about, on a ledger.
    #[serde(default)]
    pub partition: Option<u32>,
}

/// A candidate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CandidateDocument {
    pub id: String,
    /// What it measured of itself, by term of the oracle.
    pub figures: BTreeMap<String, String>,
    pub score: Option<Vec<f64>>,
    pub outcome: String,
}

/// What of a setup the documents show.
#[derive(Clone, Debug)]
pub struct About {
    pub group: String,
    pub me: MemberId,
    pub guarantee: String,
    /// How long a lease lasts; `None` without leases.
    pub lease: Option<Duration>,
    /// Not with NFD-L.
    pub has_terms: bool,
    pub oracle: Oracle,
}

impl About {
    pub fn status(
        &self,
        status: &Status,
        others: &[MemberInfo],
        started_ms: u64,
    ) -> StatusDocument {
        let (name, leader, term) = match &status.state {
            ElectionState::Stopped => ("stopped", None, None),
            ElectionState::Following { leader, term, .. } => {
                ("following", Some(*leader), Some(*term))
            }
            ElectionState::Leading(mandate) if mandate.check() => {
                ("leading", Some(self.me), Some(mandate.term()))
            }
            ElectionState::Jeopardy(mandate) if mandate.check() => {
                ("jeopardy", Some(self.me), Some(mandate.term()))
            }
            // Also if the lease has ended, and the driver is about to say so.
            _ => ("electing", None, None),
        };
        let held = status.state.mandate().filter(|mandate| mandate.check());
        let remaining = held.and_then(|mandate| mandate.remaining());
        let measured = status.candidacy.and_then(Result::ok);
        let measured = measured.as_ref();
        StatusDocument {
            group: self.group.clone(),
            member: self.me.to_string(),
            state: name.into(),
            leader: leader.map(|leader| leader.to_string()),
            term: term.filter(|_| self.has_terms).map(|term| term.get()),
            value: status.state.value().map(|value| value.to_string()),
            since_ms: None,
            why: None,
            lease_remaining_ms: remaining.filter(|_| self.has_terms).map(ms),
            lease_ms: self.lease.map(ms),
            guarantee: self.guarantee.clone(),
            oracle: self.oracle.to_string(),
            release: None,
            protocol: None,
            has_vote: status.has_vote,
            no_vote: status.no_vote.as_ref().map(|reason| reason.to_string()),
            renewals: status.renewals,
            started_ms,
            now_ms: now_ms(),
            requests: requests(status, self.me),
            figures: self.figures(measured),
            values: self.values(measured),
            not_a_candidate: status.candidacy.and_then(Result::err).map(|it| it.to_string()),
            members: others.iter().map(|other| peer(other, status)).collect(),
            list: None,
            troubles: Vec::new(),
            disk: None,
            quality: status.detection.as_ref().map(QualityDocument::new).into_iter().collect(),
            differing: Vec::new(),
            role_map: None,
        }
    }

    fn figures(&self, measured: Option<&Measured>) -> BTreeMap<String, String> {
        self.measured(measured)
            .map(|(measure, value)| (measure.name().into(), describe(measure, value)))
            .collect()
    }

    fn values(&self, measured: Option<&Measured>) -> BTreeMap<String, f64> {
        // The worst of all numbers stands for one that is not known.
        let known = self.measured(measured).filter(|(_, value)| value.abs() < f64::MAX);
        known.map(|(measure, value)| (measure.name().into(), value)).collect()
    }

    /// What each term of the oracle measured.
    fn measured<'a>(
        &self,
        measured: Option<&'a Measured>,
    ) -> impl Iterator<Item = (Measure, f64)> + use<'a, '_> {
        let values = measured.map_or(&[][..], |measured| measured.values.components());
        self.oracle.terms().iter().zip(values).map(|(term, value)| (term.measure, *value))
    }

    /// A term that began on a database, seen at that time of day; `None` if it ended.
    pub fn reign(&self, reign: &Reign, at_ms: u64) -> Option<ElectionDocument> {
        Some(ElectionDocument {
            term: reign.term.get(),
            leader: reign.leader?.to_string(),
            former: reign.former.map(|former| former.to_string()),
            cause: reason_name(reign.reason).into(),
            why: because(reign.reason).into(),
            // On a database nobody hands over by score.
            handed_over_by: (reign.reason == registers::Reason::Transferred)
                .then(|| "request".into()),
            at_ms,
            until_ms: None,
            ended: None,
            selection_ms: 0.0,
            installation_ms: 0.0,
            rounds: 1,
            suspected: Vec::new(),
            candidates: Vec::new(),
            partition: None,
        })
    }

    /// A partition's roles came to be led here, at that time of day.
    pub fn assigned(
        &self,
        partition: Partition,
        term: Option<Term>,
        at_ms: u64,
    ) -> ElectionDocument {
        ElectionDocument {
            term: term.map_or(0, Term::get),
            leader: self.me.to_string(),
            former: None,
            cause: "assigned".into(),
            why: ledger_words::ASSIGNED.into(),
            handed_over_by: None,
            at_ms,
            until_ms: None,
            ended: None,
            selection_ms: 0.0,
            installation_ms: 0.0,
            rounds: 1,
            suspected: Vec::new(),
            candidates: Vec::new(),
            partition: Some(partition.get()),
        }
    }

    /// An election that ended at that time of day.
    pub fn election(&self, record: &Record, at_ms: u64) -> ElectionDocument {
        let candidate = |candidate: &Candidate| CandidateDocument {
            id: candidate.id.to_string(),
            figures: self.figures(candidate.measured.as_ref()),
            score: candidate.score().map(|score| score.components().to_vec()),
            outcome: match record.handover {
                Some(Handover::Asked) if candidate.id == record.leader => {
                    "leads: leadership was to be handed over to it".into()
                }
                Some(Handover::Asked) => "was not asked for".into(),
                _ => reason(candidate, &record.ranking),
            },
        };
        ElectionDocument {
            term: record.term.get(),
            leader: record.leader.to_string(),
            former: record.former.map(|former| former.to_string()),
            cause: cause_name(record.cause).into(),
            why: why(record),
            handed_over_by: record.handover.map(|handover| match handover {
                Handover::Asked => "request".into(),
                Handover::Better { .. } => "score".into(),
            }),
            at_ms,
            until_ms: None,
            ended: record.ended.map(|ended| ended_name(ended).into()),
            selection_ms: ms(record.selection),
            installation_ms: ms(record.installation),
            rounds: record.rounds,
            suspected: record.suspected.iter().map(MemberId::to_string).collect(),
            candidates: record.ranking.candidates.iter().map(candidate).collect(),
            partition: None,
        }
    }
}

/// Another member, as seen from this one.
fn peer(other: &MemberInfo, status: &Status) -> PeerDocument {
    let view = status.view.as_ref();
    let leader = match &status.state {
        ElectionState::Following { leader, .. } => Some(*leader),
        _ => None,
    };
    PeerDocument {
        leads: leader == Some(other.id),
        suspected: status.suspected.as_ref().map(|suspected| suspected.contains(&other.id)),
        round_trip_ms: view.and_then(|view| view.round_trips.get(&other.id)).copied().map(ms),
        requests: requests(status, other.id),
        list: status.lists.get(&other.id).map(|list| (*list).into()),
        no_vote: status.without_vote.get(&other.id).map(|why| without_vote(*why).into()),
        ..listed(other)
    }
}

/// What the group's list says of a member.
fn listed(info: &MemberInfo) -> PeerDocument {
    let (part, replaces) = match info.part {
        Some(Membership::Voter { replaces, .. }) => (Some("voter"), replaces),
        Some(Membership::Learner { replaces }) => (Some("learner"), replaces),
        Some(Membership::Observer) => (Some("observer"), None),
        None => (None, None),
    };
    PeerDocument {
        label: info.label.clone(),
        part: part.map(str::to_owned),
        address: info.address.clone(),
        replaces: replaces.map(|old| old.to_string()),
        ..unlisted(info.id.to_string())
    }
}

/// A member of whom nothing is known but its id.
fn unlisted(id: String) -> PeerDocument {
    PeerDocument {
        id,
        label: None,
        is_asked: false,
        leads: false,
        part: None,
        address: None,
        replaces: None,
        replaced_by: None,
        list: None,
        no_vote: None,
        suspected: None,
        round_trip_ms: None,
        requests: None,
        trouble: None,
        protocol: None,
        release: None,
    }
}

impl StatusDocument {
    /// All members of the group's list, this one in its place; where there is no list, the others.
    pub fn listed(self, all: &[MemberInfo]) -> Vec<PeerDocument> {
        let Some(list) = self.list else { return self.members };
        let me = all.iter().find(|info| info.id.to_string() == self.member);
        // It waits to be added, or was removed.
        let me = me.map_or_else(|| unlisted(self.member.clone()), listed);
        let me = PeerDocument {
            is_asked: true,
            leads: self.leader.as_ref() == Some(&self.member),
            list: Some(list),
            requests: self.requests,
            no_vote: self.no_vote.clone(),
            ..me
        };
        let mut members = self.members;
        // In the order of the list.
        let place =
            |member: &PeerDocument| all.iter().position(|it| it.id.to_string() == member.id);
        members.push(me);
        members.sort_by_key(|member| place(member).unwrap_or(usize::MAX));
        let replaced = |old: &PeerDocument| {
            members
                .iter()
                .find(|new| new.replaces.as_ref() == Some(&old.id))
                .map(|it| it.id.clone())
        };
        let replaced_by: Vec<_> = members.iter().map(replaced).collect();
        for (member, by) in members.iter_mut().zip(replaced_by) {
            member.replaced_by = by;
        }
        members
    }
}

/// Why another has no vote, in words.
fn without_vote(why: WhyNoVote) -> &'static str {
    match why {
        WhyNoVote::New => "no vote yet: it is new, and waits for a first answer of all others",
        WhyNoVote::Unsure => {
            "no vote yet: it found no state, and asks whether it is new or has lost its disk"
        }
        WhyNoVote::NoState => {
            "no vote: it found no state, and others have voted: its disk was lost"
        }
        WhyNoVote::Lost => "no vote: its disk was lost",
        WhyNoVote::Changed => {
            "no vote: the members were changed, and it waits for what the others have promised"
        }
        WhyNoVote::WentBack => "no vote: its disk went back to an older state",
        WhyNoVote::Disputed => "no vote: it knows a member that has another list or guarantee",
        WhyNoVote::Joining => "no vote yet: it waits to be added to the group",
        WhyNoVote::Learning => "no vote yet: it learns",
        WhyNoVote::Observing => "no vote: it observes",
        WhyNoVote::NotAMember => "no vote: it has heard that it is no member",
        WhyNoVote::Outdated => {
            "no vote: it has no disk, in a group that was changed: replace it by a new member"
        }
    }
}

/// Requests a second that clients send to a member, as far as this one knows.
fn requests(status: &Status, of: MemberId) -> Option<f64> {
    status.view.as_ref()?.request_rates.get(&of).copied()
}

/// Why this leader leads, in words.
pub fn why(record: &Record) -> String {
    let former = record.former.map_or("the leader".into(), |former| former.to_string());
    match record.handover {
        None => in_words(record.cause).into(),
        Some(Handover::Asked) => {
            format!(
                "{former} was asked to hand over to {}, by an operator or its application",
                record.leader
            )
        }
        Some(Handover::Better { measure, present, predicted }) => format!(
            "{former} handed over by score: with {} {} of {} is expected instead of {}",
            record.leader,
            measure.name(),
            describe(measure, predicted),
            describe(measure, present)
        ),
    }
}

/// Why a leader was looked for, for metrics and programs.
pub fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Start => "start",
        Cause::Silence => "silence",
        Cause::NoAnswer => "no_answer",
        Cause::LeaderRestarted => "leader_restarted",
        Cause::Released => "released",
        Cause::Transferred => "transferred",
        Cause::Moved => "moved",
        Cause::NotInstalled => "not_installed",
        Cause::SelectedGone => "selected_gone",
        Cause::Invited => "invited",
        Cause::Lost(Reason::Resigned) => "lost_resigned",
        Cause::Lost(Reason::Transferred) => "lost_transferred",
        Cause::Lost(Reason::Superseded) => "lost_superseded",
        Cause::Lost(Reason::Expired) => "lost_expired",
        Cause::Lost(Reason::NoQuorum) => "lost_no_quorum",
        Cause::Lost(Reason::Refused) => "lost_refused",
        Cause::Lost(Reason::NoVote) => "lost_no_vote",
        Cause::CutOff => "cut_off",
        Cause::Removed => "removed",
    }
}

/// How a selection ended, for programs.
fn ended_name(ended: SelectionEnd) -> &'static str {
    match ended {
        SelectionEnd::Everyone => "everyone",
        SelectionEnd::Unsuspected => "unsuspected",
        SelectionEnd::Timeout => "timeout",
        SelectionEnd::Votes => "votes",
    }
}

/// Why a leader was looked for, in words.
fn in_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Start => "this member was started",
        Cause::Silence => "the leader fell silent",
        Cause::NoAnswer => "the leader did not answer",
        Cause::LeaderRestarted => "the leader was restarted",
        Cause::Released => "the leader gave its term back",
        Cause::Transferred => "the leader was asked to hand over",
        Cause::Moved => "the leader handed over by score",
        Cause::NotInstalled => "who was selected did not come to lead in time",
        Cause::SelectedGone => "who was selected did not answer",
        Cause::Invited => "another member looked for a leader",
        Cause::Lost(Reason::Resigned) => "this member resigned",
        Cause::Lost(Reason::Transferred) => "this member handed over",
        Cause::Lost(Reason::Superseded) => "a higher term exists",
        Cause::Lost(Reason::Expired) => "this member's renewals were not answered in time",
        Cause::Lost(Reason::NoQuorum) => "no quorum promised this member the term",
        Cause::Lost(Reason::Refused) => "the others had promised that term to another member",
        Cause::Lost(Reason::NoVote) => "this member has no vote until all others have answered it",
        Cause::CutOff => "this member led, and did not hear a quorum any more",
        Cause::Removed => "the leader, or this member, was removed from the group",
    }
}
