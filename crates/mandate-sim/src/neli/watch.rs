//! What is watched of a run.

use std::collections::BTreeMap;

use mandate_proto::identity::Term;
use mandate_proto::neli::{Event, Holding, Partition, RoleLoss};

use super::Node;
use crate::fault::MemberName;
use crate::network::HostIndex;
use crate::pole::register::Register;
use crate::subject::{Moment, Observation};
use crate::time::SimTime;
use crate::values;
use crate::watch::{Broken, Invariants};

/// Reported when two hold one role at once.
const ONE_HOLDER: &str = "one holder at a time";
/// Reported when a term is not above all that were held before.
const TERMS_RISE: &str = "terms rise";

/// What is led, and what is led no more.
#[derive(Default)]
pub(super) struct Reigns {
    /// How often a partition was acquired.
    acquired: u64,
    /// Under which term each host came to lead a partition last.
    terms: BTreeMap<(HostIndex, Partition), Option<Term>>,
    /// What was led no more, by whom and why.
    pub(super) ended: Vec<(HostIndex, Partition, RoleLoss)>,
}

impl Invariants<Node> for Reigns {
    fn check(&mut self, moment: Moment, what: &Observation<'_, Node>) -> Result<(), Broken> {
        match what {
            Observation::Told(Event::Acquired { partition, term }) => {
                self.acquired += 1;
                self.terms.insert((moment.host, *partition), *term);
            }
            Observation::Told(Event::Published { partition, term, value }) => {
                let held = self.terms.get(&(moment.host, *partition)).copied().flatten();
                let checked = values::of_publisher(moment.host, (held, *term), value);
                return checked.map_err(|what| (values::NAME, what));
            }
            Observation::Told(Event::Ended { partition, loss, .. }) => {
                self.ended.push((moment.host, *partition, *loss));
            }
            _ => {}
        }
        Ok(())
    }

    fn reigns(&self) -> u64 {
        self.acquired
    }
}

/// Who holds one partition, and under which terms it was held; with a register that checks them.
pub(super) struct Holders {
    partition: Partition,
    highest: Option<(Term, HostIndex)>,
    /// What each host held when it was last asked.
    held: BTreeMap<HostIndex, Term>,
    register: Register,
}

impl Holders {
    pub(super) fn new(partition: Partition, seed: u64) -> Self {
        let seed = seed.wrapping_add(u64::from(partition.get()) << 32);
        let (highest, held) = (None, BTreeMap::new());
        Holders { partition, highest, held, register: Register::new(seed) }
    }

    /// Everyone was asked, and these said yes.
    pub(super) fn check(
        &mut self,
        holders: &[(HostIndex, Holding)],
        now: SimTime,
    ) -> Result<(), Broken> {
        let partition = self.partition;
        // Where there are no terms, several may hold it for a while.
        let is_exclusive = holders.iter().any(|(_, holding)| holding.term.is_some());
        if let ([(one, _), (other, _), ..], true) = (holders, is_exclusive) {
            let (one, other) = (MemberName(*one), MemberName(*other));
            let what = format!("{one} and {other} both hold {partition} (at {now} s)");
            return Err((ONE_HOLDER, what));
        }
        for (host, holding) in holders {
            let Some(term) = holding.term else { continue };
            let before = self.held.insert(*host, term);
            let is_new = before != Some(term);
            if is_new && self.highest.is_some_and(|(highest, _)| term <= highest) {
                let (highest, by) = self.highest.expect("checked");
                let what = format!(
                    "{} holds {partition} in term {term}, and {} held it in {highest} (at {now} s)",
                    MemberName(*host),
                    MemberName(by)
                );
                return Err((TERMS_RISE, what));
            }
            self.highest = self.highest.max(Some((term, *host)));
            self.register.write(*host, term, now);
        }
        self.register.check(now).map_err(|what| (Register::NAME, format!("{what} (at {now} s)")))
    }

    /// The highest term under which it was held.
    pub(super) fn highest(&self) -> Option<Term> {
        self.highest.map(|(term, _)| term)
    }
}
