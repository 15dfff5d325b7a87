//! A term, checked in a transaction of MySQL or MariaDB.

use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use mysql_async::prelude::Queryable;
use mysql_async::{Error, Transaction};

use crate::engine::check_group;
use crate::fence::{Refused, number, term_number};
use crate::server::refused;

/// Checks a term in a transaction of MySQL or MariaDB, which must not be SERIALIZABLE: its reads lock the control row, and nobody
/// could renew or take over until it ends. Where that is the session's level it is refused; a level that is set for
/// one transaction alone ([`mysql_async::TxOpts::with_isolation_level`]) cannot be seen.
pub async fn check(
    transaction: &mut Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let values = (group, number(role), term_number(term));
    match transaction.exec_drop("call mandate_fence(?, ?, ?)", values).await {
        Ok(()) => Ok(()),
        Err(Error::Server(error)) => Err(refused(&error.message, group, term)),
        Err(error) => Err(Refused::Database(error.to_string())),
    }
}
