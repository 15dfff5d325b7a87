//! What elections rest on and a server may not give: that what it has acknowledged is on disk, and that there is one copy of
//! each row.
//!
//! What a session can ask for itself, deciding writes ask for ([`crate::batch`]: `synchronous_commit`). What only the server's
//! operator can set is told of: once when a member starts, and by `mandate status`. Nobody leads on a server that does not wait
//! for its disk and has nobody else to keep what it acknowledges, unless the operator says that he accepts that. A row of which
//! each node of a cluster has a copy of its own is refused, because it elects a leader for each.

use crate::batch::{Batch, Done, Step, Value};
use crate::schema::Dialect;

/// The parameter of an address by which an operator accepts that terms may be lost, and its value. On PostgreSQL a setting of
/// the server, the database or the role says the same: `mandate.durability`.
pub(crate) const PARAMETER: &str = "mandate_durability";
pub(crate) const ACCEPTED: &str = "accept-loss";

/// What to ask a server, if there is something to ask. Not every relative of a database knows what is asked for here: then
/// nothing is known, and nothing is said.
pub(crate) fn question(dialect: Dialect) -> Option<Batch> {
    let step = match dialect {
        // Every connection of ours sets what matters.
        Dialect::Sqlite => return None,
        Dialect::Postgres => {
            "select name, setting from pg_settings where name in \
             ('fsync', 'full_page_writes', 'synchronous_standby_names') \
             union all select 'mandate.durability', current_setting('mandate.durability', true)"
        }
        Dialect::MySql => {
            "select @@global.innodb_flush_log_at_trx_commit, @@global.sync_binlog, @@global.log_bin"
        }
    };
    Some(Batch::one(Step::new(step, Vec::new())))
}

/// What the answer means, in words for an operator.
pub(crate) fn doubts(dialect: Dialect, done: &[Done]) -> Vec<String> {
    let rows = done.first().map(|done| done.rows.as_slice()).unwrap_or_default();
    match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Postgres => rows.iter().filter_map(|row| postgres(row)).collect(),
        Dialect::MySql => rows.first().map(|row| mysql(row)).unwrap_or_default(),
    }
}

/// Why nobody may lead there, if so: a crash can undo what was acknowledged, nobody else has it, and nobody has said that
/// this is accepted. Asked of servers with one disk only: the nodes of a cluster keep it for each other. So does a
/// synchronous standby of PostgreSQL, which is also how Neon keeps it, whose servers have `fsync = off`.
pub(crate) fn prohibition(dialect: Dialect, done: &[Done]) -> Option<String> {
    let rows = done.first().map(|done| done.rows.as_slice()).unwrap_or_default();
    let doubt = match dialect {
        Dialect::Sqlite => None,
        Dialect::Postgres => {
            let setting = |wanted: &str| {
                rows.iter().find_map(|row| match row.as_slice() {
                    [Value::Text(name), Value::Text(setting)] if name == wanted => {
                        Some(setting.as_str())
                    }
                    _ => None,
                })
            };
            let is_kept = setting("synchronous_standby_names").is_some_and(|it| !it.is_empty())
                || setting("mandate.durability") == Some(ACCEPTED);
            let fsync = rows.iter().find(|row| row.first() == Some(&Value::from("fsync")));
            fsync.filter(|_| !is_kept).and_then(|row| postgres(row))
        }
        Dialect::MySql => rows.first().and_then(|row| flush(row)),
    };
    let otherwise = "Members do not lead on such a server";
    doubt.map(|doubt| {
        format!("{doubt}. {otherwise}, unless its address says {PARAMETER}={ACCEPTED}")
    })
}

fn postgres(row: &[Value]) -> Option<String> {
    match row {
        [Value::Text(name), Value::Text(setting)]
            if setting == "off" && ["fsync", "full_page_writes"].contains(&name.as_str()) =>
        {
            Some(format!(
                "{name} is off: a crash of the server's host can undo what was acknowledged, and a term may be given out \
             twice. Set {name} = on"
            ))
        }
        _ => None,
    }
}

fn mysql(row: &[Value]) -> Vec<String> {
    let mut doubts = Vec::from_iter(flush(row));
    if let (Some(Value::Int(sync)), Some(Value::Int(1))) = (row.get(1), row.get(2))
        && *sync != 1
    {
        doubts.push(format!(
            "sync_binlog is {sync}: a crash can leave replicas without what was acknowledged. Set it to 1 where they \
             are promoted"
        ));
    }
    doubts
}

fn flush(row: &[Value]) -> Option<String> {
    match row.first() {
        Some(Value::Int(flush)) if *flush != 1 => Some(format!(
            "innodb_flush_log_at_trx_commit is {flush}: a crash can undo up to a second of what was acknowledged, and a \
             term may be given out twice. Set it to 1"
        )),
        _ => None,
    }
}

/// Asks which engines MySQL has, and which one keeps the control rows.
pub(crate) fn engines() -> Batch {
    let engines = "select count(*) from information_schema.engines \
                   where engine = 'ndbcluster' and support in ('YES', 'DEFAULT')";
    let of_control = "select engine from information_schema.tables \
                      where table_schema = database() and table_name = 'mandate_control'";
    let steps = [engines, of_control].map(|sql| Step::new(sql, Vec::new()));
    Batch { steps: steps.into(), atomic: false, announce: None }
}

/// Whether tables have to be made for a cluster, so that all its nodes have the same rows.
pub(crate) fn is_ndb(done: &[Done]) -> bool {
    let count = done.first().and_then(|done| done.rows.first()?.first());
    matches!(count, Some(Value::Int(1..)))
}

/// Why such tables cannot be used, if that is so.
pub(crate) fn split(done: &[Done]) -> Option<String> {
    let engine = done.get(1).and_then(|done| done.rows.first()?.first());
    match engine {
        Some(Value::Text(engine)) if is_ndb(done) && !engine.eq_ignore_ascii_case("ndbcluster") => {
            Some(format!(
                "the server is a node of an NDB cluster, and mandate_control is kept by {engine}, on this node alone: \
                 members on other nodes would elect another leader. Drop the tables of mandate, and make them again with \
                 `mandate sql init`, which has them kept by the cluster"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(rows: Vec<Vec<Value>>) -> Done {
        Done { changed: 0, rows }
    }

    #[test]
    fn what_may_undo_an_acknowledged_write_is_told_by_name() {
        let setting = |name: &str, value: &str| vec![Value::from(name), Value::from(value)];
        let rows = vec![setting("fsync", "off"), setting("full_page_writes", "on")];
        let told = doubts(Dialect::Postgres, &[done(rows)]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("fsync = on"), "{told:?}");
        let numbers = |numbers: [i64; 3]| vec![done(vec![numbers.map(Value::Int).to_vec()])];
        assert_eq!(doubts(Dialect::MySql, &numbers([1, 0, 0])), [""; 0], "no binary log");
        let told = doubts(Dialect::MySql, &numbers([2, 0, 1]));
        assert_eq!(told.len(), 2, "{told:?}");
    }

    #[test]
    fn nobody_leads_where_a_crash_undoes_what_was_acknowledged_unless_that_is_accepted() {
        let refused = |settings: &[(&str, &str)]| {
            let row = |(name, value): &(&str, &str)| vec![Value::from(*name), Value::from(*value)];
            let rows = settings.iter().map(row).collect();
            prohibition(Dialect::Postgres, &[done(rows)])
        };
        let (on, off) = (("fsync", "on"), ("fsync", "off"));
        let told = refused(&[off, ("synchronous_standby_names", "")]).unwrap();
        assert!(told.contains("Set fsync = on"), "{told}");
        assert!(told.contains("mandate_durability=accept-loss"), "{told}");
        assert_eq!(refused(&[on, ("full_page_writes", "off")]), None, "only told of");
        assert_eq!(refused(&[off, ("synchronous_standby_names", "walproposer")]), None);
        assert_eq!(refused(&[off, ("mandate.durability", "accept-loss")]), None);
        assert!(refused(&[off, ("mandate.durability", "off")]).is_some());
        let flush = |flush: i64| {
            let row = [flush, 0, 1].map(Value::Int).to_vec();
            prohibition(Dialect::MySql, &[done(vec![row])])
        };
        assert_eq!(flush(1), None, "sync_binlog is for replicas");
        assert!(flush(2).unwrap().contains("Set it to 1") && flush(0).is_some());
    }

    #[test]
    fn rows_that_each_node_of_a_cluster_has_for_itself_are_refused() {
        let answer = |ndb: i64, engine: &str| {
            [done(vec![vec![ndb.into()]]), done(vec![vec![Value::from(engine)]])]
        };
        assert!(
            split(&answer(1, "InnoDB")).is_some_and(|told| told.contains("on this node alone"))
        );
        assert_eq!(split(&answer(1, "ndbcluster")), None);
        assert_eq!(split(&answer(0, "InnoDB")), None);
        assert_eq!(split(&[done(vec![vec![1.into()]]), done(Vec::new())]), None, "not made yet");
    }
}
