//! Labels only rise (section 3.2): within an incarnation always; across a crash if the disk was kept and
//! the wall clock was not set back. The paper asks for a clock without drift; here labels may fall
//! back by as much as the monotonic clock can have gained on the wall clock.

use mandate_proto::identity::Incarnation;
use mandate_proto::nfd_l::{Message, NfdL};

use crate::fault::{DiskFate, Fault};
use crate::storm::MAX_DRIFT_PPB;
use crate::subject::{Moment, Observation};

/// The name under which it is reported.
pub(crate) const NAME: &str = "labels rise";

/// The last label of each member.
pub(crate) struct LabelsRise {
    members: Vec<Member>,
}

#[derive(Clone, Default)]
struct Member {
    last: Option<(Incarnation, i64)>,
    /// The disk was lost or the wall clock set back: the next incarnation may begin anywhere,
    next_excused: bool,
    /// and this one did.
    excused: bool,
}

impl LabelsRise {
    /// Watches `size` members.
    pub(crate) fn new(size: usize) -> Self {
        LabelsRise { members: vec![Member::default(); size] }
    }

    /// Checks what was observed.
    pub(crate) fn check(
        &mut self,
        moment: Moment,
        what: &Observation<'_, NfdL>,
    ) -> Result<(), String> {
        let member = &mut self.members[moment.host];
        match what {
            Observation::Faulted(Fault::Recover { disk: DiskFate::Lost, .. }) => {
                member.next_excused = true;
            }
            Observation::Faulted(Fault::StepWall { by_nanos: ..0, .. }) => {
                member.next_excused = true;
            }
            Observation::Started(_) => {
                member.excused |= core::mem::take(&mut member.next_excused);
            }
            Observation::Sent(Message::Heartbeat(heartbeat)) => {
                let label = heartbeat.beat.label.as_nanos();
                let last = member.last.replace((heartbeat.lifetime, label));
                let Some((incarnation, last)) = last else { return Ok(()) };
                if incarnation == heartbeat.lifetime {
                    if label <= last {
                        return Err("a label fell within one life".into());
                    }
                    return Ok(());
                }
                let excused = core::mem::take(&mut member.excused);
                let drifted = moment.now.as_nanos() as i64 / 1_000_000_000 * MAX_DRIFT_PPB + 1;
                if !excused && label + drifted <= last {
                    return Err("a label fell across a crash with disk and calendar intact".into());
                }
            }
            _ => {}
        }
        Ok(())
    }
}
