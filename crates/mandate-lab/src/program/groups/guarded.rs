//! A table of the application's own that leaders write to, each write guarded by the fence.
//!
//! What [`mandate_sql::fence`] is for, done as an application does it: a transaction that checks the term and then
//! writes. Each row has the next number in line, which is read after the fence was passed; so the numbers tell in
//! which order terms have written, and a term that comes after a higher one was let through when it should not. Each leader
//! writes by several connections at once.

use std::time::Duration;

use anyhow::Context;
use mandate_conformance::register::Accepted;
use mandate_proto::identity::{MemberId, Term};
use mandate_runtime::Election;
use mandate_sql::Address;
use mandate_sql::fence::{self, Refused};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use rusqlite::TransactionBehavior;
use tokio::time::{sleep, timeout};

use super::client::{Client, PATIENCE};
use super::sql::{PAUSE, make_tables};

/// From the look at the mandate to the write that rests on it: work takes a while, and in that while a mandate may end.
const WORK: Duration = Duration::from_millis(10);

/// How many of a leader's connections write at once.
const AT_ONCE: usize = 3;

const TABLE: &str = "create table if not exists mandate_lab_guarded (group_name varchar(64) not null, \
                     sequence bigint not null, member bigint not null, term bigint not null, \
                     primary key (group_name, sequence))";

/// Makes the tables: the members', and this one.
pub(super) async fn make(address: &Address) -> anyhow::Result<()> {
    make_tables(address).await?;
    Client::open(address).await?.execute(TABLE).await
}

/// Writes that were let through after this one, in order, and the number of the last. A crash may have cost the last ones, where
/// the application does not ask for more than the database is set to: then numbers are given out again.
pub(super) async fn read(
    address: &Address,
    group: &str,
    after: i64,
) -> anyhow::Result<(Vec<Accepted>, i64)> {
    let mut client = Client::open(address).await?;
    if matches!(client, Client::MySql(_)) {
        // A node of a cluster first catches up with the others; harmless elsewhere.
        client.execute("set session wsrep_sync_wait = 1").await?;
    }
    let last = format!(
        "select coalesce(max(sequence), 0) from mandate_lab_guarded where group_name = '{group}'"
    );
    let last = client.numbers::<1>(&last).await?.first().map_or(0, |[last]| *last);
    let after = after.min(last);
    let rows = client
        .numbers::<3>(&format!(
            "select sequence, member, term from mandate_lab_guarded \
             where group_name = '{group}' and sequence > {after} order by sequence"
        ))
        .await?;
    let last = rows.last().map_or(after, |row| row[0]);
    let write = |[_, member, term]: [i64; 3]| {
        let member = MemberId::new(member.try_into().context("no member has this number")?);
        Ok(Accepted { member, term: Term::new(term.try_into().context("no term is below zero")?) })
    };
    Ok((rows.into_iter().map(write).collect::<anyhow::Result<_>>()?, last))
}

/// Who writes, and where.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) address: Address,
    pub(super) group: String,
    pub(super) member: MemberId,
    /// Look at the mandate once, and then write without end.
    pub(super) careless: bool,
}

impl Writer {
    /// Writes while this member leads, until the election ends. On threads of its own: a file's lock is waited for
    /// where the work is done.
    pub(super) fn start(&self, election: &Election) -> anyhow::Result<()> {
        for _ in 0..AT_ONCE {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (writer, election) = (self.clone(), election.clone());
            std::thread::spawn(move || runtime.block_on(writer.write_while_it_leads(election)));
        }
        Ok(())
    }

    async fn write_while_it_leads(self, election: Election) {
        let mut client = None;
        while let Ok(mandate) = election.led().await {
            let mut trusts = false;
            while trusts || mandate.check() {
                trusts = self.careless;
                sleep(WORK).await;
                if let Err(error) = self.write(&mut client, mandate.term()).await {
                    client = None;
                    match error.downcast::<Refused>() {
                        Ok(refused @ Refused::OldTerm(_)) => {
                            tracing::warn!("the fence refused a write: {refused}");
                        }
                        Ok(refused) => tracing::debug!("no guarded write: {refused}"),
                        Err(error) => tracing::debug!("no guarded write: {error:#}"),
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn write(&self, client: &mut Option<Client>, term: Term) -> anyhow::Result<()> {
        let client = match client {
            Some(client) => client,
            None => {
                let mut opened = Client::open(&self.address).await?;
                opened.limit_idle().await?;
                client.insert(opened)
            }
        };
        timeout(PATIENCE, self.fenced(client, term)).await.context("no answer")?
    }

    async fn fenced(&self, client: &mut Client, term: Term) -> anyhow::Result<()> {
        let Writer { group, member, .. } = self;
        let insert = format!(
            "insert into mandate_lab_guarded (group_name, sequence, member, term) \
             select '{group}', coalesce(max(sequence), 0) + 1, {}, {term} from mandate_lab_guarded \
             where group_name = '{group}'",
            member.get()
        );
        match client {
            Client::Sqlite(connection) => {
                let behavior = TransactionBehavior::Immediate;
                let transaction = connection.transaction_with_behavior(behavior)?;
                fence::sqlite(&transaction, group, None, term)?;
                transaction.execute(&insert, [])?;
                transaction.commit()?;
            }
            Client::Postgres(client) => {
                let transaction = client.transaction().await?;
                fence::postgres(&transaction, group, None, term).await?;
                // Transactions of one term pass the fence together: the next number is one's at a time.
                let number = "select pg_advisory_xact_lock(hashtext($1))";
                transaction.execute(number, &[group]).await?;
                transaction.execute(&insert, &[]).await?;
                transaction.commit().await?;
            }
            Client::MySql(connection) => {
                let mut transaction = connection.start_transaction(TxOpts::default()).await?;
                fence::mysql(&mut transaction, group, None, term).await?;
                transaction.query_drop(&insert).await?;
                transaction.commit().await?;
            }
        }
        Ok(())
    }
}
