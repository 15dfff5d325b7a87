//! Under leases, at no instant of true time do the mandates of two members hold.

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
    let mut holders = (0..size).filter(|host| holds(*host));
    match (holders.next(), holders.next()) {
        (Some(one), Some(other)) => Err(format!("{} and {} hold at once", Name(one), Name(other))),
        _ => Ok(()),
    }
}
