//! A term, checked in a transaction of PostgreSQL.

use mandate_proto::election::RoleId;
use mandate_proto::identity::Term;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;

use crate::engine::check_group;
use crate::fence::{Refused, number, term_number};
use crate::server::refused;

/// Checks a term in a transaction of PostgreSQL.
pub async fn check(
    transaction: &Transaction<'_>,
    group: &str,
    role: Option<RoleId>,
    term: Term,
) -> Result<(), Refused> {
    check_group(group)?;
    let values: [&(dyn ToSql + Sync); 3] = [&group, &number(role), &term_number(term)];
    match transaction.execute("select mandate_fence($1, $2, $3)", &values).await {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.as_db_error() {
            Some(server) => refused(server.message(), group, term),
            None => Refused::Database(super::described(&error)),
        }),
    }
}
