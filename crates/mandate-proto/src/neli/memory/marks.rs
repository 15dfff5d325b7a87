//! What a coordinator keeps of partitions for their next owners.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::neli::{Mark, Partition};

/// The last word on each partition, of any member.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    kept: BTreeMap<Partition, Mark>,
    /// What inspections are shown instead, where a coordinator answers that was deposed.
    old: Option<BTreeMap<Partition, Mark>>,
}

impl Marks {
    pub(super) fn keep(&mut self, marks: &[(Partition, Mark)]) {
        self.kept.extend(marks.iter().copied());
    }

    /// What was committed last, of every partition. Anyone may ask.
    pub(super) fn all(&self) -> Vec<(Partition, Mark)> {
        let marks = self.old.as_ref().unwrap_or(&self.kept);
        marks.iter().map(|(partition, mark)| (*partition, *mark)).collect()
    }

    pub(super) fn show_old(&mut self, is_old: bool) {
        self.old = is_old.then(|| self.kept.clone());
    }
}
