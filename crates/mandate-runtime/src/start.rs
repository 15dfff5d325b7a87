//! Starting a member: what it is set up with, what it must not forget, and whether the two fit.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mandate_proto::election::quorum;
use mandate_proto::identity::{Incarnation, MemberId, Term};
use mandate_proto::machine::Effects;
use mandate_proto::nfd_l;
use mandate_proto::nfd_l::NfdL;
use mandate_proto::pole::installation::{self, Roster, RosterId, Stored};
use mandate_proto::pole::member::{self, MAX_SERVED, Member};
use mandate_proto::time::WallTime;
use mandate_proto::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::driver::Driver;
use crate::durable::{Agreed, DurableError, DurableFile, FIRST_FORM, FORM_WITH_ROSTER, Owner};
use crate::election::Election;
use crate::engine_side::EngineSide;
use crate::peer::PeerBackend;
use crate::protocol::Protocol;
use crate::requests;
use crate::transport::{Inbound, Transport};

/// What a member starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The state on its disk, which must be there.
    Stored,
    /// It takes part for the first time; its disk must be empty. Unless it is alone, it has no vote until all members of its
    /// list have answered it once: the first start of a group needs all of its members.
    New,
    /// Its disk was lost: it has no vote until all others have told it what they promised.
    Lost,
    /// The list of members, or the guarantee, was changed while all members were stopped, or this member is new in such a
    /// group. It has no vote until all others of the new list have told it what they promised. Also if the list is the one on
    /// its disk: it may have been another in between, while this member was left out, and then the others know higher terms.
    Changed,
    /// It is to be added to a group that runs: nobody has ever had its id. With an empty disk it waits for a leader to add it
    /// ([`Election::change_members`]), whatever list it is configured with; with a state it is started as with
    /// [`Start::Stored`], so that whatever starts it need not be changed afterwards.
    Join,
    /// It finds out by itself whether it takes part for the first time: with a state on its disk it is started as with
    /// [`Start::Stored`]. Without one it has no vote until all members of its list have said that they do not know of any vote either, or one
    /// that votes knows this disk as one that the group was started with; any other member without a state has lost its disk, as with
    /// [`Start::Lost`]. A group that starts so for the first time waits for a lease, and its terms begin above the seconds since 1970.
    Auto,
}

/// How a member is set up.
#[derive(Debug)]
pub struct Setup {
    /// The protocol.
    pub protocol: Protocol,
    /// The group's name.
    pub group: String,
    /// Where its state is kept.
    pub state: std::path::PathBuf,
    /// What it starts from.
    pub start: Start,
}

/// Why a member cannot start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The state cannot be used.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// There is none.
    #[error(
        "there is no state at {0}. If this member takes part for the first time, start it with `Start::New`; if \
         its disk was lost, with `Start::Lost`: it will ask the others what it may have promised; if it is to be added to a \
         group that runs, with `Start::Join`. It finds out by itself which of the first two it is with `Start::Auto`"
    )]
    NoState(std::path::PathBuf),
    /// There is one, and none was expected.
    #[error(
        "there is a state at {0} already: this member has taken part before. Start it with \
         `Start::Stored`; if it is to forget everything, and only then, move that file away"
    )]
    HasState(std::path::PathBuf),
    /// The group was another when the state was written.
    #[error(
        "{path} was written with {before}, and now the configuration says {now}. Members that count votes among \
         different members elect two leaders. Correct the configuration. To change the members, ask the leader while the group \
         runs; or, as with the guarantee: stop all members, \
         wait for a lease, edit the configuration of all, and start all of them with `Start::Changed`"
    )]
    Differs {
        /// The state.
        path: std::path::PathBuf,
        /// What it was written with.
        before: Box<Agreed>,
        /// What is configured.
        now: Box<Agreed>,
    },
    /// A change of members after which nobody may remember what was promised.
    #[error(
        "of the members {before} only {kept} are in the new list, and {needed} are needed, so that one of them knows the \
         highest term. Change the list in several steps"
    )]
    TooFewKept {
        /// The old list.
        before: String,
        /// How many of them are kept.
        kept: usize,
        /// How many must be.
        needed: usize,
    },
    /// A change of the configuration where that does not say who the members are.
    #[error(
        "the members of this group were changed while it ran: {path} says that they are {members}, whatever the configuration \
         says. Start it with `Start::Stored`, and have the leader change the members. The guarantee of such a group \
         cannot be changed"
    )]
    ChangedBefore {
        /// The state.
        path: std::path::PathBuf,
        /// The members.
        members: String,
    },
    /// A process that is to be added, with the state of a member that the group was set up with.
    #[error(
        "there is a state at {0} already, of a member that was not added to its group: start it with `Start::Stored`. To \
         add a new member, give it another id and an empty state"
    )]
    DidNotJoin(std::path::PathBuf),
    /// A process that is to be added, where nobody votes.
    #[error(
        "under the guarantee overlap nobody votes, and nobody is added by the others: give all members the new list, and start \
         this one with `Start::New`"
    )]
    NothingToJoin,
    /// A lost disk in a group of one.
    #[error(
        "this group has one member, so there is nobody to ask what the lost disk held. Start it with `Start::New`: terms begin \
         at 1 again, so whatever refuses lower terms must be told to forget the old ones. But if it was added to a group that \
         runs, it cannot come back: have the leader replace it by a new member"
    )]
    NobodyToAsk,
    /// It is held back to a version of the protocol that does not know what its group does.
    #[error(
        "the configuration holds this member back to protocol version {speaks}, and a member that was added to its group, or is to \
         be, whose group was changed while it ran, or that finds out by itself whether it is new, speaks version {needed} or a newer \
         one. Remove `protocol` from the configuration"
    )]
    HeldBack {
        /// The newest version that it would speak.
        speaks: u32,
        /// The oldest that its group speaks.
        needed: u32,
    },
    /// A member that is to find out by itself whether it is new, and has nobody to ask.
    #[error(
        "there is no state at {0}, and this group has one member, so there is nobody to ask whether it is new or has lost its \
         disk. Start it with `Start::New` the first time"
    )]
    NobodyToTell(std::path::PathBuf),
    /// The system gave no random number.
    #[error("the system gave no random number: {0}")]
    Random(getrandom::Error),
}

impl Election {
    /// Starts a member on the current tokio runtime.
    pub fn start(
        setup: Setup,
        transport: Arc<dyn Transport>,
        inbound: mpsc::Receiver<Inbound>,
    ) -> Result<Self, StartError> {
        Ok(Election::prepare(setup)?.start(transport, inbound))
    }

    /// Opens and locks a member's state, and starts nothing yet: for engines whose links show whose state it is.
    pub fn prepare(setup: Setup) -> Result<Prepared, StartError> {
        let lifetime = Incarnation::new(getrandom::u64().map_err(StartError::Random)?);
        let me = setup.protocol.me();
        let others = setup.protocol.members().iter().copied().filter(|id| *id != me).collect();
        let lease = setup.protocol.guarantee().lease();
        let (durable, start, machine) = match &setup.protocol {
            Protocol::Pole(config) => {
                if setup.start == Start::Lost && config.members().len() == 1 {
                    return Err(StartError::NobodyToAsk);
                }
                let (durable, stored) = open::<Stored>(&setup)?;
                let is_alone = config.members().len() == 1;
                if setup.start == Start::Auto && is_alone && stored.is_none() {
                    return Err(StartError::NobodyToTell(setup.state));
                }
                let start = effective(setup.start, stored.as_ref());
                let boot = installation::Boot {
                    stored,
                    is_new: setup.start == Start::New,
                    is_changed: setup.start == Start::Changed,
                    joins: setup.start == Start::Join,
                    auto: (setup.start == Start::Auto).then(|| floor(wall_time())),
                    lifetime,
                };
                let (speaks, needed) = (config.speaks(), wire::CHANGES_SINCE);
                let is_changed = config.first_roster(&boot).id() != RosterId::SEED;
                if (is_changed || start == Start::Auto) && speaks < needed {
                    return Err(StartError::HeldBack { speaks, needed });
                }
                (durable, start, Booted::Pole(Box::new((config.clone(), boot))))
            }
            Protocol::NfdL { .. } if setup.start == Start::Join => {
                return Err(StartError::NothingToJoin);
            }
            Protocol::NfdL { config, .. } => {
                let (durable, stored) = open(&setup)?;
                let boot = nfd_l::Boot { stored, wall: wall_time(), lifetime };
                (durable, setup.start, Booted::NfdL(Box::new((*config, boot))))
            }
        };
        Ok(Prepared { durable, start, me, others, lease, machine })
    }
}

/// A member whose state is open and locked, and that does not run yet.
#[derive(Debug)]
pub struct Prepared {
    durable: Arc<DurableFile>,
    start: Start,
    me: MemberId,
    others: Vec<MemberId>,
    lease: Option<Duration>,
    machine: Booted,
}

/// What a machine starts from.
#[derive(Debug)]
enum Booted {
    Pole(Box<(member::Config, installation::Boot)>),
    NfdL(Box<(nfd_l::Config, nfd_l::Boot)>),
}

impl Prepared {
    /// The random number of the state's file; see [`DurableFile::disk`].
    pub fn disk(&self) -> u64 {
        self.durable.disk()
    }

    /// What it starts from: [`Start::Auto`] only as long as it does not know whether it is new.
    pub fn start_from(&self) -> Start {
        self.start
    }

    /// The list of members that the member goes by at first; `None` where members do not come and go.
    pub fn roster(&self) -> Option<Roster> {
        match &self.machine {
            Booted::Pole(booted) => Some(booted.0.first_roster(&booted.1)),
            Booted::NfdL(_) => None,
        }
    }

    /// Starts the member on the current tokio runtime.
    pub fn start(
        self,
        transport: Arc<dyn Transport>,
        inbound: mpsc::Receiver<Inbound>,
    ) -> Election {
        let Prepared { durable, me, others, lease, machine, .. } = self;
        let (mut election, mut side) = EngineSide::open(lease);
        election.durable = Arc::downgrade(&durable);
        let now = side.now();
        let (wanted, asked) = mpsc::channel(MAX_SERVED);
        let backend = PeerBackend::new(durable, transport, (me, others), inbound, wanted, now);
        let (commands, gate) = (election.end.commands.downgrade(), election.end.gate.clone());
        tokio::spawn(requests::serve(asked, commands, gate));
        match machine {
            Booted::Pole(booted) => {
                let (config, boot) = *booted;
                let mut effects = Effects::new();
                let machine = Member::start(config, boot, now, &mut effects);
                side.go_by(machine.roster().clone());
                tokio::spawn(Driver::new(machine, effects, side, backend).run());
            }
            Booted::NfdL(booted) => {
                let (config, boot) = *booted;
                let mut effects = Effects::new();
                let machine = NfdL::start(config, boot, now, &mut effects);
                tokio::spawn(Driver::new(machine, effects, side, backend).run());
            }
        }
        election
    }
}

/// What a member starts from, where that is left to its state: it does not know whether it is new, or it does.
fn effective(start: Start, stored: Option<&Stored>) -> Start {
    let is_unsure = stored.is_none_or(|stored| stored.unsure.is_some());
    match start {
        Start::Stored | Start::Auto if is_unsure => Start::Auto,
        Start::Auto => Start::Stored,
        start => start,
    }
}

/// The term that all terms are above in a group that starts for the first time without a human: the seconds since 1970, so that
/// terms go on rising if it was no first start and the group had fewer than one election a second. Bounded by what a member
/// believes that has heard of no term yet.
fn floor(wall: WallTime) -> Term {
    let seconds = Term::new(wall.as_unix_nanos() / 1_000_000_000);
    if seconds.is_plausible_after(Term::NONE) { seconds } else { Term::new(u32::MAX.into()) }
}

/// Opens what the member must not forget, and sees whether that is as it should be.
fn open<T: DeserializeOwned + Kept>(
    setup: &Setup,
) -> Result<(Arc<DurableFile>, Option<T>), StartError> {
    let owner = Owner { group: setup.group.clone(), member: setup.protocol.me().to_string() };
    let (mut durable, stored) = DurableFile::open::<T>(&setup.state, owner)?;
    match (setup.start, stored.is_some()) {
        (Start::Stored, false) => return Err(StartError::NoState(setup.state.clone())),
        (Start::New | Start::Lost, true) => {
            return Err(StartError::HasState(setup.state.clone()));
        }
        _ => {}
    }
    if setup.start == Start::Join && stored.as_ref().is_some_and(|stored| !stored.has_joined()) {
        return Err(StartError::DidNotJoin(setup.state.clone()));
    }
    let now = setup.protocol.agreed();
    match stored.as_ref().and_then(Kept::roster) {
        Some(roster) => compare_changed(setup, durable.agreed(), now.as_ref(), roster)?,
        None => compare(setup, durable.agreed(), now.as_ref())?,
    }
    if setup.start == Start::Changed && durable.agreed().is_some_and(|it| Some(it) == now.as_ref())
    {
        tracing::warn!(
            "this member was started with `Start::Changed` (--members-changed), and the state was written with the same members and guarantee. It \
             waits for all others as after a change: start it with `Start::Stored` from now on"
        );
    }
    let is_unsaid = durable.agreed().is_none() && now.is_some();
    durable.agree(now);
    let is_plain = matches!(setup.start, Start::Stored | Start::Auto);
    // A state of an earlier release says nothing of it yet.
    if let Some(stored) = stored.as_ref().filter(|_| is_unsaid && is_plain) {
        durable.store_in(stored.form(), stored)?;
    }
    Ok((Arc::new(durable), stored))
}

/// What is kept on disk, as far as it says who the members are.
pub(crate) trait Kept: Serialize {
    /// The form that it is written in: the lowest that says all of it.
    fn form(&self) -> u32 {
        FIRST_FORM
    }

    /// The list, in a group that was changed since it was set up.
    fn roster(&self) -> Option<&Roster> {
        None
    }

    /// Whether this is the state of a member that was added, or is to be.
    fn has_joined(&self) -> bool {
        false
    }
}

impl Kept for Stored {
    fn form(&self) -> u32 {
        match self {
            Stored { roster: None, joined: None, unsure: None, founders, .. }
                if founders.is_empty() =>
            {
                FIRST_FORM
            }
            _ => FORM_WITH_ROSTER,
        }
    }

    fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    fn has_joined(&self) -> bool {
        self.joined.is_some()
    }
}

impl Kept for nfd_l::Stable {}

/// Whether a member may go on with this configuration in a group that was changed since it was set up: of the configuration only
/// the guarantee counts then, and the list on disk says who the members are.
fn compare_changed(
    setup: &Setup,
    before: Option<&Agreed>,
    now: Option<&Agreed>,
    roster: &Roster,
) -> Result<(), StartError> {
    let path = &setup.state;
    if setup.start == Start::Changed {
        let (path, members) = (path.clone(), roster.to_string());
        return Err(StartError::ChangedBefore { path, members });
    }
    let (Some(before), Some(now)) = (before, now) else { return Ok(()) };
    if before.guarantee != now.guarantee {
        // Of the lists nothing is to be said here.
        let now = Agreed { members: before.members.clone(), ..now.clone() };
        let (before, now) = (Box::new(before.clone()), Box::new(now));
        return Err(StartError::Differs { path: path.clone(), before, now });
    }
    let members: Vec<_> = roster.members().map(|id| id.to_string()).collect();
    // Who waits to be added knows of no list yet.
    if roster.id() != RosterId::NONE && members != now.members {
        tracing::warn!(
            "the members of this group were changed while it ran: they are {roster}, as {path} says. The configuration names \
             {configured}, and is not obeyed: it is what the group was set up with",
            path = path.display(),
            configured = now.members.join(" ")
        );
    }
    Ok(())
}

/// Whether a member may go on with this configuration after that one.
fn compare(setup: &Setup, before: Option<&Agreed>, now: Option<&Agreed>) -> Result<(), StartError> {
    let (Some(before), Some(now)) = (before, now) else { return Ok(()) };
    if setup.start != Start::Changed {
        return match before == now {
            true => Ok(()),
            false => Err(StartError::Differs {
                path: setup.state.clone(),
                before: Box::new(before.clone()),
                now: Box::new(now.clone()),
            }),
        };
    }
    // Enough of the old ones that every old quorum has one of them.
    let size = before.members.len();
    let needed = size - quorum(size) + 1;
    let kept = before.members.iter().filter(|id| now.members.contains(id)).count();
    if kept < needed {
        return Err(StartError::TooFewKept { before: before.members.join(" "), kept, needed });
    }
    Ok(())
}

fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use mandate_proto::pole::installation::{Founder, Unsure};

    use super::*;

    #[test]
    fn a_state_says_whether_its_member_is_unsure_and_one_of_an_earlier_release_says_that_it_is_not()
    {
        let json = r#"{"term":7,"to":1,"life":9,"lease":{"secs":1,"nanos":0},"recovered":false}"#;
        let stored: Stored = serde_json::from_str(json).unwrap();
        assert_eq!((stored.unsure, stored.founders.len()), (None, 0));
        assert_eq!(effective(Start::Auto, Some(&stored)), Start::Stored);
        let unsure = Unsure { first: Incarnation::new(u64::MAX), floor: Term::new(5) };
        let founders = vec![Founder { member: MemberId::new(3), first: unsure.first }];
        let stored = Stored { unsure: Some(unsure), founders, ..stored };
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(serde_json::from_str::<Stored>(&text).unwrap(), stored);
        // Also where the line was taken out of its configuration meanwhile.
        for start in [Start::Auto, Start::Stored] {
            assert_eq!(effective(start, Some(&stored)), Start::Auto);
        }
        assert_eq!(effective(Start::Lost, None), Start::Lost);
    }

    #[test]
    fn first_terms_are_the_seconds_since_1970_as_long_as_everyone_believes_them() {
        assert_eq!(
            floor(WallTime::from_unix_nanos(1_790_000_000_999_999_999)).get(),
            1_790_000_000
        );
        let late = floor(WallTime::from_unix_nanos(u64::MAX));
        assert!(late.is_plausible_after(Term::NONE), "{late}");
    }
}
