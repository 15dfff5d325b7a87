//! Stability (section 2.2): a leader is not unseated by a newcomer. It gives way only to one
//! whose reign is at least half as long as its own, which is what classes of uptime promise.

use core::time::Duration;

use mandate_proto::identity::MemberId;
use mandate_proto::nfd_l::{Event, NfdL, Reason};
use mandate_proto::time::Instant;

use crate::fault::Fault;
use crate::host::{host_of, member};
use crate::subject::{Moment, Observation};
use crate::time::SimTime;

/// The name under which it is reported.
pub const NAME: &str = "stability";

/// The reigns of each member.
pub struct Stability {
    reigns: Vec<Option<Reign>>,
    /// A member that died is trusted, and so ages in the eyes of others, for that much longer.
    slack: Duration,
}

#[derive(Clone, Copy)]
struct Reign {
    since: SimTime,
    since_local: Instant,
    until: Option<SimTime>,
}

impl Stability {
    /// Watches `size` members with this detection time.
    pub fn new(size: usize, detect: Duration) -> Self {
        Stability { reigns: vec![None; size], slack: detect * 2 }
    }

    /// Checks what was observed.
    pub fn check(&mut self, moment: Moment, what: &Observation<'_, NfdL>) -> Result<(), String> {
        match what {
            Observation::Faulted(Fault::Crash(_)) => {
                self.end(moment);
            }
            Observation::Told(Event::LeaderChanged { leader, reason }) => {
                let own = member(moment.host);
                let ended = self.end(moment);
                match *leader {
                    Some(leader) if leader == own => {
                        self.reigns[moment.host] = Some(Reign {
                            since: moment.now,
                            since_local: moment.local,
                            until: None,
                        });
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

    fn end(&mut self, moment: Moment) -> Option<Reign> {
        let reign = self.reigns[moment.host].as_mut().filter(|reign| reign.until.is_none())?;
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
        if reason == Reason::Stalled {
            return Ok(());
        }
        let own = moment.local - reign.since_local;
        let others = self.reigns[host_of(by)].map_or(Duration::ZERO, |other| {
            // A reign that ended may be followed while its last heartbeats are under way.
            other.until.unwrap_or(moment.now).max(other.since) - other.since
        });
        if others.mul_f64(1.01) + self.slack < own / 2 {
            let unseated = member(moment.host);
            return Err(format!("{unseated} led for {own:?} and gave way to {by} of {others:?}"));
        }
        Ok(())
    }
}
