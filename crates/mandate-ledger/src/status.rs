//! What a member can say of itself: for people, and for monitoring. Nothing is decided by it.

use std::time::Duration;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Agreement, Event, Layout, Mode, Partition, RoleLoss};
use mandate_proto::time::Instant;

/// What a member can say of itself now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolesStatus {
    /// Of each partition.
    pub partitions: Vec<PartitionStanding>,
    /// How long it has waited to be assigned anything, if it does.
    pub waits_for: Option<Duration>,
    /// Whether that is longer than any member may hold it up: the barrier is stuck.
    pub is_stuck: bool,
    /// What this member goes by.
    pub agreement: Agreement,
    /// What another member goes by and because of which this one does not lead, if there is one.
    pub disagrees_with: Option<Agreement>,
    /// How many partitions the ledger has by now, if not as many as this member counts.
    pub other_size: Option<u32>,
    /// What has happened since it was started.
    pub counts: RoleCounts,
}

/// What a member can say of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionStanding {
    /// Its number, from 0.
    pub partition: Partition,
    /// How many roles it stands for.
    pub roles: u32,
    /// Whether the ledger has assigned it to this member.
    pub is_assigned: bool,
    /// If this member leads it.
    pub lead: Option<Lead>,
    /// How long ago it was found dry, if nothing was assigned since.
    pub dry_for: Option<Duration>,
}

/// A lead that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Its term; zero in non-exclusive mode, which has none.
    pub term: Term,
    /// For how long it has lasted.
    pub lasted: Duration,
    /// For how long it lasts at least.
    pub lasts: Duration,
}

/// How often something has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleCounts {
    /// A partition's roles came to be led here.
    pub acquired: u64,
    /// They were not any more: nothing proved in time that they may be.
    pub lapsed: u64,
    /// The ledger wanted the partition back.
    pub revoked: u64,
    /// The ledger had given this member up for dead.
    pub lost: u64,
    /// The ledger refused to renew.
    pub fenced: u64,
    /// This member resigned or left.
    pub left: u64,
    /// A partition was dry.
    pub dry: u64,
    /// A barrier was stuck.
    pub stuck: u64,
    /// Work took longer to end than was allowed.
    pub overran: u64,
    /// A request failed, or its outcome is unknown.
    pub failed: u64,
    /// A member with another layout or mode was found.
    pub disagreed: u64,
}

/// What is noted as it happens.
#[derive(Debug)]
pub(crate) struct Noted {
    partitions: Vec<Of>,
    waits_since: Option<Instant>,
    is_stuck: bool,
    agreement: Agreement,
    disagrees_with: Option<Agreement>,
    other_size: Option<u32>,
    counts: RoleCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Of {
    is_assigned: bool,
    led_since: Option<Instant>,
    dry_since: Option<Instant>,
}

impl Noted {
    pub(crate) fn new(layout: Layout, mode: Mode) -> Self {
        let (partitions, roles) = (layout.partitions(), layout.roles());
        Noted {
            agreement: Agreement { partitions, roles, mode },
            disagrees_with: None,
            other_size: None,
            partitions: vec![Of::default(); layout.partitions() as usize],
            waits_since: None,
            is_stuck: false,
            counts: RoleCounts::default(),
        }
    }

    /// Takes note of something that is told.
    pub(crate) fn tell(&mut self, event: &Event, now: Instant) {
        let counts = &mut self.counts;
        match event {
            Event::Acquired { .. } => counts.acquired += 1,
            Event::Ended { loss, .. } => match loss {
                RoleLoss::Lapsed => counts.lapsed += 1,
                RoleLoss::Revoked => counts.revoked += 1,
                RoleLoss::Lost => counts.lost += 1,
                RoleLoss::Fenced => counts.fenced += 1,
                RoleLoss::Left => counts.left += 1,
            },
            Event::Dry { .. } => counts.dry += 1,
            Event::BarrierStuck { .. } => {
                counts.stuck += 1;
                self.is_stuck = true;
            }
            Event::DrainOverran { .. } => counts.overran += 1,
            Event::Failed { .. } => counts.failed += 1,
            Event::Disagrees { .. } => counts.disagreed += 1,
            Event::Published { .. }
            | Event::WentBack { .. }
            | Event::Agrees
            | Event::Resized { .. }
            | Event::Left => {}
        }
        let of = event.partition().and_then(|one| self.partitions.get_mut(one.get() as usize));
        match (of, event) {
            (Some(of), Event::Acquired { .. }) => {
                (of.led_since, of.dry_since) = (Some(now), None);
            }
            (Some(of), Event::Ended { .. }) => of.led_since = None,
            (Some(of), Event::Dry { .. }) => of.dry_since = Some(now),
            _ => {}
        }
    }

    /// Takes note of what another member goes by, if it keeps this one from leading, and of another size of the ledger.
    pub(crate) fn disagrees_with(&mut self, theirs: Option<Agreement>, other_size: Option<u32>) {
        (self.disagrees_with, self.other_size) = (theirs, other_size);
    }

    /// Takes note of what is assigned, and since when that is waited for.
    pub(crate) fn settle(
        &mut self,
        is_assigned: impl Fn(Partition) -> bool,
        waits_since: Option<Instant>,
    ) {
        let is_over = self.waits_since.is_some() && waits_since.is_none();
        self.waits_since = waits_since;
        self.is_stuck &= waits_since.is_some();
        for (number, of) in self.partitions.iter_mut().enumerate() {
            of.is_assigned = is_assigned(Partition::new(number as u32));
            if is_over {
                // It is another's by now, or gets another chance here.
                of.dry_since = None;
            }
        }
    }

    /// What can be said at `now`, with what is held by then.
    pub(crate) fn standing(
        &self,
        layout: Layout,
        now: Instant,
        held: impl Fn(Partition) -> Option<(Term, Instant)>,
    ) -> RolesStatus {
        let partitions = self.partitions.iter().zip((0..).map(Partition::new));
        let standing = |(of, partition): (&Of, Partition)| PartitionStanding {
            partition,
            roles: layout.roles_of(partition).count() as u32,
            is_assigned: of.is_assigned,
            lead: held(partition).filter(|(_, until)| now < *until).map(|(term, until)| Lead {
                term,
                lasted: of.led_since.map_or(Duration::ZERO, |since| now.since(since)),
                lasts: until.since(now),
            }),
            dry_for: of.dry_since.map(|since| now.since(since)),
        };
        RolesStatus {
            partitions: partitions.map(standing).collect(),
            waits_for: self.waits_since.map(|since| now.since(since)),
            is_stuck: self.is_stuck,
            agreement: self.agreement,
            disagrees_with: self.disagrees_with,
            other_size: self.other_size,
            counts: self.counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    fn noted() -> (Noted, Layout) {
        let layout = Layout::new(NonZeroU32::new(2).unwrap(), 5);
        (Noted::new(layout, Mode::Exclusive), layout)
    }

    #[test]
    fn a_lead_is_shown_with_its_term_and_since_when() {
        let (mut noted, layout) = noted();
        let partition = Partition::new(1);
        noted.tell(&Event::Acquired { partition, term: Some(Term::new(7)) }, at(10));
        noted.settle(|one| one == partition, None);
        let held = |one: Partition| (one == partition).then(|| (Term::new(7), at(32)));
        let shown = noted.standing(layout, at(30), held);
        assert_eq!(shown.partitions[0].lead, None);
        let lead = shown.partitions[1].lead.unwrap();
        assert_eq!((lead.lasted.as_secs(), lead.lasts.as_secs()), (20, 2));
        assert_eq!((shown.partitions[0].roles, shown.partitions[1].roles), (3, 2));
        assert_eq!(noted.standing(layout, at(40), held).partitions[1].lead, None, "by the clock");
        let loss = RoleLoss::Fenced;
        noted.tell(&Event::Ended { partition, term: None, loss }, at(41));
        assert_eq!(noted.standing(layout, at(42), |_| None).counts.fenced, 1);
    }

    #[test]
    fn what_is_dry_or_stuck_shows_until_the_next_assignment() {
        let (mut noted, layout) = noted();
        let partition = Partition::new(0);
        noted.tell(&Event::Dry { partition }, at(1));
        noted.settle(|_| false, Some(at(2)));
        noted.tell(&Event::BarrierStuck { since: at(2) }, at(50));
        let shown = noted.standing(layout, at(52), |_| None);
        assert_eq!(shown.partitions[0].dry_for, Some(Duration::from_secs(51)));
        assert!(shown.is_stuck && shown.waits_for == Some(Duration::from_secs(50)));
        noted.settle(|_| false, None);
        let shown = noted.standing(layout, at(60), |_| None);
        assert_eq!((shown.partitions[0].dry_for, shown.is_stuck), (None, false));
        assert_eq!((shown.counts.dry, shown.counts.stuck), (1, 1));
    }
}
