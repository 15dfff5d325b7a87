//! Stability (section 2.2): a leader is not unseated by a newcomer. It gives way only to one
//! whose reign is at least half as long as its own, which is what classes of uptime promise; in
//! its first half second to anyone of higher id; and to higher priority. A reign that has just
//! ended counts as long as heartbeats of it may be under way. And a leader that was paused for so
//! long that the others gave it up does not lead on as if nothing had been.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Event, Message, NfdL, Reason};
use mandate_proto::time::Instant;

use crate::fault::Fault;
use crate::host::{host_of, member};
use crate::subject::{Moment, Observation};
use crate::time::SimTime;

/// The name under which it is reported.
pub(crate) const NAME: &str = "stability";

/// Reigns shorter than this are all alike.
const FIRST_CLASS: Duration = Duration::from_millis(540);

/// The reigns of each member.
pub(crate) struct Stability {
    reigns: Vec<Vec<Reign>>,
    /// A member that died is trusted, and so ages in the eyes of others, for that much longer.
    slack: Duration,
    /// No heartbeat is heard, and none trusted, that much later than it was sent.
    memory: Duration,
    /// A pause of this length ends a reign.
    stall: Duration,
    paused: Vec<Option<Instant>>,
}

#[derive(Clone, Copy)]
struct Reign {
    since: SimTime,
    since_local: Instant,
    until: Option<SimTime>,
}

impl Stability {
    /// Watches `size` members with detection times up to this.
    pub(crate) fn new(size: usize, detect: Duration) -> Self {
        Stability {
            reigns: vec![Vec::new(); size],
            slack: detect * 2 + FIRST_CLASS / 2,
            memory: detect * 6,
            // A heartbeat may have been due an interval before.
            stall: detect * 2,
            paused: vec![None; size],
        }
    }

    /// Checks what was observed.
    pub(crate) fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, NfdL>,
    ) -> Result<(), String> {
        match what {
            Observation::Faulted(Fault::Crash(_)) => {
                self.paused[moment.host] = None;
                self.end(moment);
            }
            Observation::Faulted(Fault::Pause(_) | Fault::Suspend { .. }) => {
                self.paused[moment.host].get_or_insert(moment.local);
            }
            Observation::Sent(Message::Heartbeat(_)) => return self.check_leads_on(moment),
            Observation::Told(Event::LeaderChanged { leader, reason }) => {
                let own = member(moment.host);
                let ended = self.end(moment);
                match *leader {
                    Some(leader) if leader == own => {
                        let since_local = moment.local;
                        let reign = Reign { since: moment.now, since_local, until: None };
                        self.reigns[moment.host].push(reign);
                    }
                    Some(leader) => {
                        if let Some(reign) = ended {
                            return self.check_unseated(reign, leader, *reason, moment);
                        }
                    }
                    None => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A heartbeat is sent: not in a reign that a long pause has ended.
    fn check_leads_on(&mut self, moment: Moment) -> Result<(), String> {
        let Some(paused) = self.paused[moment.host].take() else { return Ok(()) };
        let began = self.reigns[moment.host].last().map(|reign| reign.since_local);
        if moment.local - paused > self.stall && began.is_some_and(|began| began < paused) {
            let leader = member(moment.host);
            let pause = moment.local - paused;
            return Err(format!("{leader} led on after it was paused for {pause:?}"));
        }
        Ok(())
    }

    fn end(&mut self, moment: Moment) -> Option<Reign> {
        let last = self.reigns[moment.host].last_mut();
        let reign = last.filter(|reign| reign.until.is_none())?;
        reign.until = Some(moment.now);
        Some(*reign)
    }

    /// `reign` has just ended because its leader chose to follow `by`.
    fn check_unseated(
        &self,
        reign: Reign,
        by: MemberId,
        reason: Reason,
        moment: Moment,
    ) -> Result<(), String> {
        // A leader that was paused reads old mail first; its own reign is over anyway.
        let stalled = reason == Reason::Stalled || self.paused[moment.host].is_some();
        if stalled || reason == Reason::Priority {
            return Ok(());
        }
        let own = moment.local - reign.since_local;
        let known = |reign: &&Reign| reign.until.is_none_or(|end| moment.now - end < self.memory);
        let lengths = self.reigns[host_of(by)].iter().filter(known);
        let lengths = lengths.map(|other| other.until.unwrap_or(moment.now) - other.since);
        let others = lengths.max().unwrap_or_default();
        if others.mul_f64(1.01) + self.slack < own / 2 {
            let unseated = member(moment.host);
            return Err(format!("{unseated} led for {own:?} and gave way to {by} of {others:?}"));
        }
        Ok(())
    }
}
