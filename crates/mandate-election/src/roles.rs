//! Many roles in one group: each has a leader of its own, and the members share them.
//!
//! A role has a number. A name that is a number is that role; any other name is a key, and its role is its hash slot
//! ([`Roles::named`]): the same on every member and in every release.

use std::num::NonZeroU32;

use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use mandate_proto::neli::Layout;
use mandate_runtime::Election;

/// A number that is no role's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {number}: the group has {roles}, counted from 0")]
pub struct UnknownRole {
    /// The number.
    pub number: u32,
    /// How many roles the group has.
    pub roles: u32,
}

/// Which role a name stands for in a group of so many: a number is that role, any other name is a key, and its role is its hash
/// slot. With one role, every name is that one's.
pub fn role_named(name: &str, roles: u32) -> Result<RoleId, UnknownRole> {
    // Where a role is led does not matter for its name.
    let layout = Layout::new(NonZeroU32::MIN, roles);
    match name.parse::<u32>() {
        _ if roles == 1 => Ok(RoleId::new(0)),
        Ok(number) if number < roles => Ok(RoleId::new(number)),
        Ok(number) => Err(UnknownRole { number, roles }),
        Err(_) => layout.slot_of(name.as_bytes()).ok_or(UnknownRole { number: 0, roles }),
    }
}

/// The roles of a member's group.
#[derive(Clone, Copy, Debug)]
pub struct Roles<'a> {
    pub(crate) of: Of<'a>,
}

/// Without an engine that has roles, none is ever made.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(feature = "ledger", feature = "sql")), allow(dead_code))]
pub(crate) enum Of<'a> {
    #[cfg(feature = "ledger")]
    Ledger(&'a mandate_ledger::LedgerRoles),
    #[cfg(feature = "sql")]
    Sql(&'a mandate_sql::SqlRoles, u32),
    #[cfg(not(any(feature = "ledger", feature = "sql")))]
    None(std::marker::PhantomData<&'a ()>),
}

impl Roles<'_> {
    /// How many there are, numbered from 0.
    pub fn count(&self) -> u32 {
        match self.of {
            #[cfg(feature = "ledger")]
            Of::Ledger(roles) => roles.layout().roles(),
            #[cfg(feature = "sql")]
            Of::Sql(_, count) => count,
            #[cfg(not(any(feature = "ledger", feature = "sql")))]
            Of::None(_) => 0,
        }
    }

    /// The role with this name: a number, or a key whose hash slot it is.
    pub fn named(&self, name: &str) -> Result<RoleId, UnknownRole> {
        role_named(name, self.count())
    }

    /// Whether this member leads the role now; computed at the call.
    pub fn is_leader(&self, role: RoleId) -> bool {
        self.term(role).is_some()
    }

    /// The term under which this member leads the role now. Zero under [`Overlap`](crate::Guarantee::Overlap), which has none.
    pub fn term(&self, role: RoleId) -> Option<Term> {
        match self.of {
            #[cfg(feature = "ledger")]
            Of::Ledger(roles) => roles.term(role),
            #[cfg(feature = "sql")]
            Of::Sql(roles, _) => Some(roles.mandate(role)?.term()),
            #[cfg(not(any(feature = "ledger", feature = "sql")))]
            Of::None(_) => Some(role).and(None),
        }
    }

    /// The roles that this member leads now.
    pub fn owned(&self) -> Vec<RoleId> {
        (0..self.count()).map(RoleId::new).filter(|role| self.is_leader(*role)).collect()
    }

    /// The election of one role; `None` if there is no such role. On Kafka resigning from one gives up all roles of this
    /// member for a while, and there is no transfer. Shutting down that handle gives up nothing there: the role stays with
    /// this member, and only the handle ends.
    pub fn election(&self, role: RoleId) -> Option<Election> {
        if role.get() >= self.count() {
            return None;
        }
        match self.of {
            #[cfg(feature = "ledger")]
            Of::Ledger(roles) => Some(roles.election(role)),
            #[cfg(feature = "sql")]
            Of::Sql(roles, _) => roles.election(role).cloned(),
            #[cfg(not(any(feature = "ledger", feature = "sql")))]
            Of::None(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_role_and_any_other_name_a_key() {
        let named = |name, roles| role_named(name, roles).map(RoleId::get);
        assert_eq!(named("17", 100).unwrap(), 17);
        assert_eq!(named("backup", 1).unwrap(), 0);
        let slot = Layout::new(NonZeroU32::new(4).unwrap(), 100).slot_of(b"backup").unwrap();
        assert_eq!(named("backup", 100).unwrap(), slot.get());
        assert!(named("100", 100).unwrap_err().to_string().contains("counted from 0"));
    }
}
