//! Under leases, at no instant of true time do the mandates of two members hold.

use mandate_proto::pole::installation::Installation;

use crate::fault::Name;
use crate::subject::Observer;
use crate::world::World;

/// The name under which it is reported.
pub const NAME: &str = "one mandate at a time";

/// Asks every member now.
pub fn check<O: Observer<Installation>>(world: &World<Installation, O>) -> Result<(), String> {
    let holds = |host: &usize| {
        let local = world.local_time(*host);
        world.machine(*host).is_some_and(|machine| machine.mandate(local).is_some())
    };
    let mut holders = (0..world.size()).filter(holds);
    match (holders.next(), holders.next()) {
        (Some(one), Some(other)) => Err(format!("{} and {} hold at once", Name(one), Name(other))),
        _ => Ok(()),
    }
}
