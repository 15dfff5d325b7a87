//! Many roles over the members of one group.
//!
//! A process is in the group once, and contends for every role. Each role has a control row, and so terms and leases of its
//! own: the same rules, the same guarantee. The group's leader spreads roles evenly over the members that are alive, by writing for
//! each whom it prefers; who leads a role and is not preferred hands it over, and after a crash the preferred one has the
//! first turn. A wrong or late preference costs balance, never safety.
//!
//! Every role costs each member a read a round, and its leader four renewals: this is for hundreds of roles, not for
//! hundred thousands.

use futures_util::future::join_all;
use mandate_proto::election::RoleId;
use mandate_proto::registers::{Config, Part};
use mandate_runtime::{Election, ElectionState, Mandate};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::database::Database;
use crate::engine::{Contender, Setup, Sql, start};
use crate::error::SqlError;
use crate::statements::Key;

/// Changes that a slow listener may be behind.
const CHANGES: usize = 1024;

/// This process's part in the roles of a group.
#[derive(Debug)]
pub struct SqlRoles {
    member: Sql,
    roles: Vec<Election>,
    changes: broadcast::Sender<RoleChange>,
    _watching: JoinSet<()>,
}

/// This process leads a role now, or does not any more.
#[derive(Clone, Debug)]
pub struct RoleChange {
    /// The role that is led, or is no more.
    pub role: RoleId,
    /// The mandate, if it leads.
    pub mandate: Option<Mandate>,
}

impl SqlRoles {
    /// Joins a group of so many roles, numbered from zero. All members must say the same number.
    pub fn start(database: &Database, setup: Setup, count: u32) -> Result<Self, SqlError> {
        let Setup { group, label, config } = setup;
        let group_config = config.clone().with_roles(count)?;
        let member = Sql::start(
            database,
            Setup { group: group.clone(), label: label.clone(), config: group_config },
        )?;
        let (changes, mut watching) = (broadcast::Sender::new(CHANGES), JoinSet::new());
        let mut roles = Vec::new();
        for role in (0..count).map(RoleId::new) {
            let config: Config = config.clone().with_part(Part::Role);
            let key = Key { group: group.clone(), role: Some(role) };
            let contender = Contender {
                key,
                label: label.clone(),
                follows: Some(member.incarnation()),
                tells: None,
            };
            let election = start(database, contender, config)?;
            watching.spawn(watch(role, election.clone(), changes.clone()));
            roles.push(election);
        }
        Ok(SqlRoles { member, roles, changes, _watching: watching })
    }

    /// The member of the group: who leads it spreads the roles.
    pub fn member(&self) -> &Sql {
        &self.member
    }

    /// The election of one role; `None` if there is no such role.
    pub fn election(&self, role: RoleId) -> Option<&Election> {
        self.roles.get(role.get() as usize)
    }

    /// The mandate of a role, if this process holds it now.
    pub fn mandate(&self, role: RoleId) -> Option<Mandate> {
        let state = self.election(role)?.state();
        let mandate = state.borrow().mandate().cloned();
        mandate.filter(Mandate::check)
    }

    /// Whether this process leads a role now.
    pub fn is_leader(&self, role: RoleId) -> bool {
        self.mandate(role).is_some()
    }

    /// The roles that this process leads now.
    pub fn owned(&self) -> Vec<RoleId> {
        (0..self.roles.len() as u32).map(RoleId::new).filter(|role| self.is_leader(*role)).collect()
    }

    /// What is won and lost from now on.
    pub fn changes(&self) -> broadcast::Receiver<RoleChange> {
        self.changes.subscribe()
    }

    /// Gives every role back, leaves the group, and ends; bounded.
    pub async fn shutdown(&self) {
        join_all(self.roles.iter().map(Election::shutdown)).await;
        self.member.shutdown().await;
    }
}

/// Tells of a role as it is won and lost.
async fn watch(role: RoleId, election: Election, changes: broadcast::Sender<RoleChange>) {
    let mut state = election.state();
    // The handle would keep the role's member alive.
    drop(election);
    let mut before = None;
    loop {
        let (mandate, ends) = {
            let state = state.borrow_and_update();
            (state.mandate().cloned(), matches!(*state, ElectionState::Stopped))
        };
        let term = mandate.as_ref().map(Mandate::term);
        if std::mem::replace(&mut before, term) != term {
            // Nobody listens, perhaps.
            let _ = changes.send(RoleChange { role, mandate });
        }
        if ends || state.changed().await.is_err() {
            return;
        }
    }
}
