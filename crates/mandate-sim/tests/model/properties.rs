//! The names of what must hold, always or at some time.

/// No term is held by two members, nor twice by one.
pub(crate) const ONE_LEADER: &str = "one leader per term";
/// What a disk holds only rises, and one term is promised to one member.
pub(crate) const TERMS_RISE: &str = "terms rise";
/// At most one member's mandate holds at any instant.
pub(crate) const ONE_MANDATE: &str = "one mandate at a time";
/// At some time someone leads.
pub(crate) const LED: &str = "a leader is installed";
/// At some time someone else follows in a higher term.
pub(crate) const SUCCEEDED: &str = "a second member leads in a higher term";
