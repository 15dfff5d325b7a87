//! fence
use crate::schema::Dialect;
pub(crate) fn functions(_d: Dialect) -> Vec<String> {
    Vec::new()
}
