//! What must hold of installed leaders, one file each.

pub mod holders;
pub mod one_leader_per_term;
pub mod one_mandate_at_a_time;
pub mod terms_rise;
