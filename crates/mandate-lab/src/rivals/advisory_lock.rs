//! The session that holds PostgreSQL's advisory lock leads.
//!
//! What many programs do: `select pg_advisory_lock(key)` waits until the lock is free, and then one leads
//! for as long as the connection lasts. When the leader's process dies, the kernel closes its connection,
//! the server ends the session, and the next has the lock within milliseconds. But the server does not
//! notice a leader that is stopped or cut off; and when it does give a session up, nothing tells the
//! leader. There is no term by which anyone could tell the two apart.

use std::convert::Infallible;

use super::member::RivalMember;
use super::members::{Contender, MemberError};
use super::postgresql::connect;

/// The key of the lock: any number that all agree on.
const KEY: i64 = 4;

/// Ends the session that holds the lock, as the server does with one that it takes for dead. Prints how
/// many there were.
pub const GIVE_UP: &str = "select count(pg_terminate_backend(pid)) from pg_locks \
                           where locktype = 'advisory' and granted";

/// A member that waits for the lock.
pub struct AdvisoryLock {
    /// Where the server is.
    pub url: String,
}

impl Contender for AdvisoryLock {
    async fn contend(&self, seat: &mut RivalMember) -> Result<Infallible, MemberError> {
        let (client, ended) = connect(&self.url).await?;
        seat.joined();
        loop {
            client.execute("select pg_advisory_lock($1)", &[&KEY]).await?;
            let lasts = ended.clone();
            seat.lead(move || !lasts.has());
            tokio::select! {
                () = ended.wait() => return Err("the connection has ended".into()),
                () = seat.asked_to_resign() => {
                    seat.follow();
                    client.execute("select pg_advisory_unlock($1)", &[&KEY]).await?;
                }
            }
        }
    }
}
