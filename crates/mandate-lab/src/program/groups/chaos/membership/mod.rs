//! Members that come and go while faults last: what was asked for, and what came of it.
//!
//! A change is asked of the leader, and of the next one if nothing came of it. What was not made while faults lasted is asked for
//! until it is once everything has healed: so the list after each phase is known beforehand. Changes are asked for one after the other,
//! but for those that come two at once on purpose, of which the second must be refused.
//!
//! What must never be: a leader whose list lacks a change that was answered as settled, a member that nobody has removed, or
//! names one that was removed or that nobody has added ([`list`]); a removed member that acts ([`gone`]); and an id that a group takes twice.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use mandate_conformance::group::{GroupError, ProcessGroup};
use mandate_conformance::history::now;
use mandate_conformance::protocol::Instruction;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::installation::{Contact, MemberChange, NoChange, PeerGuarantee, RosterId};
use serde::Serialize;

mod gone;
mod list;

use gone::Gone;
use list::{Known, Listed, leaving, number, told};

/// The fewest members that vote, after any change.
const FEWEST: usize = 3;

/// The most.
const MOST: usize = 7;

/// After this long a leader that is to leave, and still leads, is told to hand over once more.
const HANDS_OVER: Duration = Duration::from_millis(500);

/// What came of changes, for the report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ChangeFigures {
    /// Changes that were made: members added, replaced and removed.
    pub(super) made: usize,
    pub(super) added: usize,
    pub(super) replaced: usize,
    pub(super) removed: usize,
    /// Members that left and had lost their disks.
    pub(super) lost_disks: usize,
    /// Members that left and led when that was asked for.
    pub(super) leaders: usize,
    /// Changes that were asked for while a cut lasted, and those that were settled before it was healed.
    pub(super) asked_in_cuts: usize,
    pub(super) settled_in_cuts: usize,
    /// Changes that were refused since another was under way.
    pub(super) refused_beside_another: usize,
    /// Attempts to add a member under an id that another had had, all of which were refused.
    pub(super) used_ids_refused: usize,
    /// Who votes in the end.
    pub(super) voters: usize,
}

impl fmt::Display for ChangeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { made, added, replaced, removed, lost_disks, leaders, .. } = self;
        let Self { asked_in_cuts, settled_in_cuts, refused_beside_another, .. } = self;
        write!(
            f,
            "{made} changes of members were made: {added} added, {replaced} replaced, {removed} removed. Of those that left, {leaders} led \
             and {lost_disks} had lost their disks. {asked_in_cuts} changes were asked for during a cut, {settled_in_cuts} of them settled \
             before it healed. {refused_beside_another} were refused beside another, and {} ids that were used before. {} vote in the end.",
            self.used_ids_refused, self.voters
        )
    }
}

/// Who the members are, what was asked for in the present phase, and what came of that.
pub(super) struct Membership {
    voters: BTreeSet<MemberId>,
    /// Ids are never used again.
    highest: MemberId,
    asked: Vec<Asked>,
    /// Whether some cannot hear others.
    is_cut: bool,
    gone: Gone,
    /// Of those in the present phase, who led, and who has lost its disk.
    led: BTreeSet<MemberId>,
    lost: BTreeSet<MemberId>,
    /// All that have ever lost their disks.
    forgetful: BTreeSet<MemberId>,
    /// Which leader was told to hand over, and when.
    handed: Option<(MemberId, Term, Instant)>,
    figures: ChangeFigures,
}

/// A change, and the orders by which members were asked to make it.
struct Asked {
    change: MemberChange,
    orders: Vec<(MemberId, u64)>,
    /// The list of the leader that answered that it is settled.
    settled: Option<RosterId>,
    /// A leader has it in its list already, of a former one.
    is_known: bool,
    /// It was asked for while a cut lasted.
    in_cut: bool,
}

impl Membership {
    pub(super) fn of(members: impl IntoIterator<Item = MemberId>) -> Self {
        let voters: BTreeSet<_> = members.into_iter().collect();
        let highest = voters.last().copied().unwrap_or(MemberId::new(0));
        Membership {
            voters,
            highest,
            asked: Vec::new(),
            is_cut: false,
            gone: Gone::default(),
            led: BTreeSet::new(),
            lost: BTreeSet::new(),
            forgetful: BTreeSet::new(),
            handed: None,
            figures: ChangeFigures::default(),
        }
    }

    /// Those that vote while nothing is under way.
    pub(super) fn voters(&self) -> &BTreeSet<MemberId> {
        &self.voters
    }

    /// What came of all changes.
    pub(super) fn figures(&self) -> ChangeFigures {
        ChangeFigures { voters: self.voters.len(), ..self.figures }
    }

    /// The highest id that anyone has, or had.
    pub(super) fn highest(&self) -> MemberId {
        self.highest
    }

    /// The member at this place.
    pub(super) fn at(&self, place: usize) -> MemberId {
        let place = place % self.voters.len().max(1);
        self.voters.iter().nth(place).copied().unwrap_or(MemberId::new(1))
    }

    /// Whether it was a member and is none any more.
    pub(super) fn is_gone(&self, member: MemberId) -> bool {
        self.gone.has(member)
    }

    /// Whether a member votes, and nobody has asked for its removal.
    pub(super) fn stays(&self, member: MemberId) -> bool {
        let leaves = |asked: &Asked| leaving(&asked.change) == Some(member);
        self.voters.contains(&member) && !self.asked.iter().any(leaves)
    }

    /// Whether one more may vote, after all that was asked for.
    pub(super) fn can_grow(&self) -> bool {
        self.expected().len() < MOST
    }

    /// Whether one less may vote, after all that was asked for.
    pub(super) fn can_shrink(&self) -> bool {
        self.expected().len() > FEWEST
    }

    /// Some cannot hear others from now on, or all hear all.
    pub(super) fn cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// Whether a member that is to leave has lost its disk: one at a time, so that the others are a quorum once everything has healed.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    pub(super) fn loses_disk(&mut self, member: MemberId) {
        self.lost.insert(member);
        self.forgetful.insert(member);
    }

    /// The id of one that joins.
    pub(super) fn next_id(&mut self) -> MemberId {
        self.highest = MemberId::new(self.highest.get() + 1);
        self.highest
    }

    /// A change is wanted. `leader` is who leads, if it is known.
    pub(super) fn want(&mut self, change: MemberChange, leader: Option<MemberId>) {
        self.figures.asked_in_cuts += usize::from(self.is_cut);
        let leads = leader.filter(|leader| leaving(&change) == Some(*leader));
        self.led.extend(leads);
        let in_cut = self.is_cut;
        self.asked.push(Asked {
            change,
            orders: Vec::new(),
            settled: None,
            is_known: false,
            in_cut,
        });
    }

    /// The last change that is wanted was asked of a member, under this number.
    pub(super) fn was_asked(&mut self, member: MemberId, order: u64) {
        if let Some(asked) = self.asked.last_mut() {
            asked.orders.push((member, order));
        }
    }

    /// A change was refused since another was under way.
    pub(super) fn was_refused(&mut self) {
        self.figures.refused_beside_another += 1;
    }

    /// A member was killed: it answers nothing that it was asked before.
    pub(super) fn killed(&mut self, member: MemberId) {
        for asked in &mut self.asked {
            asked.orders.retain(|(of, _)| *of != member);
        }
    }

    /// Who votes when all is made that was asked for.
    fn expected(&self) -> BTreeSet<MemberId> {
        let mut voters = self.voters.clone();
        for Asked { change, .. } in &self.asked {
            if let MemberChange::Add { member, .. } = change {
                voters.insert(*member);
            }
            leaving(change).map(|member| voters.remove(&member));
        }
        voters
    }

    /// Has the leader of the moment go on with what was asked for, while faults last. Those in `paused` answer nothing.
    pub(super) fn go_on(
        &mut self,
        group: &mut ProcessGroup,
        paused: &BTreeSet<MemberId>,
    ) -> Result<(), GroupError> {
        self.hear(group)?;
        let Some(act) = group.history()?.latest() else { return Ok(()) };
        let running: BTreeSet<_> =
            group.members().into_iter().filter(|id| !paused.contains(id)).collect();
        let next = self.asked.iter().position(|it| it.settled.is_none() && !it.is_known);
        let Some(next) = next.filter(|_| running.contains(&act.member)) else { return Ok(()) };
        if self.asked[next].change != (MemberChange::Remove { member: act.member }) {
            self.ask(next, act.member, group);
        } else if let Some(heir) = self.expected().iter().find(|id| running.contains(id)) {
            self.hand_over((act.member, act.term), *heir, group);
        }
        Ok(())
    }

    /// Everything has healed: has what was asked for made, and waits until the leader's list says so and is settled, everyone goes by
    /// it, and those that were removed know it. What must not be.
    pub(super) fn complete(
        &mut self,
        group: &mut ProcessGroup,
        reuse: impl Fn(MemberId) -> MemberChange,
    ) -> Result<Vec<String>, GroupError> {
        let (expected, began) = (self.expected(), now());
        let names: Vec<_> = expected.iter().map(ToString::to_string).collect();
        let what = format!("the leader goes by the voters {}, as was asked for", names.join(" "));
        let mut last = String::new();
        let looked =
            group.until(what, |group| self.look(&expected, began, group, &mut last).transpose());
        let (list, violations) = match looked {
            Err(GroupError::NotInTime { what, bound, log }) => {
                let what = format!("{what}; its list was last {last}");
                return Err(GroupError::NotInTime { what, bound, log });
            }
            looked => looked??,
        };
        if !violations.is_empty() {
            return Ok(violations);
        }
        let has_left = self.take_note(expected, list);
        let mut violations = Vec::new();
        if has_left && let Some(used) = self.gone.last() {
            violations.extend(self.refuses(reuse(used), group)?);
        }
        self.await_told(group)?;
        Ok(violations)
    }

    /// Looks at the leader's list once: its number and what must not be in it, if that is to be known or if all is as it should be.
    fn look(
        &mut self,
        expected: &BTreeSet<MemberId>,
        began: u64,
        group: &mut ProcessGroup,
        last: &mut String,
    ) -> Result<Option<(RosterId, Vec<String>)>, GroupError> {
        self.hear(group)?;
        let act = group.history()?.latest().filter(|act| act.at >= began);
        let settled = self.asked.iter().filter_map(|asked| asked.settled).max();
        // One that was deposed and does not know it may act: without leases, in its old term.
        let newest = settled.map_or(Term::NONE, |settled| settled.term);
        let Some(act) = act.filter(|act| act.term >= newest) else { return Ok(None) };
        let Some(listed) = list_of(act.member, group, last)? else { return Ok(None) };
        let violations = self.known().violations(act.member, &listed);
        if !violations.is_empty() {
            return Ok(Some((listed.id, violations)));
        }
        if listed.is_of(expected) && (listed.is_settled || listed.id.is_seed()) {
            let agree = everyone_has(expected, listed.id, group)?;
            return Ok(agree.then_some((listed.id, violations)));
        }
        self.ask_for_the_rest((act.member, act.term), expected, &listed, group);
        Ok(None)
    }

    fn known(&self) -> Known<'_> {
        Known {
            voters: &self.voters,
            asked: self.asked.iter().map(|it| (&it.change, it.settled)).collect(),
            gone: self.gone.ids(),
        }
    }

    /// Takes note of what was answered.
    fn hear(&mut self, group: &mut ProcessGroup) -> Result<(), GroupError> {
        group.history()?;
        for asked in &mut self.asked {
            for (member, order) in std::mem::take(&mut asked.orders) {
                match group.answered(order) {
                    Some(Ok(list)) => {
                        let nonsense = || GroupError::Nonsense { member, line: list.clone() };
                        let list = number(&list).ok_or_else(nonsense)?;
                        let is_in_cut = asked.in_cut && self.is_cut && asked.settled.is_none();
                        self.figures.settled_in_cuts += usize::from(is_in_cut);
                        asked.settled = asked.settled.max(Some(list));
                    }
                    Some(Err(reason)) => {
                        let made = match asked.change {
                            MemberChange::Remove { .. } => NoChange::Unknown,
                            _ => NoChange::Known,
                        };
                        asked.is_known |= is_refusal(&reason, made);
                    }
                    None => asked.orders.push((member, order)),
                }
            }
        }
        Ok(())
    }

    /// Asks the leader for what its list does not say yet. A leader that is to leave hands over first, as it would be told to.
    fn ask_for_the_rest(
        &mut self,
        (leader, term): (MemberId, Term),
        expected: &BTreeSet<MemberId>,
        listed: &Listed,
        group: &mut ProcessGroup,
    ) {
        let next = self.asked.iter().position(|asked| !listed.shows(&asked.change));
        let removes = MemberChange::Remove { member: leader };
        let is_leaving = listed.replaced.contains(&leader)
            || next.is_some_and(|next| self.asked[next].change == removes);
        let heir = expected.iter().find(|id| listed.voters.contains(*id));
        match (next, heir) {
            (_, Some(heir)) if is_leaving => self.hand_over((leader, term), *heir, group),
            (Some(next), _) if !is_leaving => self.ask(next, leader, group),
            _ => {}
        }
    }

    /// Asks a leader for a change, unless it was asked and has not answered.
    fn ask(&mut self, next: usize, leader: MemberId, group: &mut ProcessGroup) {
        let asked = &mut self.asked[next];
        if !asked.orders.iter().any(|(member, _)| *member == leader)
            // Whether its process has ended by itself is looked for elsewhere.
            && let Ok(order) = group.tell(leader, Instruction::Change(asked.change.clone()))
        {
            asked.orders.push((leader, order));
        }
    }

    /// Tells a leader that is to leave to hand over. Whether it could is seen by who leads then.
    fn hand_over(
        &mut self,
        (leader, term): (MemberId, Term),
        heir: MemberId,
        group: &mut ProcessGroup,
    ) {
        let was_told = self.handed.is_some_and(|(told, of, at)| {
            (told, of) == (leader, term) && at.elapsed() < HANDS_OVER
        });
        if !was_told && group.tell(leader, Instruction::Transfer(heir)).is_ok() {
            self.handed = Some((leader, term, Instant::now()));
        }
    }

    /// All is made that was asked for, by this list. Whether somebody has left.
    fn take_note(&mut self, voters: BTreeSet<MemberId>, list: RosterId) -> bool {
        for Asked { change, .. } in std::mem::take(&mut self.asked) {
            let figures = &mut self.figures;
            figures.made += 1;
            match change {
                MemberChange::Add { replaces: None, .. } => figures.added += 1,
                MemberChange::Add { .. } => figures.replaced += 1,
                _ => figures.removed += 1,
            }
        }
        let left: Vec<_> = self.voters.difference(&voters).copied().collect();
        let count = |of: &BTreeSet<MemberId>| left.iter().filter(|id| of.contains(*id)).count();
        self.figures.lost_disks += count(&self.lost);
        self.figures.leaders += count(&self.led);
        self.lost.clear();
        self.led.clear();
        left.iter().for_each(|member| self.gone.insert(*member, list, now()));
        self.voters = voters;
        !left.is_empty()
    }

    /// Has the leader add a member that there was: it must refuse, and say why. What must not be.
    fn refuses(
        &mut self,
        change: MemberChange,
        group: &mut ProcessGroup,
    ) -> Result<Option<String>, GroupError> {
        let what = format!("the leader refuses {}, who was a member once", told(&change));
        let (began, mut order) = (now(), None);
        let answer = group.until(what, |group| {
            let answer = order.and_then(|order| group.answered(order));
            match answer {
                Some(Err(reason)) if !is_refusal(&reason, NoChange::UsedBefore) => order = None,
                Some(answer) => return Some(Ok(answer)),
                None => {}
            }
            let act = group.history().ok()?.latest().filter(|act| act.at >= began)?;
            if order.is_none() {
                match group.tell(act.member, Instruction::Change(change.clone())) {
                    Ok(number) => order = Some(number),
                    Err(error) => return Some(Err(error)),
                }
            }
            None
        })??;
        self.figures.used_ids_refused += usize::from(answer.is_err());
        let member = change.member();
        Ok(answer.ok().map(|list| {
            format!(
                "{member} was added by list {list}, and was a member once: its id was used twice"
            )
        }))
    }

    /// Waits until those that were removed, and run, go by a list that does not name them. Who has lost its disk need not hear of it: it has
    /// no vote, and knows only whom its configuration names, who may all have left before.
    fn await_told(&mut self, group: &mut ProcessGroup) -> Result<(), GroupError> {
        let gone: Vec<_> =
            group.members().into_iter().filter(|member| self.gone.has(*member)).collect();
        for member in gone {
            group.leave_outside(member);
            if self.forgetful.contains(&member) {
                continue;
            }
            let what = format!("{member}, which was removed, goes by a list without itself");
            let told = group.until(what, |group| {
                let listed = list_of(member, group, &mut String::new()).transpose()?;
                let is_without = |listed: Listed| (!listed.has(member)).then_some(());
                listed.map(is_without).transpose()
            });
            told??;
            self.gone.told(member, now());
        }
        Ok(())
    }

    /// Another phase is over: removed members whose processes may end.
    pub(super) fn pass(&mut self) -> Vec<MemberId> {
        self.gone.pass()
    }

    /// What removed members have done and must not.
    pub(super) fn violations(&self, group: &mut ProcessGroup) -> Result<Vec<String>, GroupError> {
        let is_leased = matches!(group.guarantee(), PeerGuarantee::Leased { .. });
        Ok(self.gone.violations(group.history()?, is_leased))
    }
}

/// The list that a member goes by, if it says so.
fn list_of(
    member: MemberId,
    group: &mut ProcessGroup,
    last: &mut String,
) -> Result<Option<Listed>, GroupError> {
    if !group.members().contains(&member) {
        return Ok(None);
    }
    let Ok(text) = group.order(member, Instruction::Members)? else { return Ok(None) };
    let listed = text.parse().map_err(|line| GroupError::Nonsense { member, line })?;
    *last = text;
    Ok(Some(listed))
}

/// Whether all of these go by this list.
fn everyone_has(
    members: &BTreeSet<MemberId>,
    list: RosterId,
    group: &mut ProcessGroup,
) -> Result<bool, GroupError> {
    for member in members {
        let listed = list_of(*member, group, &mut String::new())?;
        if listed.is_none_or(|listed| listed.id != list) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an answer says that a change was refused for this reason.
pub(super) fn is_refusal(answer: &str, reason: NoChange) -> bool {
    answer == format!("refused: {reason}")
}

/// Adds a member that is found there.
pub(super) fn adding(
    member: MemberId,
    address: impl ToString,
    replaces: Option<MemberId>,
) -> MemberChange {
    let contact = Contact { name: String::new(), address: address.to_string() };
    MemberChange::Add { member, contact, replaces }
}
