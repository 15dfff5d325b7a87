//! What must hold of installed leaders, one file each.

pub(crate) mod changes_stay;
pub(crate) mod holders;
pub(crate) mod one_leader_per_term;
pub(crate) mod one_mandate_at_a_time;
pub(crate) mod terms_rise;
