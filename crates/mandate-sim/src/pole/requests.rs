//! What is asked of leaders by way of other members: done in the term that it is meant for or not at all, and answered once.
//!
//! In some storms members are asked, now and then, to have leadership given up or handed over, or a member removed: the member that leads then is
//! to do it. Messages take their time, and so do the leader's applications, before they let go: by then it may lead in another term, or
//! not at all.

use core::time::Duration;
use std::collections::BTreeSet;

use mandate_proto::identity::Term;
use mandate_proto::pole::installation::MemberChange;
use mandate_proto::pole::member::{Event, Input, LeaderAnswer, LeaderRequest, Member};

use crate::fault::MemberName;
use crate::host::member;
use crate::network::HostIndex;
use crate::random::Random;
use crate::storm::Happening;
use crate::subject::{Moment, Observation};
use crate::time::SimTime;

/// The name under which it is reported.
pub(super) const NAME: &str = "a request is for its term";

/// One run in so many has members that are asked.
const ASKS: f64 = 0.3;

/// Requests in a storm of a group with that many hosts. With members that come and go, some change the list.
pub(super) fn storm(
    random: &mut Random,
    (size, lasts): (usize, Duration),
    has_changes: bool,
) -> Vec<(SimTime, Happening<Input>)> {
    if !random.chance(ASKS) {
        return Vec::new();
    }
    let asked = (1..=1 + random.below(30)).map(|number| {
        let at = SimTime::ZERO + random.between(Duration::ZERO, lasts);
        let other = member(random.below(size as u64) as usize);
        let request = match random.below(10) {
            0..=3 => LeaderRequest::Resign,
            4 if has_changes => LeaderRequest::Change(MemberChange::Remove { member: other }),
            _ => LeaderRequest::Transfer { to: other },
        };
        let host = random.below(size as u64) as HostIndex;
        (at, Happening::Tell(host, Input::Ask { number, request }))
    });
    asked.collect()
}

/// What an application does that is asked for something: it carries it out, or refuses.
pub(super) fn carried_out(event: &Event, is_willing: bool) -> Vec<Input> {
    let Event::Asked { id, term, request } = event else { return Vec::new() };
    let (id, term) = (*id, *term);
    match is_willing {
        true => vec![
            Input::Serve { term, request: request.clone() },
            Input::Answer { id, answer: LeaderAnswer::Done },
        ],
        false => vec![Input::Answer { id, answer: LeaderAnswer::Busy }],
    }
}

/// What was asked and not answered, and what is being carried out.
#[derive(Default)]
pub(super) struct RequestsOfTerm {
    asked: BTreeSet<(HostIndex, u64)>,
    /// The term that it is meant for, and the one that was held before.
    carried_out: Option<(Term, Option<Term>)>,
}

impl RequestsOfTerm {
    pub(super) fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, Member>,
    ) -> Result<(), String> {
        let host = moment.host;
        match what {
            Observation::Given { input: Input::Serve { term, .. }, held } => {
                self.carried_out = Some((*term, *held));
            }
            Observation::Given { input, .. } => {
                self.carried_out = None;
                if let Input::Ask { number, .. } = input {
                    self.asked.insert((host, *number));
                }
            }
            Observation::Taken { held: after } => {
                if let Some((meant, Some(before))) = self.carried_out.take()
                    && before != meant
                    && *after != Some(before)
                {
                    let name = MemberName(host);
                    return Err(format!(
                        "{name} ended term {before}, by a request that was meant for term {meant}"
                    ));
                }
            }
            Observation::Told(Event::Answered { number, .. })
                if !self.asked.remove(&(host, *number)) =>
            {
                let name = MemberName(host);
                return Err(format!("{name} has two answers to request {number}"));
            }
            // It has forgotten what it asked.
            Observation::Started(_) => self.asked.retain(|(asker, _)| *asker != host),
            _ => {}
        }
        Ok(())
    }

    /// Whether a host waits for the answer to a request.
    pub(super) fn waits(&self, host: HostIndex, number: u64) -> bool {
        self.asked.contains(&(host, number))
    }
}
