//! Members that go by different layouts or modes do not lead beside each other.
//!
//! Which role a partition stands for depends on how many partitions and roles a member counts, and the slot of a key on both. So two
//! members that count differently lead one key twice though they hold different partitions, and a look at the mark of one's own
//! partition is not enough. What everyone goes by ([`Agreement`]) stands in every mark ([`Holder`]); a member looks at the marks of
//! the whole group before it leads.
//!
//! 1. **Mark first, then look.** A member leads when its own mark is on the ledger and a look that was asked for *after that* shows
//!    that mark, and none of another layout. Of two that begin at once, at least one sees the other: whichever look came second.
//!    A look that does not show the member's own mark says nothing, because it may miss others' for the same reason: a ledger may
//!    accept a renewal before readers see its marks (Kafka, in a transaction). Then the member looks again.
//!    Who leads something already has looked, and nobody can have begun since: it does not look again.
//! 2. **A mark of another layout stays until its owner has ended.** The member that is assigned its partition next puts a mark of its own
//!    there only when the threshold of the former owner is over, counted as for [its own leadership](super::succession).
//! 3. **Who leads stands.** A newcomer looks before it first joins. If another layout leads, it stays out of the group for as long as it
//!    sees that layout renew; if it sees that only later, it gives its partitions back. If the member's own layout leads somewhere, marks of others that only want to lead are none of
//!    its business: they will see that, too. If nobody leads, the smaller layout stays and the greater goes, so that
//!    somebody leads.
//! 4. **A mark of the dead keeps nobody from leading.** Every renewal of a holder changes one of its marks. If none of them has changed for
//!    twice as long as the holder counts on a renewal, it leads no more, and its marks are ignored. This is for marks that nobody of this
//!    layout can replace: on a partition without a broker, or on one that this layout does not count. Twice, because the last
//!    renewal may have been accepted and not be seen yet. For the same reason the member's own layout leads, as far as rule 3 is
//!    concerned, only if one of its leaders was seen to renew a term so recently that nobody can ignore it by now.
//!
//! Assumed, as for different thresholds: the ledger's answer is not an old one. Rejected: the owner of partition 0 as the one who decides for
//! all, because a newcomer that is assigned it would depose everyone; a group protocol name for each layout, which the coordinator itself
//! would keep apart, because Kafka's consumer protocol has none.
//!
//! In non-exclusive mode marks prove nothing and are there for this alone. A member that has looked goes on for as long as it holds
//! something, and looks again every session. If it lapses with marks that are older than its threshold, it has been stopped, and
//! begins again: it marks, and looks. One that is handed a partition and held none before marks it and looks first. One that was
//! replaced goes on until it lapses, as always in this mode, and by then another layout may lead. Rejected: ending when no mark was accepted
//! for so long, because a rebalance parks renewals, and then nobody would lead in the mode that promises that somebody always does.

use alloc::vec::Vec;
use core::time::Duration;

use super::config::Mode;
use super::interface::{Effect, Event, Mark, Partition, PartitionHolder, Renewed};
use super::layout::Agreement;
use super::membership::Stay;
use super::proving::Renewal;
use super::seat::Seat;
use super::{Fx, Member};
use crate::identity::{MemberId, Term};
use crate::time::Instant;

/// So many times in an interval a member looks for its own mark.
const LOOKS_IN_INTERVAL: u32 = 4;

/// A holder whose marks have not changed for so many times as long as it counts on a renewal leads no more.
const STILL_FOR: u32 = 2;

/// What a member knows of those who go by another layout.
#[derive(Clone, Debug)]
pub(super) struct Agreeing {
    /// What was found at the last look.
    found: Option<Found>,
    /// Not before that does it look again.
    pub(super) next_look: Instant,
    /// How many partitions the ledger has, if not as many as this member counts.
    other_size: Option<u32>,
    /// In non-exclusive mode: a look after a mark of its own has shown no other layout.
    is_settled: bool,
    /// In non-exclusive mode: until when others count on its marks, from before the last renewal was sent.
    marks_until: Option<Instant>,
    /// How often in succession this member has given way. It rests longer each time, or members of three layouts that
    /// come and go would keep each other from leading.
    pub(super) gave_way: u32,
    /// Holders of another layout whose marks were there at the last look.
    holders: Vec<Stillness>,
    /// Leaders of the member's own layout whose marks were there at the last look.
    leaders: Vec<Leading>,
}

/// What a holder's marks say, and since when they have said that.
#[derive(Clone, Debug)]
struct Stillness {
    member: MemberId,
    agreement: Agreement,
    /// Which renewal left the mark of which partition.
    renewals: Vec<(Partition, Term, u64)>,
    /// The longest that one of them says.
    lease: Duration,
    since: Instant,
}

/// A mark of a leader that goes by the member's own layout.
#[derive(Clone, Copy, Debug)]
struct Leading {
    place: (Partition, Term),
    renewal: u64,
    lease: Duration,
    /// When it was looked at.
    seen: Instant,
    /// When it was looked at before it was last seen to be renewed under the same term, which says that its holder did not lapse.
    renewed_after: Option<Instant>,
}

/// Another layout.
#[derive(Clone, Debug)]
struct Found {
    theirs: Agreement,
    leads: bool,
    since: Instant,
    /// How long its members count on a renewal.
    lease: Duration,
    /// What its marks said last, and when they said something new.
    renewals: Vec<(Partition, u64)>,
    lived_at: Instant,
}

impl Agreeing {
    pub(super) fn new(now: Instant) -> Self {
        Agreeing {
            found: None,
            next_look: now,
            other_size: None,
            is_settled: false,
            marks_until: None,
            gave_way: 0,
            holders: Vec::new(),
            leaders: Vec::new(),
        }
    }
}

impl Stillness {
    fn is_of(&self, holder: &PartitionHolder) -> bool {
        (self.member, self.agreement) == (holder.member, holder.agreement)
    }

    fn says_the_same_as(&self, other: &Stillness) -> bool {
        let what = |one: &Stillness| (one.member, one.agreement, one.lease);
        what(self) == what(other) && self.renewals == other.renewals
    }
}

impl Leading {
    /// Whether nobody can think by now that it has renewed nothing for so long that it leads no more.
    fn is_alive(&self, now: Instant) -> bool {
        self.renewed_after.is_some_and(|after| now < after + self.lease * STILL_FOR)
    }
}

/// A mark that somebody left who goes by another layout.
fn is_foreign(mark: &Mark, ours: Agreement) -> Option<(PartitionHolder, Duration)> {
    match mark {
        Mark::Held { holder: Some(holder), lease, .. } if holder.agreement != ours => {
            Some((*holder, *lease))
        }
        _ => None,
    }
}

impl Member {
    /// The layout or mode that another member goes by and because of which this one does not lead.
    pub fn disagreement(&self) -> Option<Agreement> {
        self.agreeing.found.as_ref().map(|found| found.theirs)
    }

    /// How many partitions the ledger has, if not as many as this member counts. It goes on with those that it knows, as all do that were
    /// started before; who starts now counts differently, and sees their marks.
    pub fn other_size(&self) -> Option<u32> {
        self.agreeing.other_size
    }

    pub(super) fn sized(&mut self, found: u32, effects: &mut Fx) {
        let counted = self.plan.grants.partitions.get();
        let other = Some(found).filter(|found| *found != counted);
        if self.agreeing.other_size != other {
            self.agreeing.other_size = other;
            effects.push(Effect::Tell(Event::Resized { counted, found }));
        }
    }

    fn leads_any(&self) -> bool {
        self.seats.iter().any(Seat::leads)
    }

    /// Whether nobody of another layout can lead, as far as this partition's leadership is concerned.
    pub(super) fn is_agreed(&self, seat: &Seat) -> bool {
        match self.plan.mode {
            _ if !self.plan.marks() => true,
            Mode::NonExclusive => self.agreeing.is_settled,
            Mode::Exclusive => {
                self.leads_any() || (seat.claim.is_some() && seat.agreed == seat.claim)
            }
        }
    }

    /// Whether what comes may keep a leader in non-exclusive mode.
    pub(super) fn may_go_on(&self) -> bool {
        !self.plan.marks() || self.agreeing.is_settled
    }

    /// In non-exclusive mode, a member that holds nothing has no mark that would keep other layouts from leading: before it leads again, it
    /// marks and looks again.
    pub(super) fn unsettle(&mut self) {
        let holds = self.seats.iter().any(|seat| seat.kept().is_some());
        self.agreeing.is_settled &= holds;
    }

    /// In non-exclusive mode, something has lapsed. If no mark was renewed for as long as others wait for one, this member was
    /// stopped or cut off, and another layout may have taken its marks for those of the dead: it marks anew and looks again.
    pub(super) fn lapsed(&mut self, now: Instant) {
        let is_current = self.agreeing.marks_until.is_some_and(|until| now < until);
        if self.plan.mode == Mode::NonExclusive && !is_current {
            self.agreeing.is_settled = false;
            self.agreeing.next_look = now;
            self.seats.iter_mut().for_each(|seat| seat.marked = None);
        }
    }

    /// When to look at the marks of the whole group, if there is a reason to.
    pub(super) fn is_look_due(&self) -> Option<Instant> {
        let is_found = self.agreeing.found.is_some();
        let wanted = match (self.stay, self.plan.mode) {
            (Stay::Arriving, _) => true,
            (Stay::Resting { .. }, _) => is_found,
            (Stay::Member, Mode::NonExclusive) => is_found || self.is_marked(),
            (Stay::Member, Mode::Exclusive) => {
                let waits = !self.leads_any() && self.confirmed().next().is_some();
                is_found || waits
            }
            _ => false,
        };
        wanted.then_some(self.agreeing.next_look)
    }

    /// Claims that have a mark on the ledger and are not agreed on.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = (Partition, Term)> {
        self.each().filter_map(|(partition, seat)| {
            let claim = seat.claim.filter(|_| seat.kept().is_some() && seat.until.is_some())?;
            (seat.agreed != Some(claim)).then_some((partition, claim))
        })
    }

    /// Whether a mark of its own is on the ledger, in non-exclusive mode.
    pub(super) fn is_marked(&self) -> bool {
        self.seats.iter().any(|seat| seat.kept().is_some() && seat.marked.is_some())
    }

    /// From when on a mark may take the place of this one, in an assignment that began at `since`.
    pub(super) fn mark_from(&self, mark: Option<Mark>, since: Instant) -> Instant {
        let foreign = mark.and_then(|mark| is_foreign(&mark, self.plan.agreement()));
        foreign.map_or(since, |(_, lease)| since + self.grace_after(lease))
    }

    /// The marks of the group were looked at, after these claims, or marks of its own, had been confirmed.
    pub(super) fn looked(
        &mut self,
        marks: &[(Partition, Mark)],
        (confirmed, was_marked): (Vec<(Partition, Term)>, bool),
        now: Instant,
        effects: &mut Fx,
    ) {
        self.watch_holders(marks, now);
        self.watch_leaders(marks, now);
        let ours = self.plan.agreement();
        let we_lead = self.agreeing.leaders.iter().any(|leader| leader.is_alive(now));
        let foreign: Vec<_> = marks
            .iter()
            .filter_map(|(partition, mark)| Some((*partition, is_foreign(mark, ours)?)))
            .filter(|(_, (holder, _))| holder.leads || !we_lead)
            .filter(|(_, (holder, _))| !self.is_still(holder, now))
            .collect();
        if !foreign.is_empty() {
            return self.disagrees(&foreign, now, effects);
        }
        let is_shown = |partition: Partition, term: Term| {
            marks.iter().any(|(of, mark)| *of == partition && self.is_own(mark, term))
        };
        let shown: Vec<_> = confirmed
            .iter()
            .copied()
            .filter(|(partition, term)| is_shown(*partition, *term))
            .collect();
        let is_marked = was_marked
            && self.plan.mode == Mode::NonExclusive
            && marks.iter().any(|(_, mark)| self.is_own(mark, Term::NONE));
        let is_complete = shown.len() == confirmed.len();
        self.agrees(&shown, is_marked, now, effects);
        if self.plan.mode == Mode::Exclusive && !is_complete {
            // Not at once: the ledger takes its time to show it.
            self.agreeing.next_look = now + self.plan.interval / LOOKS_IN_INTERVAL;
        }
    }

    /// Whether this member left a mark, for this claim.
    fn is_own(&self, mark: &Mark, claim: Term) -> bool {
        match mark {
            Mark::Held { term, holder: Some(holder), .. } => {
                let own = (self.plan.me, self.plan.agreement());
                (holder.member, holder.agreement) == own && *term == claim
            }
            _ => false,
        }
    }

    /// Keeps in mind what marks of other layouts say, and since when.
    fn watch_holders(&mut self, marks: &[(Partition, Mark)], now: Instant) {
        let ours = self.plan.agreement();
        let mut seen: Vec<Stillness> = Vec::new();
        for (partition, mark) in marks {
            let Some((holder, lease)) = is_foreign(mark, ours) else { continue };
            let PartitionHolder { member, agreement, renewal, .. } = holder;
            let (Mark::Held { term, .. } | Mark::Over { term }) = *mark;
            let place = seen.iter().position(|one| one.is_of(&holder)).unwrap_or(seen.len());
            if place == seen.len() {
                let renewals = Vec::new();
                seen.push(Stillness { member, agreement, renewals, lease, since: now });
            }
            let one = &mut seen[place];
            one.renewals.push((*partition, term, renewal));
            one.lease = one.lease.max(lease);
        }
        for one in &mut seen {
            let same = self.agreeing.holders.iter().find(|before| before.says_the_same_as(one));
            one.since = same.map_or(now, |before| before.since);
        }
        self.agreeing.holders = seen;
    }

    /// Keeps in mind which leaders of its own layout were seen to renew, and when.
    fn watch_leaders(&mut self, marks: &[(Partition, Mark)], now: Instant) {
        let ours = self.plan.agreement();
        let found = marks.iter().filter_map(|(partition, mark)| {
            let Mark::Held { term, lease, holder: Some(holder) } = *mark else { return None };
            let (place, renewal) = ((*partition, term), holder.renewal);
            let before = self.agreeing.leaders.iter().find(|before| before.place == place);
            let renewed_after = match before {
                Some(before) if before.renewal < renewal => Some(before.seen),
                before => before.and_then(|before| before.renewed_after),
            };
            (holder.agreement == ours && holder.leads).then_some(Leading {
                place,
                renewal,
                lease,
                seen: now,
                renewed_after,
            })
        });
        self.agreeing.leaders = found.collect();
    }

    /// Whether the holder of a mark has renewed nothing for so long that it leads no more.
    fn is_still(&self, holder: &PartitionHolder, now: Instant) -> bool {
        let found = self.agreeing.holders.iter().find(|one| one.is_of(holder));
        found.is_some_and(|one| one.since + self.grace_after(one.lease) * STILL_FOR <= now)
    }

    fn agrees(
        &mut self,
        confirmed: &[(Partition, Term)],
        was_marked: bool,
        now: Instant,
        effects: &mut Fx,
    ) {
        for (partition, term) in confirmed {
            self.seat_mut(*partition).agreed = Some(*term);
        }
        self.agreeing.is_settled |= was_marked;
        if !confirmed.is_empty() || was_marked {
            self.agreeing.gave_way = 0;
        }
        self.agreeing.next_look = match self.plan.mode {
            Mode::Exclusive => now,
            Mode::NonExclusive if self.agreeing.is_settled => now + self.plan.grants.session,
            Mode::NonExclusive => now + self.plan.interval,
        };
        if self.agreeing.found.take().is_some() {
            effects.push(Effect::Tell(Event::Agrees));
        }
    }

    fn disagrees(
        &mut self,
        foreign: &[(Partition, (PartitionHolder, Duration))],
        now: Instant,
        effects: &mut Fx,
    ) {
        // A leader goes before a member that wants to lead; of those, the smallest stays.
        let key = |(_, (holder, _)): &&(_, (PartitionHolder, Duration))| {
            (!holder.leads, holder.agreement)
        };
        let Some((_, (first, _))) = foreign.iter().min_by_key(key) else { return };
        let lease = foreign.iter().map(|(_, (_, lease))| *lease).max().unwrap_or_default();
        let renewals: Vec<_> =
            foreign.iter().map(|(partition, (holder, _))| (*partition, holder.renewal)).collect();
        let before = self.agreeing.found.take();
        let is_new = before
            .as_ref()
            .is_none_or(|found| (found.theirs, found.leads) != (first.agreement, first.leads));
        let same = before.as_ref().filter(|found| found.renewals == renewals);
        let lived_at = same.map_or(now, |found| found.lived_at);
        let since = before.as_ref().map_or(now, |found| found.since);
        let (theirs, leads) = (first.agreement, first.leads);
        self.agreeing.found = Some(Found { theirs, leads, since, lease, renewals, lived_at });
        self.agreeing.is_settled = false;
        self.agreeing.next_look = now + self.plan.interval.max(lease / 4);
        // It is not dry: there is a reason.
        let dry_at = now + self.plan.dry_after();
        self.seats.iter_mut().for_each(|seat| seat.dry_at = seat.dry_at.map(|at| at.max(dry_at)));
        if is_new {
            let ours = self.plan.agreement();
            effects.push(Effect::Tell(Event::Disagrees { ours, theirs, leads }));
        }
    }

    /// A new assignment: marks of owners that are gone are replaced first, by this member and others.
    pub(super) fn bears_with_others(&mut self, now: Instant) {
        if let Some(found) = &mut self.agreeing.found {
            found.since = now;
        }
    }

    /// Whether members of another layout were seen to lead.
    pub(super) fn is_led_by_others(&self) -> bool {
        self.agreeing.found.as_ref().is_some_and(|found| found.leads)
    }

    /// When it gives way to another layout. Until then its marks, and those of others that were assigned something at the same
    /// time, may have taken the place of those of owners that are gone.
    pub(super) fn gives_way_at(&self) -> Option<Instant> {
        let found = self.agreeing.found.as_ref()?;
        let is_second = found.leads || found.theirs < self.plan.agreement();
        let has_something = self.seats.iter().any(|seat| seat.assigned.is_some());
        let patience = self.plan.patience() * 2 + self.plan.interval * 2;
        (is_second && has_something && self.takes_part() && !self.leads_any())
            .then(|| found.since + self.grace_after(found.lease) + patience)
    }

    pub(super) fn give_way(&mut self, now: Instant, effects: &mut Fx) {
        if self.gives_way_at().is_some_and(|at| at <= now) {
            self.agreeing.gave_way = self.agreeing.gave_way.saturating_add(1);
            self.go(false, now, effects);
        }
    }

    /// Until when to stay out of the group, if another layout is seen to renew there.
    pub(super) fn stays_out_until(&mut self, now: Instant) -> Option<Instant> {
        let interval = self.plan.interval;
        let found = self.agreeing.found.as_mut()?;
        let until = found.lived_at + found.lease * 2 + interval * 2;
        if now < until {
            return Some(until);
        }
        found.since = now;
        None
    }

    /// What became of a renewal that leaves marks and proves nothing.
    pub(super) fn marked(&mut self, renewal: &Renewal, outcome: Renewed) {
        if outcome == Renewed::Accepted {
            let until = renewal.sent + self.plan.threshold;
            self.agreeing.marks_until = self.agreeing.marks_until.max(Some(until));
        }
        for (partition, epoch, _) in &renewal.covers {
            let Some(seat) = self.seats.get_mut(partition.get() as usize) else { continue };
            let is_same = seat.kept().is_some_and(|assignment| assignment.epoch == *epoch);
            let mark = renewal.marks.iter().find(|(of, _)| is_same && of == partition);
            if let (Some((_, mark)), Renewed::Accepted) = (mark, outcome) {
                seat.marked = Some(*mark);
            }
        }
    }
}

#[cfg(test)]
#[path = "agreement_tests.rs"]
mod tests;
