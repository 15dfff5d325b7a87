//! Under leases, at no instant of true time do the mandates of two members hold, what outlives a member
//! ([`holders`](super::holders)) included.

use mandate_proto::pole::installation::Installation;

use crate::fault::Name;
use crate::network::HostIndex;
use crate::subject::Observer;
use crate::world::World;

/// The name under which it is reported.
pub const NAME: &str = "one mandate at a time";

/// Whether the mandate of the member on a host holds now, by its own clock.
pub fn holds<O: Observer<Installation>>(world: &World<Installation, O>, host: HostIndex) -> bool {
    let local = world.local_time(host);
    world.machine(host).is_some_and(|machine| machine.mandate(local).is_some())
}

/// Asks every member now; `holds` says what it answers.
pub fn check(size: usize, holds: impl Fn(HostIndex) -> bool) -> Result<(), String> {
    check_all(size, holds, core::iter::empty())
}

/// The same where `orphans` are members whose former lives are acted on.
pub fn check_all(
    size: usize,
    holds: impl Fn(HostIndex) -> bool,
    mut orphans: impl Iterator<Item = HostIndex>,
) -> Result<(), String> {
    let mut holders = (0..size).filter(|host| holds(*host));
    let (first, second) = (holders.next(), holders.next());
    match (first, orphans.next(), orphans.next()) {
        (Some(one), Some(orphan), _) => {
            let (one, orphan) = (Name(one), Name(orphan));
            return Err(format!("{one} holds while a former life of {orphan} is acted on"));
        }
        (None, Some(one), Some(other)) => {
            let (one, other) = (Name(one), Name(other));
            return Err(format!("former lives of {one} and {other} are acted on at once"));
        }
        _ => {}
    }
    match (first, second) {
        (Some(one), Some(other)) => Err(format!("{} and {} hold at once", Name(one), Name(other))),
        _ => Ok(()),
    }
}
