//! Mandate's own SQL engine in the frame of its rivals.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use mandate_proto::identity::MemberId;
use mandate_proto::registers::{self, Config};
use mandate_runtime::{ElectionState, Event};
use mandate_sql::{Address, Database, Setup, Sql};
use tokio::sync::OnceCell;
use tokio::sync::broadcast::error::RecvError;

use super::member::RivalMember;
use super::members::{Contender, MemberError};

/// A member of the SQL engine.
pub struct Ours {
    address: Address,
    group: String,
    config: Config,
    /// Connections that members of this process share; none if each has its own.
    shared: Vec<OnceCell<Database>>,
    next: AtomicUsize,
}

impl Ours {
    /// Members that elect like this, with a connection each, or so many for all of this process.
    pub fn new(
        address: Address,
        group: String,
        config: Config,
        connections: Option<usize>,
    ) -> Self {
        let shared = (0..connections.unwrap_or(0)).map(|_| OnceCell::new()).collect();
        Ours { address, group, config, shared, next: AtomicUsize::new(0) }
    }

    async fn database(&self) -> Result<Database, MemberError> {
        let open = || Database::open(&self.address, self.config.round());
        let place = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(self.shared.len());
        Ok(match place {
            Some(place) => self.shared[place].get_or_try_init(open).await?.clone(),
            None => open().await?,
        })
    }
}

impl Contender for Ours {
    async fn contend(&self, seat: &mut RivalMember) -> Result<Infallible, MemberError> {
        let database = self.database().await?;
        let me = MemberId::new(u32::try_from(seat.member())?);
        let (group, config) = (self.group.clone(), self.config.clone().with_me(me));
        let member = Sql::start(&database, Setup { group, label: me.to_string(), config })?;
        let mut events = member.election().events();
        let mut state = member.election().state();
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(Event::OnDatabase(registers::Event::Joined { .. })) => seat.joined(),
                    Ok(Event::OnDatabase(registers::Event::Evicted { .. })) => seat.evicted(),
                    Ok(Event::OnDatabase(registers::Event::RoundChanged { round })) => seat.round(round),
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err("the member has ended".into()),
                },
                Ok(()) = state.changed() => match &*state.borrow_and_update() {
                    ElectionState::Leading(mandate) => {
                        let mandate = mandate.clone();
                        seat.lead(move || mandate.check());
                        seat.round(self.config.round());
                    }
                    // It acts for as long as its mandate holds.
                    ElectionState::Jeopardy(_) => {}
                    ElectionState::Stopped => return Err("the member has ended".into()),
                    _ => seat.follow(),
                },
                () = seat.asked_to_resign() => member.election().resign().await,
            }
        }
    }
}
