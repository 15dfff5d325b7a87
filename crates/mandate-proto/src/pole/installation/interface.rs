//! What goes into an installation and what comes out of it.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::MAX_LEASE;
use super::agreement::ConfigId;
use super::changing::{MemberChange, NoChange};
use super::founding::{Founder, Unsure};
use super::roster::{Contact, Roster, RosterId};
use crate::election;
use crate::identity::{Incarnation, MemberId, Term};
use crate::machine;

/// What a leader may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerGuarantee {
    /// One leader per term.
    Fenced,
    /// Besides, one at any instant.
    Leased {
        /// How long a promise binds; [`MAX_LEASE`] at most.
        lease: Duration,
        /// The drift allowance, in parts of a thousand of the lease: at least twice what a clock
        /// may be off.
        allowance_per_mille: u16,
    },
}

impl PeerGuarantee {
    /// How long a promise binds; zero without leases.
    pub fn lease(self) -> Duration {
        match self {
            PeerGuarantee::Fenced => Duration::ZERO,
            PeerGuarantee::Leased { lease, .. } => lease.min(MAX_LEASE),
        }
    }
}

impl From<PeerGuarantee> for election::Guarantee {
    fn from(guarantee: PeerGuarantee) -> Self {
        match guarantee {
            PeerGuarantee::Fenced => election::Guarantee::Fenced,
            PeerGuarantee::Leased { lease, .. } => election::Guarantee::Leased { lease },
        }
    }
}

/// How a member is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This member.
    pub me: MemberId,
    /// The members that the group is set up with: what a member goes by that has heard of no other roster.
    pub members: Vec<MemberId>,
    /// Where they are, as far as this member was told: a leader that changes the members has the others know it.
    pub contacts: BTreeMap<MemberId, Contact>,
    /// What leaders may rely on.
    pub guarantee: PeerGuarantee,
    /// How often a claim is repeated while promises are missing, and a question while reports are.
    pub retry: Duration,
    /// After how long a claim is given up that no quorum promises: longer than a round trip and a
    /// write take, and at least a lease.
    pub give_up: Duration,
    /// A rule that is left out, so that a harness can show that it notices; `None` in every real member.
    pub without: Option<Safeguard>,
}

impl Config {
    /// What all members must have alike, in a group that was never changed.
    pub fn seed_id(&self) -> ConfigId {
        ConfigId::of_roster(&self.seed(), self.guarantee)
    }

    /// The members that the group is set up with.
    pub(super) fn seed(&self) -> Roster {
        Roster::seed(self.members.iter().copied().chain([self.me]))
    }

    pub(super) fn keeps(&self, safeguard: Safeguard) -> bool {
        self.without != Some(safeguard)
    }
}

/// Rules that keep a group safe or alive, and that the simulator leaves out one at a time: each must be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Safeguard {
    /// Votes count only among members with the same [`ConfigId`].
    ConfigId,
    /// What a member promised itself binds its next incarnation.
    OwnPromise,
    /// Another incarnation of a leader is another claimant.
    Incarnation,
    /// A member that has recovered waits for the longest lease that was reported.
    LongestLease,
    /// A leader ends its own mandate before it frees those who promised it.
    EndBeforeRelease,
    /// A claim is given up some time after it was *sent*, and later each time that none found a quorum.
    GrowingPatience,
    /// A member whose disk went back to an older state is told so, and has no vote until it has recovered.
    WentBack,
    /// A leader that falls silent is suspected.
    Silence,
    /// A hint that a member is gone is a reason to ask it, and no proof.
    HintProbed,
    /// How long a probe waits for an answer goes by the round trip to the member that is probed.
    OwnRoundTrip,
    /// A member that is new has no vote until all members of its list have answered it once.
    FirstAnswers,
    /// A value is shown only with the leader and the term that it was published in.
    ValueOfTerm,
    /// What is asked of a leader is done in the term that it was asked of, or not at all.
    RequestOfTerm,
    /// A leader changes the members only once a quorum has its own roster: the present list, under its own term.
    OwnTermFirst,
    /// A leader makes a change only once a quorum has the one before it.
    OneChangeAtATime,
    /// A change is settled once a quorum has it on disk, and not as soon as the leader has.
    QuorumSettles,
    /// From a change on, the leader's promises count by the new list.
    NewQuorum,
    /// Who has a newer roster promises nothing by an older one.
    NewerRoster,
    /// Only promises of members of the roster count.
    OnlyVoters,
    /// In a group that was changed a member that has lost its disk never votes again under its id.
    LostForGood,
    /// A member that was added votes only with the disk that it joined with.
    SameDisk,
    /// A group is changed for the first time only if all its members speak a version that knows of that.
    EveryoneSpeaks,
    /// What a member says counts for nothing that does not know itself whether it is new or has lost its disk.
    UnsureKnowNothing,
    /// Who founded the group is written down with the first vote.
    FoundersWritten,
    /// A group that starts without a human waits for a lease before anyone votes.
    FirstLease,
    /// A first start counts answers only of members whose disks were known when they were asked.
    DisksKnown,
}

/// Why a member has no vote, and whose answers would give it one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVote {
    /// The reason for which it has none.
    pub why: WhyNoVote,
    /// Members whose answers are missing; for [`WhyNoVote::Disputed`], those that have another configuration, where that is known.
    pub awaits: Vec<MemberId>,
}

/// Why a member has no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WhyNoVote {
    /// It takes part for the first time, and not all members of its list have answered yet.
    New,
    /// It found no state, and is new or has lost its disk: nobody that has a vote has answered yet.
    Unsure,
    /// It found no state, and has lost its disk: another has a vote, and does not know it as one that the group was started with.
    NoState,
    /// Its disk was lost.
    Lost,
    /// The list of members, or the guarantee, was changed.
    Changed,
    /// Its disk went back to an older state.
    WentBack,
    /// It has promised nothing yet, and a member of its list has another configuration.
    Disputed,
    /// It has not been added to the group yet.
    Joining,
    /// It was added, and does not follow a leader yet.
    Learning,
    /// It was added to follow, and not to vote.
    Observing,
    /// It is not among the members of the group: it was removed, or never added.
    NotAMember,
    /// Its disk was lost, or it is new, and the group's members have been changed since the group was set up: it can come back as
    /// a new member only.
    Outdated,
}

impl fmt::Display for NoVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.awaits.iter().map(MemberId::to_string).collect();
        let ids = ids.join(", ");
        match self.why {
            // Each has answered, but too many have no disk to answer from.
            WhyNoVote::New | WhyNoVote::Lost | WhyNoVote::Changed | WhyNoVote::WentBack
                if ids.is_empty() =>
            {
                write!(f, "no vote: too many members have lost their disks")
            }
            WhyNoVote::Unsure => {
                write!(
                    f,
                    "no vote yet: there was no state, so this member is new or has lost its disk; "
                )?;
                match ids.is_empty() {
                    true => write!(f, "asking all others once more"),
                    false => write!(f, "waiting for an answer of {ids}"),
                }
            }
            WhyNoVote::NoState => {
                write!(
                    f,
                    "no vote: there was no state, and others have voted, so this member has lost its disk; "
                )?;
                match ids.is_empty() {
                    true => write!(f, "and too many others have lost theirs"),
                    false => write!(f, "waiting for what has been promised by {ids}"),
                }
            }
            WhyNoVote::New => write!(f, "no vote yet: waiting for a first answer of {ids}"),
            WhyNoVote::Lost | WhyNoVote::Changed | WhyNoVote::WentBack => {
                write!(f, "no vote: waiting for what has been promised by {ids}")
            }
            WhyNoVote::Disputed => {
                let who = if ids.is_empty() { "another member" } else { &ids };
                write!(f, "no vote: other members, or another guarantee, are configured at {who}")
            }
            WhyNoVote::Joining => write!(f, "no vote yet: waiting to be added to the group"),
            WhyNoVote::Learning => {
                write!(f, "no vote yet: waiting to follow the leader that has added it")
            }
            WhyNoVote::Observing => write!(f, "no vote: it observes"),
            WhyNoVote::NotAMember => write!(f, "no vote: this is not one of the group's members"),
            WhyNoVote::Outdated => write!(
                f,
                "no vote: it has no disk, and the group's members have been changed since the group was set up, so it cannot \
                 come back as who it was: replace it by a new member"
            ),
        }
    }
}

/// What a start needs from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What was found on disk.
    pub stored: Option<Stored>,
    /// Whether the member takes part for the first time: it writes that down ([`Promised::NOTHING`]), and unless it is alone,
    /// it has no vote until all others have answered. Without that, and without a disk, it has
    /// no vote until it has recovered.
    pub is_new: bool,
    /// Whether the group's members or guarantee were changed since what is on disk was written, or this member is
    /// new in such a group. It has no vote then until all others have told it what they promised: quorums of the
    /// old list and of the new one need not share a member.
    pub is_changed: bool,
    /// Whether the member is to be added to a group that runs already, and has drawn its id for that: nobody has ever had that
    /// id. It knows of no roster, and waits for one that names it. Counts at the first start only.
    pub joins: bool,
    /// Whether a member without a disk finds out by itself whether it is new, if nothing else is said of it here; and then, for a group
    /// that starts so for the first time, the term that all of its terms are above: one that no former life of
    /// the group can have reached, such as the seconds since 1970.
    pub auto: Option<Term>,
    /// A random number that no other incarnation of this member has.
    pub lifetime: Incarnation,
}

impl Boot {
    /// The roster that a member goes by at first.
    pub fn roster(&self, config: &Config) -> Roster {
        let stored = self.stored.as_ref().map(|stored| stored.roster.clone());
        match stored {
            Some(Some(roster)) => roster,
            None if self.joins => Roster::NONE,
            Some(None) | None => config.seed(),
        }
    }
}

/// What a member keeps on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stored {
    /// What it has promised.
    #[serde(flatten)]
    pub promised: Promised,
    /// Who the members are, in a group that was changed since it was set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<Roster>,
    /// The incarnation in which it joined a group that was there before it: drawn once, and not known after the loss of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Incarnation>,
    /// It found no state, and does not know yet whether it is new or has lost its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsure: Option<Unsure>,
    /// With whom the group was started, if that was without a human.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub founders: Vec<Founder>,
}

impl From<Promised> for Stored {
    fn from(promised: Promised) -> Self {
        Stored { promised, roster: None, joined: None, unsure: None, founders: Vec::new() }
    }
}

/// A promise, as it is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Promised {
    /// For this term,
    pub term: Term,
    /// to follow this leader (`None`: nobody; a member that is new, was admitted or has recovered),
    pub to: Option<MemberId>,
    /// in this incarnation of it,
    pub life: Incarnation,
    /// and nobody else for this long.
    pub lease: Duration,
    /// It was not made but recovered, after the disk was lost: it binds towards everyone, the
    /// leader it names included, since another lease may have been granted before the loss.
    pub recovered: bool,
    /// The member promised this to itself, and has ended in good order since: nothing acts on it any more.
    #[serde(default)]
    pub released: bool,
}

impl Promised {
    /// Nothing yet; on a disk it says that the member is new, and that not all others have answered it.
    pub const NOTHING: Promised = Promised {
        term: Term::NONE,
        to: None,
        life: Incarnation::new(0),
        lease: Duration::ZERO,
        recovered: false,
        released: false,
    };

    /// Nothing yet, by a member that all others have answered: it has a vote.
    pub const ADMITTED: Promised = Promised { recovered: true, ..Promised::NOTHING };

    /// Whether this is what `leader` was promised for `term`.
    pub fn is_to(&self, leader: MemberId, term: Term) -> bool {
        self.term == term && self.to == Some(leader)
    }
}

/// Names a claim. The incarnation tells claims apart that a member made before and after it lost its disk:
/// terms alone might repeat then, and an old answer or release must not be taken for a new one. The digest
/// is in it, and so in every promise: who answers has compared it with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimId {
    /// The claimant's incarnation.
    pub life: Incarnation,
    /// Rises with every claim of that incarnation.
    pub count: u64,
    /// Among which members, and for which guarantee, the claimant counts votes.
    pub config: ConfigId,
}

/// A claim that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Freed {
    /// The term.
    pub term: Term,
    /// Who gave it back.
    pub by: MemberId,
    /// Its incarnation.
    pub life: Incarnation,
}

/// What members send each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Promise me this term, or renew that promise.
    Claim {
        /// The term.
        term: Term,
        /// Which claim this is; answered with it.
        id: ClaimId,
        /// How long the claimant will rely on the answer; zero without leases.
        lease: Duration,
        /// A claim that was given back, as far as the claimant has heard: who is still bound by it
        /// is free. So a successor need not wait until the same news has reached everyone.
        freed: Option<Freed>,
    },
    /// Promised, or renewed.
    Promise {
        /// The term.
        term: Term,
        /// Of the claim.
        id: ClaimId,
    },
    /// The same of a member that does not vote: it binds its sender and counts for nothing, until the leader makes it a voter.
    Follow {
        /// The term.
        term: Term,
        /// Of the claim.
        id: ClaimId,
        /// The incarnation in which the sender joined.
        joined: Incarnation,
    },
    /// Not promised.
    Refuse {
        /// What was claimed.
        term: Term,
        /// The highest term that the sender has promised.
        promised: Term,
    },
    /// The leader of this term has given it back.
    Release {
        /// The term.
        term: Term,
        /// The incarnation that claimed it.
        life: Incarnation,
        /// Who is to claim the next, if the leader chose one.
        next: Option<MemberId>,
    },
    /// I have no vote, since I am new, have lost my disk, or the group was changed: what have you promised?
    Ask {
        /// The incarnation that asks; answered with it.
        life: Incarnation,
        /// For how many-th time; answered with it.
        round: u32,
        /// Who has another does not answer.
        config: ConfigId,
    },
    /// This.
    Report {
        /// Of the question.
        life: Incarnation,
        /// Of the question.
        round: u32,
        /// The incarnation that answers.
        by: Incarnation,
        /// What the sender has promised; `None` if it has lost its disk as well.
        promised: Option<Promised>,
    },
    /// Your disk went back: you had promised this term before, and say that you have not.
    Behind {
        /// The term.
        term: Term,
    },
    /// These are the members that I know of: sent to a member that goes by another roster, and to everyone when it changes.
    Roster {
        /// The members.
        roster: Roster,
        /// What the sender counts votes by.
        config: ConfigId,
    },
    /// An answer to [`Message::Ask`]: I have never voted with this disk, and do not know whether I had another.
    Unsure {
        /// Of the question.
        life: Incarnation,
        /// Of the question.
        round: u32,
        /// The disk.
        unsure: Unsure,
        /// How long the sender's promises bind; zero without leases.
        lease: Duration,
    },
    /// An answer to [`Message::Ask`], of a member with a vote in a group that was started without a human.
    Founded {
        /// Of the question.
        life: Incarnation,
        /// Of the question.
        round: u32,
        /// The incarnation that answers.
        by: Incarnation,
        /// What the sender has promised.
        promised: Promised,
        /// With whom the group was started, [`MAX_MEMBERS`](super::MAX_MEMBERS) at most.
        founders: Vec<Founder>,
    },
}

/// What the machine can be told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// We were selected in this epoch: claim a term no lower.
    Claim {
        /// The epoch.
        epoch: Term,
    },
    /// Give the mandate back, or stop claiming.
    Resign,
    /// The same, and write down that nothing acts on it any more: the process ends in good order, and its
    /// next incarnation need not wait for a lease.
    Stop,
    /// Give it back, and have this member claim the next term.
    Transfer {
        /// The successor.
        to: MemberId,
    },
    /// Change the members. Answered by [`Event::RosterChanged`] and then [`Event::Settled`], or by [`Event::NotChanged`].
    Change(MemberChange),
    /// A message arrived.
    Received {
        /// Who sent it.
        from: MemberId,
        /// What it says.
        message: Message,
    },
    /// This member can be reached now: if it is to be asked anything, at once.
    Reached {
        /// The member that can be reached.
        member: MemberId,
    },
}

/// What the application is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// We hold this term.
    Installed {
        /// The term.
        term: Term,
    },
    /// We do not hold it any more, or did not get it.
    Lost {
        /// The term.
        term: Term,
        /// The reason for which it was lost, or not had.
        reason: Reason,
    },
    /// We have promised to follow another.
    Promised {
        /// Whom.
        to: MemberId,
        /// In which term.
        term: Term,
    },
    /// The leader whom we had promised has given its term back.
    Released {
        /// The term.
        term: Term,
        /// Who is to claim the next, if the leader chose one.
        next: Option<MemberId>,
    },
    /// We had no vote, and have one: all others have answered.
    Recovered {
        /// No term up to this one will be promised.
        term: Term,
    },
    /// Our disk went back to an older state: another remembers a higher term that we have promised. We have no
    /// vote until we have recovered.
    WentBack {
        /// Who remembers.
        by: MemberId,
        /// What we had promised.
        term: Term,
    },
    /// A member that we count among ours counts votes among other members, or for another guarantee: it
    /// is refused.
    Differs {
        /// The member that is refused.
        member: MemberId,
        /// What it says.
        config: ConfigId,
    },
    /// We go by another roster from now on.
    RosterChanged {
        /// The members.
        roster: Roster,
    },
    /// We lead, and a quorum has the present roster on disk: the change will not be undone.
    Settled {
        /// Which roster it is.
        roster: RosterId,
    },
    /// The members are as they were.
    NotChanged {
        /// What was asked for.
        change: MemberChange,
        /// Why that was not done.
        reason: NoChange,
    },
}

/// Why a mandate ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It was given back.
    Resigned,
    /// It was given back for another to take over.
    Transferred,
    /// A higher term exists.
    Superseded,
    /// Renewals were not answered in time.
    Expired,
    /// No quorum promised it in time.
    NoQuorum,
    /// So many have promised that term to another that no quorum is left for it.
    Refused,
    /// It was not even claimed: we have no vote yet, or have lost it just now.
    NoVote,
}

/// What the machine asks for.
pub type Effect = machine::Effect<Message, Stored, Event>;
