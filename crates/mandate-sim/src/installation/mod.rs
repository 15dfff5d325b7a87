//! The installation of leaders under simulation: claims at random, faults, and what must hold of
//! terms and mandates.

use core::time::Duration;

use mandate_proto::identity::{MemberId, Term};
use mandate_proto::machine::Effects;
use mandate_proto::pole::installation::{
    self, Config, Effect, Event, Input, Installation, Message, Promised, Safeguard, Stored,
};
use mandate_proto::time::Instant;

use crate::first_start::floor;
use crate::mutant::mutants;
use crate::subject::{self, Subject};

pub(crate) mod invariants;
mod mutated;
mod scenario;

pub use scenario::{Options, run};

/// How a simulated member is set up.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The machine's own configuration.
    pub config: Config,
    /// What an operator makes of it, if one does.
    pub edited: Option<Config>,
    /// Whether it is a process that is to be added to the group.
    pub joins: bool,
    /// Whether it finds out by itself whether it is new.
    pub is_auto: bool,
    /// A bug put in on purpose.
    pub mutant: Option<Mutant>,
}

mutants! {
    PromiseNotDurable, "promise-not-durable", "installation",
        "promises are not on disk after a crash";
    LeaseNotWaitedOut, "lease-not-waited-out", "installation",
        "a restarted member promises at once";
    CachedCheck, "cached-check", "installation",
        "leadership is a cached flag, not a deadline compared at the call";
    DeadlineFromReply, "deadline-from-reply", "installation",
        "a leader counts its deadline from the answer, not from when it asked";
    VoteWithoutDisk, "vote-without-disk", "installation",
        "a member that has lost its disk votes at once";
    NoAllowance, "no-allowance", "installation", "leaders allow for no drift of clocks";
    ConfigIgnored, "config-ignored", "installation",
        "votes count whatever list of members, or guarantee, their sender has";
    OwnPromiseForgotten, "own-promise-forgotten", "installation",
        "a restarted leader does not wait for what acts on its former mandate";
    IncarnationIgnored, "incarnation-ignored", "installation",
        "another incarnation of a leader passes for the one that was promised";
    LeaseOfHighest, "lease-of-highest", "installation",
        "after the loss of its disk a member waits for the lease of the highest term, not for the longest";
    FreedBeforeEnded, "freed-before-ended", "installation",
        "a leader that hands over frees the others before its own mandate has ended";
    AnsweredBeforeWritten, "answered-before-written", "installation",
        "what is to be written is answered before it is on disk";
    NewVotesAtOnce, "new-votes-at-once", "installation",
        "a new member votes before all of its list have answered it";
    ChangeBeforeOwnTerm, "change-before-own-term", "installation-changes",
        "a leader changes the members before a quorum has the present list under its own term";
    OverlappingChanges, "overlapping-changes", "installation-changes",
        "a leader makes a change before the last one is settled";
    SettledAlone, "settled-alone", "installation-changes",
        "a change is settled as soon as the leader has it on disk";
    OldQuorumOnly, "old-quorum-only", "installation-changes",
        "after a change the leader goes on counting votes by the old list";
    RemovedStillVotes, "removed-still-votes", "installation-changes",
        "who has a newer list promises claims by an older one, so a member that was removed finds votes";
    LearnersCount, "learners-count", "installation-changes",
        "promises of members that do not vote count";
    LostDiskVotesAgain, "lost-disk-votes-again", "installation-changes",
        "in a group that was changed a member that has lost its disk gets its vote back";
    JoinsAgain, "joins-again", "installation-changes",
        "a member that was added, and has lost its disk, is taken for the one that joined";
    UnsureCount, "unsure-count", "installation-auto",
        "what members say counts that do not know whether they have lost their disks";
    FoundersForgotten, "founders-forgotten", "installation-auto",
        "who founded the group is not written down";
    FirstLeaseSkipped, "first-lease-skipped", "installation-auto",
        "a group that starts without a human does not wait for leases of a former life";
    FirstTermLow, "first-term-low", "installation-auto",
        "the terms of a group that starts without a human begin at 1";
}

impl Mutant {
    /// The rule that it leaves out of the machine, if it is one of the machine's.
    fn without(self) -> Option<Safeguard> {
        match self {
            Mutant::ConfigIgnored => Some(Safeguard::ConfigId),
            Mutant::OwnPromiseForgotten => Some(Safeguard::OwnPromise),
            Mutant::IncarnationIgnored => Some(Safeguard::Incarnation),
            Mutant::LeaseOfHighest => Some(Safeguard::LongestLease),
            Mutant::NewVotesAtOnce => Some(Safeguard::FirstAnswers),
            Mutant::FreedBeforeEnded => Some(Safeguard::EndBeforeRelease),
            Mutant::ChangeBeforeOwnTerm => Some(Safeguard::OwnTermFirst),
            Mutant::OverlappingChanges => Some(Safeguard::OneChangeAtATime),
            Mutant::SettledAlone => Some(Safeguard::QuorumSettles),
            Mutant::OldQuorumOnly => Some(Safeguard::NewQuorum),
            Mutant::RemovedStillVotes => Some(Safeguard::NewerRoster),
            Mutant::LearnersCount => Some(Safeguard::OnlyVoters),
            Mutant::LostDiskVotesAgain => Some(Safeguard::LostForGood),
            Mutant::JoinsAgain => Some(Safeguard::SameDisk),
            Mutant::UnsureCount => Some(Safeguard::UnsureKnowNothing),
            Mutant::FoundersForgotten => Some(Safeguard::FoundersWritten),
            Mutant::FirstLeaseSkipped => Some(Safeguard::FirstLease),
            _ => None,
        }
    }
}

impl subject::Boot<Stored> {
    /// Which configuration a member goes by, and what it starts with.
    pub(crate) fn with<'c, C>(
        self,
        config: &'c C,
        edited: Option<&'c C>,
    ) -> (&'c C, installation::Boot) {
        let config = edited.filter(|_| self.is_edited).unwrap_or(config);
        let subject::Boot { stored, is_new, is_changed, lifetime, .. } = self;
        (
            config,
            installation::Boot { stored, is_new, is_changed, joins: false, auto: None, lifetime },
        )
    }
}

impl Subject for Installation {
    type Message = Message;
    type Stable = Stored;
    type Event = Event;
    type Config = MemberConfig;

    fn boot(
        setup: &MemberConfig,
        boot: subject::Boot<Stored>,
        now: Instant,
        effects: &mut Effects<Effect>,
    ) -> Self {
        let floor = match setup.mutant {
            Some(Mutant::FirstTermLow) => Term::NONE,
            _ => floor(boot.wall),
        };
        let (config, mut start) = boot.with(&setup.config, setup.edited.as_ref());
        start.joins = setup.joins;
        if setup.is_auto {
            start.auto = Some(floor);
            start.is_new = false;
        }
        match setup.mutant {
            Some(Mutant::PromiseNotDurable) => {
                start.stored = start.stored.map(|_| Promised::ADMITTED.into());
            }
            Some(Mutant::LeaseNotWaitedOut) => {
                let forget = |stored: &mut Stored| stored.promised.lease = Duration::ZERO;
                start.stored.as_mut().map(forget);
            }
            Some(Mutant::VoteWithoutDisk) if !start.is_new => {
                start.stored = start.stored.or(Some(Promised::ADMITTED.into()));
            }
            // The others act where the group is set up, where the mandate is asked for, or in the machine.
            _ => {}
        }
        Installation::start(config.clone(), start, now, effects)
    }

    fn received(from: MemberId, message: Message) -> Input {
        Input::Received { from, message }
    }
}
