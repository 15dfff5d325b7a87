//! The group's list of members, and what is asked of its leader from anywhere: to change the list, to resign, to hand over.
//!
//! Groups of the peer engine have a list: who votes, who learns, who observes, and where they are. On a database or on Kafka every
//! process that takes part is a member, and under [`Guarantee::Overlap`](crate::Guarantee::Overlap) the configuration says who they are: nothing there can be
//! changed here ([`NoChange::Unsupported`]).
//!
//! Any member can be asked. It sends the request on to the leader that it follows; that one carries it out in its present term, or not at
//! all ([`Election::request`](mandate_runtime::Election::request)).

use std::time::Duration;

use mandate_proto::election::NoTransfer;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Contact, MemberChange, NoChange, Roster, RosterId};
use mandate_proto::pole::member::LeaderRequest;
use mandate_runtime::{ChangeError, ElectionState, LeaderRequestError};
use tokio::time::{Instant, sleep, timeout};

use crate::error::Error;
use crate::member::Member;

/// How long a successor of a leader that is removed is waited for.
const SUCCESSION: Duration = Duration::from_secs(10);

/// How long a leader is waited for to be asked.
const LEADERLESS: Duration = Duration::from_secs(2);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A member was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// The list that a quorum has on disk now.
    pub list: RosterId,
    /// To whom it handed leadership over first, if it led.
    pub handed_over_to: Option<MemberId>,
}

impl Member {
    /// The list that this member goes by now, with the addresses that it is configured with where the list says none: that of a group that
    /// was never changed. [`Roster::NONE`] while it waits to be added to a group; `None` where there is no list.
    pub fn list(&self) -> Option<Roster> {
        let list = self.election().members().borrow().clone()?;
        Some(self.with_contacts(list))
    }

    /// Adds a member, which becomes a voter once it follows. It is started with [`Start::Join`](crate::Start::Join), has a certificate of the
    /// group, and its id is above all that members have had. Returns the number of the list once a quorum has it on disk: the change
    /// will not be undone then, and the new member learns.
    pub async fn add(&self, member: MemberId, contact: Contact) -> Result<RosterId, Error> {
        self.change(MemberChange::Add { member, contact, replaces: None }).await
    }

    /// The same, and removes `old` once the new member votes; if `old` leads by then, once leadership has moved.
    pub async fn replace(
        &self,
        old: MemberId,
        member: MemberId,
        contact: Contact,
    ) -> Result<RosterId, Error> {
        self.change(MemberChange::Add { member, contact, replaces: Some(old) }).await
    }

    /// Adds a member that follows and never votes.
    pub async fn observe(&self, member: MemberId, contact: Contact) -> Result<RosterId, Error> {
        self.change(MemberChange::Observe { member, contact }).await
    }

    /// Makes a member that learns a voter: what the leader does by itself as soon as it can.
    pub async fn promote(&self, member: MemberId) -> Result<RosterId, Error> {
        self.change(MemberChange::Promote { member }).await
    }

    /// Removes a member. If it leads, it hands leadership over first, to a voter that answers.
    pub async fn remove(&self, member: MemberId) -> Result<Removed, Error> {
        let change = MemberChange::Remove { member };
        match self.change(change.clone()).await {
            Err(Error::Request(error)) if error == refused(NoChange::Leads) => {}
            done => return Ok(Removed { list: done?, handed_over_to: None }),
        }
        let to = self.hand_over_from(member).await?;
        let removed = self.change_under_another(member, change).await;
        let list = removed.map_err(|error| {
            let error = Box::new(error);
            Error::HandedOver { member, to, error }
        })?;
        Ok(Removed { list, handed_over_to: Some(to) })
    }

    /// Makes a change of members, as this member's leader.
    pub async fn change(&self, change: MemberChange) -> Result<RosterId, Error> {
        self.check(&change)?;
        // It is answered with a list.
        Ok(self.request(LeaderRequest::Change(change)).await?.unwrap_or(RosterId::NONE))
    }

    /// Has the leader, whichever member that is, give leadership up. ([`Election::resign`](mandate_runtime::Election::resign) is this member's.)
    pub async fn resign_leader(&self) -> Result<(), Error> {
        self.request(LeaderRequest::Resign).await?;
        Ok(())
    }

    /// Has the leader, whichever member that is, hand leadership over.
    pub async fn transfer_leader(&self, to: MemberId) -> Result<(), Error> {
        self.request(LeaderRequest::Transfer { to }).await?;
        Ok(())
    }

    /// Asks the leader, and waits a while for one: there is none while one election follows another, or this member changes its part.
    async fn request(&self, request: LeaderRequest) -> Result<Option<RosterId>, Error> {
        let until = Instant::now() + LEADERLESS;
        loop {
            match self.election().request(request.clone()).await {
                Err(LeaderRequestError::NoLeader) if Instant::now() < until => sleep(PAUSE).await,
                done => return Ok(done?),
            }
        }
    }

    /// Has a leader that is to leave hand over to one of the others.
    async fn hand_over_from(&self, leader: MemberId) -> Result<MemberId, Error> {
        let status = self.election().status().await;
        let suspected = status.and_then(|status| status.suspected).unwrap_or_default();
        let list = self.list().unwrap_or(Roster::NONE);
        let others = list.voters().filter(|id| *id != leader && !suspected.contains(id));
        for to in others {
            match self.transfer_leader(to).await {
                Ok(()) => return Ok(to),
                Err(Error::Request(LeaderRequestError::NoTransfer(
                    NoTransfer::NoAnswer | NoTransfer::NoVote | NoTransfer::NotAMember,
                ))) => {}
                Err(error) => return Err(error),
            }
        }
        Err(LeaderRequestError::NoTransfer(NoTransfer::NoAnswer).into())
    }

    /// Makes a change as soon as another leads than `former`.
    async fn change_under_another(
        &self,
        former: MemberId,
        change: MemberChange,
    ) -> Result<RosterId, Error> {
        let until = Instant::now() + SUCCESSION;
        loop {
            let mut state = self.election().state();
            let leads = |state: &ElectionState| match state {
                ElectionState::Following { leader, .. } => *leader != former,
                state => state.mandate().is_some() && self.id() != former,
            };
            let _ = timeout(until.saturating_duration_since(Instant::now()), state.wait_for(leads))
                .await;
            match self.change(change.clone()).await {
                // Elections are under way, or the list of the next leader.
                Err(Error::Request(error)) if Instant::now() < until && passes(error) => {
                    sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    /// What can be said against a change without asking anybody.
    fn check(&self, change: &MemberChange) -> Result<(), Error> {
        if self.election().members().borrow().is_none() {
            return Err(refused(NoChange::Unsupported).into());
        }
        match change {
            MemberChange::Add { member, contact, .. }
            | MemberChange::Observe { member, contact }
                if !is_reachable(&contact.address) =>
            {
                Err(Error::Unreachable { member: *member, address: contact.address.clone() })
            }
            _ => Ok(()),
        }
    }

    #[cfg(feature = "peer")]
    fn with_contacts(&self, list: Roster) -> Roster {
        match self.peer() {
            Some(peer) => list.with_contacts(peer.contacts()),
            None => list,
        }
    }

    #[cfg(not(feature = "peer"))]
    fn with_contacts(&self, list: Roster) -> Roster {
        list
    }
}

fn refused(reason: NoChange) -> LeaderRequestError {
    LeaderRequestError::Change(ChangeError::Refused(reason))
}

/// Whether another attempt a moment later may succeed, and cannot do twice what the first did.
fn passes(error: LeaderRequestError) -> bool {
    let (leads, under_way) = (refused(NoChange::Leads), refused(NoChange::UnderWay));
    let is_early = matches!(
        error,
        LeaderRequestError::NoLeader | LeaderRequestError::NotInTerm | LeaderRequestError::Busy
    );
    is_early || error == leads || error == under_way || error == refused(NoChange::NoQuorum)
}

/// Whether others can be told to find a member there. Where there is no peer engine, there is no list either.
#[cfg(feature = "peer")]
fn is_reachable(address: &str) -> bool {
    mandate_peer::links::is_reachable(address)
}

#[cfg(not(feature = "peer"))]
fn is_reachable(_: &str) -> bool {
    true
}
