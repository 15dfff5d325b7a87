//! Leadership given up or handed over by way of the database alone: a line in the leader's row, which it finds with its next renewal.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mandate::sql::engine::Address;
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::pole::member::ANSWERED_WITHIN;

use super::WhereArgs;
use super::show::Reader;
use crate::exit::Exit;
use crate::output;

/// How often the row is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Has the leader give leadership up, or hand it over to a member that is named.
pub(crate) fn request(
    address: &Address,
    at: &WhereArgs,
    to: Option<MemberId>,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(address, at)?;
    let seen = reader.look()?;
    let group = reader.group();
    let leader = seen.leader().with_context(|| format!("nobody leads {group} now"))?;
    if let Some(to) = to {
        ensure!(to != leader, "{to} leads {group} already");
        let member = seen.member(to);
        let names = || seen.members().map(|id| id.to_string()).collect::<Vec<_>>().join(", ");
        let member =
            member.with_context(|| format!("{to} is not in {group}; there are {}", names()))?;
        ensure!(member.score.is_some(), "{to} is no candidate: it may not lead");
    }
    let term = seen.term();
    ensure!(
        reader.request(term, to)?,
        "{leader} leads no more in term {term}: look who leads now, and ask again"
    );
    let text = match (next(&reader, leader, term)?, to) {
        (None, _) => format!("{leader} has given term {term} up; nobody has taken over yet"),
        (Some((next, then)), Some(to)) if next == to => {
            format!("handed over to {to}, which leads in term {then}")
        }
        (Some((next, then)), Some(to)) => {
            bail!("{leader} has given term {term} up, and {next}, not {to}, leads in term {then}")
        }
        (Some((next, then)), None) => {
            format!("{leader} has given term {term} up; {next} leads in term {then}")
        }
    };
    output::print(text)?;
    Ok(Exit::Success)
}

/// Waits until that term is over: who leads then, if anyone does soon.
fn next(reader: &Reader, leader: MemberId, term: Term) -> anyhow::Result<Option<(MemberId, Term)>> {
    let began = Instant::now();
    let mut given_up = None;
    loop {
        let control = reader.standing()?.control;
        let (now, by) = (control.version.term, control.leader.map(|holder| holder.member));
        if let Some(by) = by.filter(|_| now > term) {
            return Ok(Some((by, now)));
        }
        if now > term || by.is_none() {
            given_up.get_or_insert_with(Instant::now);
        }
        // Who comes next looks several times a lease.
        if given_up.is_some_and(|when| when.elapsed() > control.published.lease * 2) {
            return Ok(None);
        }
        ensure!(
            given_up.is_some() || began.elapsed() < ANSWERED_WITHIN,
            "{leader} has not given term {term} up within {}: its log says why, unless it is of a release before 0.2; it may \
             still do it",
            humantime::format_duration(ANSWERED_WITHIN)
        );
        std::thread::sleep(LOOK);
    }
}
