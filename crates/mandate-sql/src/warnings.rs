//! What an operator should know of, in the log: a member's operator sees it, also where nobody listens to its events.

use mandate_proto::identity::Term;
use mandate_proto::registers::{Config, ControlState, Event, Part, SqlGuarantee};

/// Logs an event that an operator should know of.
pub(crate) fn log(event: &Event, config: &Config) {
    let pause = config.wait(config.longest_lease());
    match event {
        Event::WentBack { from, to } => {
            let to = to.map_or("nothing".to_owned(), |to| to.to_string());
            tracing::warn!(
                %from,
                to,
                ?pause,
                "the control row went back: a backup was put back, a standby promoted too early, or rows were removed. \
                 Waiting for leases that may have been lost. Terms that the history has lost, too, may be given out again: if \
                 you know how far they had come, run `mandate sql raise`"
            );
        }
        Event::Remade { term } => tracing::warn!(
            %term,
            ?pause,
            "the control row was lost and made again, or its terms were raised: waiting for leases that may have been lost"
        ),
        Event::Differs { leader, theirs } => tracing::warn!(
            %leader,
            theirs = guarantee_name(*theirs),
            ours = guarantee_name(config.guarantee()),
            "the leader has another guarantee than this member, which takes no part while that one leads: give all \
             members of a group the same guarantee, and stop those with the old one before you start the new ones"
        ),
        _ => {}
    }
}

fn guarantee_name(guarantee: SqlGuarantee) -> &'static str {
    match guarantee {
        SqlGuarantee::Fenced => "fenced",
        SqlGuarantee::Leased => "leased",
    }
}

/// Whether it was said that a leader makes this member wait for longer than it would by itself.
#[derive(Debug, Default)]
pub(crate) struct Dictated(Option<Term>);

impl Dictated {
    /// Logs, once for each term, that the lease in the row is longer than this member's own could become.
    pub(crate) fn check(&mut self, row: &ControlState, config: &Config) {
        let Some(leader) = row.leader.filter(|leader| leader.member != config.me()) else { return };
        let is_long = row.published.lease > config.longest_lease();
        if is_long && config.part() != Part::Observer && self.0 != Some(row.version.term) {
            self.0 = Some(row.version.term);
            tracing::warn!(
                leader = %leader.member,
                round = ?row.published.round,
                lease = ?row.published.lease,
                own_round = ?config.round(),
                "the leader has a far longer round than this member: if it dies, its lease is waited for all the same"
            );
        }
    }
}
