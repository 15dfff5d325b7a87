//! A member of a group that elects on a database.

use std::time::Duration;

use mandate_proto::election;
use mandate_proto::identity::MemberId;
use mandate_proto::machine::Effects;
use mandate_proto::registers::{Config, Member, Part, SqlGuarantee, StayId};
use mandate_runtime::driver::Driver;
use mandate_runtime::{Election, EngineSide};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::backend::SqlBackend;
use crate::database::Database;
use crate::error::SqlError;
use crate::rows::MAX_TEXT;
use crate::statements::Key;

/// How a member is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The group's name.
    pub group: String,
    /// Who this is, for people: a host and a process, say. What is beyond 255 characters is cut off.
    pub label: String,
    /// The member, and how its group elects.
    pub config: Config,
}

/// A member on this process's tokio runtime.
#[derive(Clone, Debug)]
pub struct Sql {
    election: Election,
    database: Database,
    group: String,
    me: MemberId,
    incarnation: watch::Receiver<Option<StayId>>,
}

/// Who contends, and for what.
pub(crate) struct Contender {
    pub(crate) key: Key,
    pub(crate) label: String,
    /// Roles: under which number this process is in the group, as its member of the group tells.
    pub(crate) follows: Option<watch::Receiver<Option<StayId>>>,
    /// The group's member: whom it tells.
    pub(crate) tells: Option<watch::Sender<Option<StayId>>>,
}

/// Starts a machine with its driver.
pub(crate) fn start(
    database: &Database,
    mut contender: Contender,
    config: Config,
) -> Result<Election, SqlError> {
    check_group(&contender.key.group)?;
    contender.label = shown_label(&contender.label);
    if config.part() != Part::Observer {
        database.check_writable()?;
        database.check_durable()?;
    }
    let seed = getrandom::u64().map_err(SqlError::Random)?;
    let (election, side) = EngineSide::open(guarantee(&config).lease());
    let mut effects = Effects::new();
    let machine = Member::start(config, seed, side.now(), &mut effects);
    let backend = SqlBackend::new(database, contender, election.request_server());
    tokio::spawn(Driver::new(machine, effects, side, backend).run());
    Ok(election)
}

/// As much of a label as its column takes. MySQL refuses longer ones, and PostgreSQL a zero within: nobody could join.
fn shown_label(label: &str) -> String {
    label.chars().filter(|c| *c != '\0').take(MAX_TEXT).collect()
}

/// Whether a name can be a group's.
pub fn check_group(name: &str) -> Result<(), SqlError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
        return Err(SqlError::Group(name.to_owned()));
    }
    Ok(())
}

impl Sql {
    /// Starts a member. It needs no connection to begin with: without one it tries until there is one.
    pub fn start(database: &Database, setup: Setup) -> Result<Self, SqlError> {
        let Setup { group, label, config } = setup;
        let me = config.me();
        let (tells, incarnation) = watch::channel(None);
        let key = Key { group: group.clone(), role: None };
        let contender = Contender { key, label, follows: None, tells: Some(tells) };
        let election = start(database, contender, config)?;
        Ok(Sql { election, database: database.clone(), group, me, incarnation })
    }

    /// Whether this member's number is in use by a running process: watched for as long as it may take to
    /// show. To be asked before [`start`](Sql::start) where numbers are given by hand. A row that a crash left
    /// behind costs this wait, of one and a half rounds.
    pub async fn is_running(
        database: &Database,
        group: &str,
        member: MemberId,
    ) -> Result<Option<String>, SqlError> {
        let sign = async || {
            let row = database.members(group).await?.into_iter().find(|row| row.member == member);
            let Some(row) = row else { return Ok(None) };
            let standing = database.standing(group).await?;
            let control = standing.map(|standing| standing.control);
            let leads = control.filter(|row| row.leader.is_some_and(|by| by.member == member));
            let round = control.map_or(Duration::ZERO, |control| control.published.round);
            // A leader renews its row, and everyone else beats.
            let sign = (row.incarnation, row.counter, leads.map(|control| control.version));
            Ok::<_, SqlError>(Some((sign, round, row.label)))
        };
        let Some((first, round, _)) = sign().await? else { return Ok(None) };
        let began = std::time::Instant::now();
        while began.elapsed() < round.mul_f64(1.5) {
            sleep((round / 8).max(Duration::from_millis(5))).await;
            let Some((now, _, label)) = sign().await? else { return Ok(None) };
            // That it leads no more is nothing that it has done.
            let renewed = first.2.zip(now.2).is_some_and(|(before, now)| before != now);
            if (now.0, now.1) != (first.0, first.1) || renewed {
                return Ok(Some(label));
            }
        }
        Ok(None)
    }

    /// The handle.
    pub fn election(&self) -> &Election {
        &self.election
    }

    /// The database that it elects on.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Its group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Under which number it is in the group, to watch.
    pub(crate) fn incarnation(&self) -> watch::Receiver<Option<StayId>> {
        self.incarnation.clone()
    }

    /// Its number.
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// Gives leadership back, leaves the group, and ends. Bounded: after two seconds it is let go.
    pub async fn shutdown(&self) {
        self.election.shutdown().await;
    }
}

/// What leaders of such a group rely on.
pub fn guarantee(config: &Config) -> election::Guarantee {
    match config.guarantee() {
        SqlGuarantee::Fenced => election::Guarantee::Fenced,
        SqlGuarantee::Leased => election::Guarantee::Leased { lease: config.lease(config.round()) },
    }
}
