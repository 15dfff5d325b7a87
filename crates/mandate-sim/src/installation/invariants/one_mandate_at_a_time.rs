//! Under leases, at no instant of true time do the mandates of two members hold, what outlives a member
//! ([`holders`](super::holders)) included.

use crate::fault::MemberName;
use crate::network::HostIndex;

/// The name under which it is reported.
pub(crate) const NAME: &str = "one mandate at a time";

/// Asks every member now; `holds` says what it answers.
pub(crate) fn check(size: usize, holds: impl Fn(HostIndex) -> bool) -> Result<(), String> {
    check_all(size, holds, core::iter::empty())
}

/// The same where `orphans` are members whose former incarnations are acted on.
pub(crate) fn check_all(
    size: usize,
    holds: impl Fn(HostIndex) -> bool,
    mut orphans: impl Iterator<Item = HostIndex>,
) -> Result<(), String> {
    let mut holders = (0..size).filter(|host| holds(*host));
    let (first, second) = (holders.next(), holders.next());
    match (first, orphans.next(), orphans.next()) {
        (Some(one), Some(orphan), _) => {
            let (one, orphan) = (MemberName(one), MemberName(orphan));
            return Err(format!("{one} holds while a former life of {orphan} is acted on"));
        }
        (None, Some(one), Some(other)) => {
            let (one, other) = (MemberName(one), MemberName(other));
            return Err(format!("former lives of {one} and {other} are acted on at once"));
        }
        _ => {}
    }
    match (first, second) {
        (Some(one), Some(other)) => {
            Err(format!("{} and {} hold at once", MemberName(one), MemberName(other)))
        }
        _ => Ok(()),
    }
}
