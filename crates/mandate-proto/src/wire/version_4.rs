//! Messages as version 4 has them: the same, but for groups whose members never change. A configuration is a digest alone there,
//! nobody learns, and no list is sent.
//!
//! Written down as types of their own, in the order of that release's fields, so that a change of today's messages cannot change
//! what is said to it. What a message holds that is alike in both versions is named by today's type: bytes of that release,
//! kept as files, show that it stays so.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::detector::Beat;
use crate::identity::{Incarnation, MemberId, Term};
use crate::oracle::Measured;
use crate::pole::installation::{self, ConfigId, Freed, Promised};
use crate::pole::member::{self, Handover};
use crate::pole::selection;
use crate::value::Value;

/// What its number is.
pub(super) const VERSION: u32 = 4;

#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    Ping {
        number: u64,
        requests: f64,
        interval: Option<Duration>,
        config: u64,
    },
    Pong {
        number: u64,
        requests: f64,
        life: Incarnation,
        has_vote: bool,
        standing: Option<Measured>,
        config: u64,
        promised: Term,
    },
    Heartbeat {
        term: Term,
        beat: Beat,
    },
    Selection(selection::Message),
    Installation(Installation),
    Handover {
        term: Term,
        to: MemberId,
        why: Handover,
    },
    Value {
        term: Term,
        revision: u64,
        value: Value,
    },
    ValueTaken {
        term: Term,
        revision: u64,
        life: Incarnation,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) enum Installation {
    Claim { term: Term, id: ClaimId, lease: Duration, freed: Option<Freed> },
    Promise { term: Term, id: ClaimId },
    Refuse { term: Term, promised: Term },
    Release { term: Term, life: Incarnation, next: Option<MemberId> },
    Ask { life: Incarnation, round: u32, config: u64 },
    Report { life: Incarnation, round: u32, by: Incarnation, promised: Option<Promised> },
    Behind { term: Term },
}

#[derive(Serialize, Deserialize)]
pub(super) struct ClaimId {
    life: Incarnation,
    count: u64,
    config: u64,
}

/// What version 4 makes of a message, if it can say that: nothing of a list that was changed.
pub(super) fn said(message: &member::Message) -> Option<Message> {
    use member::Message as M;
    Some(match message.clone() {
        M::Ping { number, requests, interval, config } => {
            Message::Ping { number, requests, interval, config: digest(config)? }
        }
        // A member that reads this version knows that its sender does not speak a higher one on that link.
        M::Pong { number, requests, life, no_vote, standing, config, promised, speaks: _ } => {
            let (config, has_vote) = (digest(config)?, no_vote.is_none());
            Message::Pong { number, requests, life, has_vote, standing, config, promised }
        }
        M::Heartbeat { term, beat } => Message::Heartbeat { term, beat },
        M::Selection(message) => Message::Selection(message),
        M::Installation(message) => Message::Installation(said_of_installation(message)?),
        M::Handover { term, to, why } => Message::Handover { term, to, why },
        M::Value { term, revision, value } => Message::Value { term, revision, value },
        M::ValueTaken { term, revision, life } => Message::ValueTaken { term, revision, life },
        M::Request { .. } | M::Answer { .. } => return None,
    })
}

fn said_of_installation(message: installation::Message) -> Option<Installation> {
    use installation::Message as M;
    Some(match message {
        M::Claim { term, id, lease, freed } => {
            Installation::Claim { term, id: claim(id)?, lease, freed }
        }
        M::Promise { term, id } => Installation::Promise { term, id: claim(id)? },
        M::Refuse { term, promised } => Installation::Refuse { term, promised },
        M::Release { term, life, next } => Installation::Release { term, life, next },
        M::Ask { life, round, config } => {
            Installation::Ask { life, round, config: digest(config)? }
        }
        M::Report { life, round, by, promised } => {
            Installation::Report { life, round, by, promised }
        }
        M::Behind { term } => Installation::Behind { term },
        // With whom the group was started matters to those alone that find no state.
        M::Founded { life, round, by, promised, .. } => {
            Installation::Report { life, round, by, promised: Some(promised) }
        }
        M::Follow { .. } | M::Roster { .. } | M::Unsure { .. } => return None,
    })
}

fn claim(installation::ClaimId { life, count, config }: installation::ClaimId) -> Option<ClaimId> {
    Some(ClaimId { life, count, config: digest(config)? })
}

/// Of the list that a group was set up with.
fn digest(config: ConfigId) -> Option<u64> {
    (config == ConfigId::new(config.get())).then_some(config.get())
}

impl From<Message> for member::Message {
    fn from(message: Message) -> Self {
        use member::Message as M;
        match message {
            Message::Ping { number, requests, interval, config } => {
                M::Ping { number, requests, interval, config: ConfigId::new(config) }
            }
            Message::Pong { number, requests, life, has_vote, standing, config, promised } => {
                let (config, speaks) = (ConfigId::new(config), VERSION);
                // It does not say why.
                let no_vote = (!has_vote).then_some(installation::WhyNoVote::Lost);
                M::Pong { number, requests, life, no_vote, standing, config, promised, speaks }
            }
            Message::Heartbeat { term, beat } => M::Heartbeat { term, beat },
            Message::Selection(message) => M::Selection(message),
            Message::Installation(message) => M::Installation(message.into()),
            Message::Handover { term, to, why } => M::Handover { term, to, why },
            Message::Value { term, revision, value } => M::Value { term, revision, value },
            Message::ValueTaken { term, revision, life } => M::ValueTaken { term, revision, life },
        }
    }
}

impl From<Installation> for installation::Message {
    fn from(message: Installation) -> Self {
        use installation::Message as M;
        match message {
            Installation::Claim { term, id, lease, freed } => {
                M::Claim { term, id: id.into(), lease, freed }
            }
            Installation::Promise { term, id } => M::Promise { term, id: id.into() },
            Installation::Refuse { term, promised } => M::Refuse { term, promised },
            Installation::Release { term, life, next } => M::Release { term, life, next },
            Installation::Ask { life, round, config } => {
                M::Ask { life, round, config: ConfigId::new(config) }
            }
            Installation::Report { life, round, by, promised } => {
                M::Report { life, round, by, promised }
            }
            Installation::Behind { term } => M::Behind { term },
        }
    }
}

impl From<ClaimId> for installation::ClaimId {
    fn from(ClaimId { life, count, config }: ClaimId) -> Self {
        installation::ClaimId { life, count, config: ConfigId::new(config) }
    }
}
