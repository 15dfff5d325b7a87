//! What was acknowledged is there after a crash, whatever a database is set to.

use mandate_proto::identity::Term;
use mandate_proto::registers::{Statement, Version};
use mandate_servers::Server;
use mandate_servers::postgres::{Postgres, PostgresConfig};
use mandate_servers::testing::{PATIENCE, within};
use rustix::process::{Pid, Signal, kill_process};

use super::{Table, takeover};
use crate::Address;

/// `synchronous_commit = off` on the database is common tuning. The server's own writer is made slow, so that what is
/// not asked to be written at the commit is not written before the crash; and it is stopped, since its time may have come just then.
#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_was_acknowledged_outlives_a_crash_where_commits_are_asynchronous() {
    let settings = [("wal_writer_delay", "10s"), ("wal_writer_flush_after", "1GB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let config = PostgresConfig { settings, ..PostgresConfig::default() };
    let mut server = Postgres::launch(&config).unwrap();
    let address: Address = server.url().parse().unwrap();
    Table::open(&address, "crash").await;
    server.sql("alter database postgres set synchronous_commit = off").unwrap();
    server.sql("create table mark (at int); checkpoint").unwrap();
    {
        let table = Table::open(&address, "crash").await;
        let one = table.join(1, None).await;
        let (changed, _) = table.control(takeover(one, Version::default(), None, 1)).await;
        assert!(changed);
        let was = Version { term: Term::new(1), beat: 0 };
        let (changed, row) = table.control(takeover(one, was, Some(one), 2)).await;
        assert!(changed && row.version.term == Term::new(2));
        let writer = "select pid from pg_stat_activity where backend_type = 'walwriter'";
        let writer: i32 = server.sql(writer).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(writer).unwrap(), Signal::STOP).unwrap();
        within(PATIENCE, "the writer has stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{writer}/stat")).unwrap();
            stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
        });
        // What is written asynchronously is lost, so that this test can fail.
        server.sql("insert into mark values (1)").unwrap();
        server.kill().unwrap();
    }
    server.start().unwrap();
    assert_eq!(server.sql("select count(*) from mark").unwrap().trim(), "0", "no crash at all");
    let table = Table::open(&address, "crash").await;
    let (_, row) = table.control(Statement::Look).await;
    assert_eq!(row.version.term, Term::new(2));
}
