//! ZooKeeper's recipe: every member has an ephemeral node with a number, and watches the one before its own; the
//! first leads.
//!
//! A node goes with its session, and a session with the last ping of its client, a session timeout later;
//! also when the client's process has died, since ZooKeeper ends no session because a connection did. A
//! leader acts only while its client is connected, as those who maintain clients advise.

use std::convert::Infallible;
use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, Error, EventType, SessionState};

use super::member::RivalMember;
use super::members::{Contender, MemberError};

const DIRECTORY: &str = "/election";

/// A member with a node of its own.
pub struct Recipe {
    /// Host and port of the server.
    pub address: String,
    /// How long the server waits for a ping. It raises what is below two of its ticks.
    pub session: Duration,
}

impl Contender for Recipe {
    async fn contend(&self, seat: &mut RivalMember) -> Result<Infallible, MemberError> {
        let connector = Client::connector().with_session_timeout(self.session);
        let client = connector.connect(&self.address).await?;
        let acls = Acls::anyone_all();
        match client.create(DIRECTORY, b"", &CreateMode::Persistent.with_acls(acls)).await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => return Err(error.into()),
        }
        let mut session = client.state_watcher();
        loop {
            let mode = CreateMode::EphemeralSequential.with_acls(acls);
            let (_, number) = client.create(&format!("{DIRECTORY}/n-"), b"", &mode).await?;
            let mine = format!("n-{number}");
            seat.joined();
            until_first(&client, &mine).await?;
            let leads = client.clone();
            seat.lead(move || leads.state() == SessionState::SyncConnected);
            loop {
                tokio::select! {
                    state = session.changed() => if state.is_terminated() {
                        return Err(format!("the session has ended: {state}").into());
                    },
                    () = seat.asked_to_resign() => break,
                }
            }
            seat.follow();
            client.delete(&format!("{DIRECTORY}/{mine}"), None).await?;
        }
    }
}

/// Waits until no node has a smaller number.
async fn until_first(client: &Client, mine: &str) -> Result<(), MemberError> {
    loop {
        let mut nodes = client.list_children(DIRECTORY).await?;
        nodes.sort_unstable();
        let place = nodes.iter().position(|node| node == mine);
        let before = match place.ok_or("the own node has gone")? {
            0 => return Ok(()),
            place => &nodes[place - 1],
        };
        let (found, watcher) =
            client.check_and_watch_stat(&format!("{DIRECTORY}/{before}")).await?;
        if found.is_some() {
            let event = watcher.changed().await;
            if event.event_type == EventType::Session {
                return Err(format!("the session has ended: {}", event.session_state).into());
            }
        }
    }
}
