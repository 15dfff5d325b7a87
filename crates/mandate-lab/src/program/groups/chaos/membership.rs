//! Members that come and go while faults last: what was asked for, and whether it came to be.
//!
//! A change is asked of everyone that runs, and made by whoever leads at that moment, if anyone does. What was not made while faults
//! lasted is asked for again once everything has healed, until the leader's list is what it should be: so the list after each
//! phase is known beforehand. What must never be: a change that was answered as settled and is not in the leader's list afterwards.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::str::FromStr;

use mandate_conformance::group::{GroupError, ProcessGroup};
use mandate_conformance::history::now;
use mandate_conformance::protocol::Instruction;
use mandate_proto::identity::MemberId;
use mandate_proto::pole::installation::{Contact, MemberChange};

/// The fewest members that vote, after any change.
const FEWEST: usize = 3;

/// The most.
const MOST: usize = 7;

/// Who the members are, what was asked for in the present phase, and what came of that.
pub(super) struct Membership {
    voters: BTreeSet<MemberId>,
    /// Ids are never used again.
    highest: MemberId,
    asked: Vec<Asked>,
    made: usize,
}

/// A change, and the orders by which members were asked to make it.
struct Asked {
    change: MemberChange,
    orders: Vec<(MemberId, u64)>,
    is_settled: bool,
}

/// What the leader's list says.
struct Listed {
    voters: BTreeSet<MemberId>,
    /// Nobody is to become a voter yet, or to leave.
    is_final: bool,
    /// Those that leave once another votes.
    replaced: BTreeSet<MemberId>,
}

impl FromStr for Listed {
    type Err = String;

    /// Reads the answer of a member.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut listed =
            Listed { voters: BTreeSet::new(), is_final: true, replaced: BTreeSet::new() };
        for word in text.split_whitespace() {
            let read = word.split_once(':').and_then(|(id, part)| {
                let (part, old) = part.split_once('>').unwrap_or((part, ""));
                Some((id.parse().ok()?, part, old.parse().ok()))
            });
            let (id, part, replaces): (MemberId, _, Option<MemberId>) =
                read.ok_or_else(|| format!("`{word}` is no line of a list of members"))?;
            match part {
                "voter" => _ = listed.voters.insert(id),
                "learner" => listed.is_final = false,
                _ => {}
            }
            listed.is_final &= replaces.is_none();
            listed.replaced.extend(replaces);
        }
        Ok(listed)
    }
}

impl Membership {
    pub(super) fn of(members: impl IntoIterator<Item = MemberId>) -> Self {
        let voters: BTreeSet<_> = members.into_iter().collect();
        let highest = voters.last().copied().unwrap_or(MemberId::new(0));
        Membership { voters, highest, asked: Vec::new(), made: 0 }
    }

    /// Those that vote while nothing is under way.
    pub(super) fn voters(&self) -> &BTreeSet<MemberId> {
        &self.voters
    }

    /// How many changes were made.
    pub(super) fn made(&self) -> usize {
        self.made
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

    /// Whether a member is to leave in this phase.
    pub(super) fn leaves(&self, member: MemberId) -> bool {
        self.asked.iter().any(|asked| leaving(&asked.change) == Some(member))
    }

    /// Whether one more may vote, after all that was asked for.
    pub(super) fn can_grow(&self) -> bool {
        self.expected().len() < MOST
    }

    /// Whether one less may vote, after all that was asked for.
    pub(super) fn can_shrink(&self) -> bool {
        self.expected().len() > FEWEST
    }

    /// The id of one that joins.
    pub(super) fn next_id(&mut self) -> MemberId {
        self.highest = MemberId::new(self.highest.get() + 1);
        self.highest
    }

    /// Asks everyone that runs, but for `paused`, to make a change.
    pub(super) fn ask(
        &mut self,
        change: MemberChange,
        group: &mut ProcessGroup,
        paused: &BTreeSet<MemberId>,
    ) -> Result<(), GroupError> {
        let mut orders = Vec::new();
        for member in group.members().into_iter().filter(|member| !paused.contains(member)) {
            orders.push((member, group.tell(member, Instruction::Change(change.clone()))?));
        }
        self.asked.push(Asked { change, orders, is_settled: false });
        Ok(())
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

    /// Everything has healed: has what was asked for made, and waits until the leader's list says so. What must not be.
    pub(super) fn complete(&mut self, group: &mut ProcessGroup) -> Result<Vec<String>, GroupError> {
        let (expected, began) = (self.expected(), now());
        let names: Vec<_> = expected.iter().map(ToString::to_string).collect();
        let what = format!("the leader goes by the voters {}, as was asked for", names.join(" "));
        let mut last = String::new();
        let looked =
            group.until(what, |group| self.look(&expected, began, group, &mut last).transpose());
        let violations = match looked {
            Err(GroupError::NotInTime { what, bound, log }) => {
                let what = format!("{what}; its list says {last}");
                return Err(GroupError::NotInTime { what, bound, log });
            }
            looked => looked??,
        };
        self.made += self.asked.len();
        self.asked.clear();
        self.voters = expected;
        Ok(violations)
    }

    /// Looks at the leader's list once: what must not be in it, if that is to be known, or nothing if it is as it should be.
    fn look(
        &mut self,
        expected: &BTreeSet<MemberId>,
        began: u64,
        group: &mut ProcessGroup,
        last: &mut String,
    ) -> Result<Option<Vec<String>>, GroupError> {
        self.hear(group)?;
        let Some((leader, text)) = leaders_list(group, began)? else { return Ok(None) };
        last.clone_from(&text);
        let nonsense = |line| GroupError::Nonsense { member: leader, line };
        let listed: Listed = text.parse().map_err(nonsense)?;
        let undone = self.asked.iter().filter(|it| it.is_settled && !is_made(&it.change, &text));
        let undone: Vec<_> = undone
            .map(|it| format!("{:?} was settled, and {leader} goes by {text}", it.change))
            .collect();
        if !undone.is_empty() || listed.is_final && listed.voters == *expected {
            return Ok(Some(undone));
        }
        self.ask_again(leader, &listed, &text, group)?;
        Ok(None)
    }

    /// Takes note of what was answered.
    fn hear(&mut self, group: &mut ProcessGroup) -> Result<(), GroupError> {
        group.history()?;
        for asked in &mut self.asked {
            let is_settled = &mut asked.is_settled;
            asked.orders.retain(|(_, number)| match group.answered(*number) {
                Some(answer) => {
                    *is_settled |= answer.is_ok();
                    false
                }
                None => true,
            });
        }
        Ok(())
    }

    /// Asks the leader for what its list does not say yet, unless it was asked and has not answered. A leader that is to leave hands over
    /// first, as it would be told to.
    fn ask_again(
        &mut self,
        leader: MemberId,
        listed: &Listed,
        text: &str,
        group: &mut ProcessGroup,
    ) -> Result<(), GroupError> {
        let is_leaving = listed.replaced.contains(&leader) || self.leaves(leader);
        if is_leaving
            && let Some(next) = self.expected().iter().find(|id| listed.voters.contains(*id))
        {
            // Whether it could is seen by who leads then.
            let _ = group.order(leader, Instruction::Transfer(*next))?;
            return Ok(());
        }
        for asked in self.asked.iter_mut().filter(|asked| !is_made(&asked.change, text)) {
            if !asked.orders.iter().any(|(member, _)| *member == leader) {
                let number = group.tell(leader, Instruction::Change(asked.change.clone()))?;
                asked.orders.push((leader, number));
            }
            // One at a time.
            break;
        }
        Ok(())
    }
}

/// Who votes no more after a change.
fn leaving(change: &MemberChange) -> Option<MemberId> {
    match change {
        MemberChange::Add { replaces, .. } => *replaces,
        MemberChange::Remove { member } => Some(*member),
        _ => None,
    }
}

/// Whether a list says that a change was made: an added one is on it, a removed one is not.
fn is_made(change: &MemberChange, text: &str) -> bool {
    let prefix = format!("{}:", change.member());
    let is_listed = text.split_whitespace().any(|word| word.starts_with(&prefix));
    is_listed != matches!(change, MemberChange::Remove { .. })
}

/// Who leads and acts, and the list that it goes by.
fn leaders_list(
    group: &mut ProcessGroup,
    since: u64,
) -> Result<Option<(MemberId, String)>, GroupError> {
    let act = group.history()?.newest().filter(|act| act.at >= since);
    let Some(leader) = act.map(|act| act.member) else { return Ok(None) };
    if !group.members().contains(&leader) {
        return Ok(None);
    }
    Ok(group.order(leader, Instruction::Members)?.ok().map(|text| (leader, text)))
}

/// Adds a member that is found there.
pub(super) fn adding(
    member: MemberId,
    address: SocketAddr,
    replaces: Option<MemberId>,
) -> MemberChange {
    let contact = Contact { name: String::new(), address: address.to_string() };
    MemberChange::Add { member, contact, replaces }
}
