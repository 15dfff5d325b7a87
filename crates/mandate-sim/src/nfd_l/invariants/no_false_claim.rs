//! No false suspicion of a leader that was heard in time: who names a leader silent has heard no
//! heartbeat of it that was sent less than a margin ago. (NFD-E waits for a detection time after
//! the label, plus the mean delay, which is never less than nothing; and a heartbeat may be sent
//! up to an interval later than it was due.)
//!
//! Excused are members whose monotonic clock stood still, or their leader's: to them labels and
//! arrivals tell another story until the window has restarted. So are leaders whose labels fell
//! across a crash: their new incarnation is not believed before the old one is over. A heartbeat that a
//! farewell overtook is no sign of life.

use core::time::Duration;
use std::collections::VecDeque;

use mandate_proto::detector::Label;
use mandate_proto::identity::{Incarnation, MemberId};
use mandate_proto::nfd_l::{Event, Heartbeat, Message, NfdL, Reason};

use crate::fault::{DiskFate, Fault};
use crate::host::host_of;
use crate::subject::{Moment, Observation};
use crate::time::SimTime;

/// The name under which it is reported.
pub(crate) const NAME: &str = "no false claim";

/// Heartbeats of a sender that may still be under way.
const RECENT: usize = 64;

/// What was sent and what was heard, in true time.
pub(crate) struct NoFalseClaim {
    margin: Duration,
    sent: Vec<VecDeque<(Heartbeat, SimTime)>>,
    /// For each receiver and sender: the latest heartbeat heard, and when it was sent.
    heard: Vec<Vec<Option<(Heartbeat, SimTime)>>>,
    /// For each receiver and sender: the incarnation and the label of the latest farewell heard.
    farewells: Vec<Vec<Option<(Incarnation, Label)>>>,
    leaders: Vec<Option<MemberId>>,
    excused: Vec<bool>,
}

impl NoFalseClaim {
    /// Watches `size` members whose margin is at least this.
    pub(crate) fn new(size: usize, margin: Duration) -> Self {
        NoFalseClaim {
            // Drift over the run, and wake-ups that came late when the heartbeat was sent.
            margin: margin.mul_f64(0.9).saturating_sub(Duration::from_millis(10)),
            sent: vec![VecDeque::new(); size],
            heard: vec![vec![None; size]; size],
            farewells: vec![vec![None; size]; size],
            leaders: vec![None; size],
            excused: vec![false; size],
        }
    }

    /// Takes note of a message that arrived at a process that runs.
    pub(crate) fn deliver(&mut self, moment: Moment, from: MemberId, message: &Message) {
        match message {
            Message::Heartbeat(heartbeat) => self.deliver_heartbeat(moment, from, heartbeat),
            Message::Farewell { lifetime, label } => {
                let latest = &mut self.farewells[moment.host][host_of(from)];
                if latest
                    .is_none_or(|(incarnation, latest)| incarnation != *lifetime || latest < *label)
                {
                    *latest = Some((*lifetime, *label));
                }
            }
            Message::Ask { .. } => {}
        }
    }

    fn deliver_heartbeat(&mut self, moment: Moment, from: MemberId, heartbeat: &Heartbeat) {
        let sent = self.sent[host_of(from)].iter().rev().find(|(sent, _)| sent == heartbeat);
        let heard = &mut self.heard[moment.host][host_of(from)];
        if let Some((_, at)) = sent
            && heard
                .is_none_or(|(known, latest)| known.lifetime != heartbeat.lifetime || latest < *at)
        {
            *heard = Some((*heartbeat, *at));
        }
    }

    /// Checks what was observed.
    pub(crate) fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, NfdL>,
    ) -> Result<(), String> {
        match what {
            Observation::Sent(Message::Heartbeat(heartbeat)) => {
                let sent = &mut self.sent[moment.host];
                sent.push_back((*heartbeat, moment.now));
                if sent.len() > RECENT {
                    sent.pop_front();
                }
            }
            Observation::Started(_) => {
                self.heard[moment.host].fill(None);
                self.farewells[moment.host].fill(None);
                self.leaders[moment.host] = None;
            }
            Observation::Faulted(
                Fault::Suspend { clock_stops: true, .. }
                | Fault::StepWall { by_nanos: ..0, .. }
                | Fault::Recover { disk: DiskFate::Lost, .. },
            ) => self.excused[moment.host] = true,
            Observation::Told(Event::LeaderChanged { leader, reason }) => {
                let before = core::mem::replace(&mut self.leaders[moment.host], *leader);
                if let (Reason::Silence, Some(silent)) = (reason, before) {
                    return self.check_silent(moment, silent);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn check_silent(&self, moment: Moment, silent: MemberId) -> Result<(), String> {
        let sender = host_of(silent);
        let (Some((heard, sent)), false) =
            (self.heard[moment.host][sender], self.excused[sender] || self.excused[moment.host])
        else {
            return Ok(());
        };
        let resigned = self.farewells[moment.host][sender].is_some_and(|(incarnation, label)| {
            incarnation == heard.lifetime && heard.beat.label <= label
        });
        if resigned {
            return Ok(());
        }
        let present =
            self.sent[sender].back().is_some_and(|(last, _)| last.lifetime == heard.lifetime);
        let ago = moment.now - sent;
        if present && ago < self.margin {
            let who = crate::host::member(moment.host);
            return Err(format!("{who} calls {silent} silent, whom it heard of {ago:?} ago"));
        }
        Ok(())
    }
}
