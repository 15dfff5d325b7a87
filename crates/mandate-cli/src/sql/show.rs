//! What the database itself says of a group: no daemon is asked, and nobody is disturbed.

use std::time::{Duration, Instant};

use anyhow::Context;
use mandate::sql::engine::database::{ControlRowStatus, MemberEntry, Reigned, RoleEntry};
use mandate::sql::engine::{Address, Database};
use mandate_proto::identity::{MemberId, Term};
use mandate_proto::registers::Reason;
use serde::Serialize;

use super::WhereArgs;
use super::words::{because, guarantee_name, reason_name};
use crate::exit::Exit;
use crate::ledger::named;
use crate::output::{self, Format, readable};

/// How long a read may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many terms are shown.
const SHOWN: u32 = 50;

#[derive(Serialize)]
struct StatusDocument {
    group: String,
    leader: Option<String>,
    term: u64,
    /// What the leader has published with its term.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Why the term began, or, without a leader, ended.
    reason: &'static str,
    round_ms: f64,
    lease_ms: f64,
    /// Who comes next, the first first.
    successors: Vec<String>,
    /// Whether successors learn at once of the death of the leader's process.
    session_lock: bool,
    /// What the leader relies on.
    guarantee: &'static str,
    /// What elections rest on and this server does not give.
    warnings: Vec<String>,
    members: Vec<MemberDocument>,
    /// Who leads which role; none where the group has no roles beside its own.
    roles: Vec<RoleDocument>,
}

#[derive(Serialize)]
struct RoleDocument {
    role: u32,
    leader: Option<String>,
    term: u64,
}

#[derive(Serialize)]
struct MemberDocument {
    member: String,
    label: String,
    /// Heartbeats so far.
    heartbeats: u64,
    score: Option<Vec<f64>>,
    /// Its place among the successors, from 1.
    place: Option<usize>,
}

#[derive(Serialize)]
struct ReignDocument {
    term: u64,
    leader: String,
    label: String,
    reason: &'static str,
    former: Option<String>,
    began_ms: i64,
}

/// A group, as its rows show it.
pub(super) struct Seen {
    standing: ControlRowStatus,
    /// Whether the leader renews. A row alone does not tell: the leader may have died long ago.
    renews: bool,
    members: Vec<MemberEntry>,
    /// Without a leader where none renews.
    roles: Vec<RoleEntry>,
    doubts: Vec<String>,
}

/// A connection, and a runtime to use it on.
pub(super) struct Reader {
    runtime: tokio::runtime::Runtime,
    database: Database,
    group: String,
}

impl Reader {
    pub(super) fn open(address: &Address, at: &WhereArgs) -> anyhow::Result<Self> {
        let group = at.group.clone().context("name the group with --group")?;
        mandate::sql::engine::engine::check_group(&group)?;
        if let Address::Sqlite(path) = address {
            anyhow::ensure!(path.exists(), "there is no file {}", path.display());
        }
        let runtime = tokio::runtime::Runtime::new()?;
        let database = runtime.block_on(Database::open(address, PATIENCE))?;
        Ok(Reader { runtime, database, group })
    }

    /// Looks until the leader has renewed, and those of the roles, or have not for a whole lease.
    pub(super) fn look(&self) -> anyhow::Result<Seen> {
        self.runtime.block_on(async {
            let first = self.read_standing().await?;
            let first_roles = self.database.roles(&self.group).await?;
            let (began, lease) = (Instant::now(), first.control.published.lease);
            let mut renews = first.control.leader.is_none();
            let version = first.control.version;
            let (mut standing, mut roles) = (first, first_roles.clone());
            let stands_still = |roles: &[RoleEntry]| {
                roles.iter().any(|role| role.leader.is_some() && first_roles.contains(role))
            };
            while (!renews || stands_still(&roles)) && began.elapsed() <= lease.mul_f64(1.1) {
                tokio::time::sleep((lease / 20).max(Duration::from_millis(5))).await;
                standing = self.read_standing().await?;
                roles = self.database.roles(&self.group).await?;
                renews = standing.control.version != version;
            }
            for role in roles.iter_mut().filter(|role| first_roles.contains(role)) {
                role.leader = None;
            }
            let members = self.database.members(&self.group).await?;
            let doubts = self.database.doubts().await;
            Ok(Seen { standing, renews, members, roles, doubts })
        })
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// The control row as it is now, whether its leader renews it or not.
    pub(super) fn standing(&self) -> anyhow::Result<ControlRowStatus> {
        self.runtime.block_on(self.read_standing())
    }

    /// Asks the leader of a term for something; false if that term is over.
    pub(super) fn request(&self, term: Term, to: Option<MemberId>) -> anyhow::Result<bool> {
        Ok(self.runtime.block_on(self.database.request(&self.group, term, to))?)
    }

    async fn read_standing(&self) -> anyhow::Result<ControlRowStatus> {
        let standing = self.database.standing(&self.group).await?;
        standing.with_context(|| format!("nobody has joined {} yet", self.group))
    }

    fn history(&self) -> anyhow::Result<Vec<Reigned>> {
        let mut reigns = self.runtime.block_on(self.database.history(&self.group, SHOWN))?;
        name_former(&mut reigns);
        Ok(reigns)
    }
}

impl Seen {
    pub(super) fn term(&self) -> Term {
        self.standing.control.version.term
    }

    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> {
        self.members.iter().map(|row| row.member)
    }

    pub(super) fn member(&self, member: MemberId) -> Option<&MemberEntry> {
        self.members.iter().find(|row| row.member == member)
    }

    pub(super) fn leader(&self) -> Option<MemberId> {
        self.standing.control.leader.filter(|_| self.renews).map(|leader| leader.member)
    }

    /// What the leader has published, if there is one.
    fn value(&self) -> Option<&str> {
        self.leader().and(self.standing.value.as_ref()).map(|value| value.as_str())
    }

    fn label(&self, member: MemberId) -> &str {
        self.member(member).map_or("no longer in the group", |row| row.label.as_str())
    }

    fn document(&self, group: &str) -> StatusDocument {
        let control = &self.standing.control;
        let successors = control.published.successors;
        StatusDocument {
            group: group.to_owned(),
            leader: self.leader().map(|leader| leader.to_string()),
            term: control.version.term.get(),
            value: self.value().map(str::to_owned),
            reason: reason_name(control.reason),
            round_ms: output::ms(control.published.round),
            lease_ms: output::ms(control.published.lease),
            successors: successors.iter().map(|id| id.to_string()).collect(),
            session_lock: self.standing.has_session_lock,
            guarantee: guarantee_name(control.published.guarantee),
            warnings: self.doubts.clone(),
            members: self
                .members
                .iter()
                .map(|row| MemberDocument {
                    member: row.member.to_string(),
                    label: row.label.clone(),
                    heartbeats: row.counter,
                    score: row.score.clone(),
                    place: successors.rank_of(row.member).map(|rank| rank + 1),
                })
                .collect(),
            roles: self
                .roles
                .iter()
                .map(|role| RoleDocument {
                    role: role.role.get(),
                    leader: role.leader.map(|leader| leader.to_string()),
                    term: role.term.get(),
                })
                .collect(),
        }
    }

    /// Which roles a member leads, or nobody does.
    fn led_by(&self, leader: Option<MemberId>) -> Vec<u32> {
        let led = self.roles.iter().filter(|role| role.leader == leader);
        led.map(|role| role.role.get()).collect()
    }

    fn text(&self, group: &str) -> String {
        let control = &self.standing.control;
        let term = control.version.term;
        let mut text = match self.leader() {
            Some(leader) => format!(
                "{leader} leads {group} in term {term} ({}): {}",
                self.label(leader),
                because(control.reason)
            ),
            None => match control.leader {
                Some(gone) => format!(
                    "nobody leads {group}: {} led in term {term}, and has not renewed its lease ({})",
                    gone.member,
                    self.label(gone.member)
                ),
                None => format!("nobody leads {group}: {}", because(control.reason)),
            },
        };
        text += "\n";
        if let Some(value) = self.value() {
            text += &format!("\n  value       {}", output::indented(value));
        }
        text += &format!(
            "\n  rounds of {}, a lease of {}{}\n",
            readable(control.published.round),
            readable(control.published.lease),
            if self.standing.has_session_lock {
                "; the death of the leader's process shows at once"
            } else {
                ""
            }
        );
        for row in &self.members {
            let place = match control.published.successors.rank_of(row.member) {
                _ if Some(row.member) == self.leader() => "leads".into(),
                Some(0) => "comes next".into(),
                Some(rank) => format!("comes {}.", rank + 1),
                None => String::new(),
            };
            text += &format!(
                "\n  {:<12} {place:<11} {:>8} heartbeats  {}",
                row.member.to_string(),
                row.counter,
                row.label
            );
        }
        if !self.roles.is_empty() {
            text += &format!("\n\n  {}\n", output::plural(self.roles.len() as u64, "role"));
            let members = self.members.iter().map(|row| Some(row.member));
            for leader in members.chain([None]) {
                let led = self.led_by(leader);
                if !led.is_empty() {
                    let leader = leader.map_or("nobody".into(), |leader| leader.to_string());
                    text += &format!("\n  {leader:<12} {}", named(&led));
                }
            }
        }
        for doubt in &self.doubts {
            text += &format!("\n\n  warning: {doubt}");
        }
        text
    }
}

pub(crate) fn status(address: &Address, at: &WhereArgs, format: Format) -> anyhow::Result<Exit> {
    let reader = Reader::open(address, at)?;
    let seen = reader.look()?;
    match format {
        Format::Json => output::print_json(&seen.document(&reader.group))?,
        Format::Text => output::print(seen.text(&reader.group))?,
    }
    Ok(Exit::Success)
}

pub(crate) fn history(address: &Address, at: &WhereArgs, format: Format) -> anyhow::Result<Exit> {
    let reigns = Reader::open(address, at)?.history()?;
    match format {
        Format::Json => {
            let documents: Vec<_> = reigns.iter().map(document).collect();
            output::print_json(&documents)?;
        }
        Format::Text if reigns.is_empty() => output::print("nobody has led yet")?,
        Format::Text => {
            for reign in &reigns {
                output::print(line(reign))?;
            }
        }
    }
    Ok(Exit::Success)
}

fn document(reign: &Reigned) -> ReignDocument {
    ReignDocument {
        term: reign.term.get(),
        leader: reign.leader.to_string(),
        label: reign.label.clone(),
        reason: reason_name(reign.reason),
        former: reign.former.map(|former| former.to_string()),
        began_ms: reign.began_ms,
    }
}

fn line(reign: &Reigned) -> String {
    let began = Duration::from_millis(reign.began_ms.unsigned_abs());
    let began = humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + began);
    format!(
        "term {:<5} {began}  {:<12} {}: {}",
        reign.term,
        reign.leader.to_string(),
        reign.label,
        because(reign.reason)
    )
}

/// Why the leader leads, who would come next, and on what grounds.
pub(crate) fn explain(
    address: &Address,
    at: &WhereArgs,
    term: Option<u64>,
    format: Format,
) -> anyhow::Result<Exit> {
    let reader = Reader::open(address, at)?;
    let reigns = reader.history()?;
    let wanted = |reign: &&Reigned| term.is_none_or(|term| reign.term.get() == term);
    let reign = reigns
        .iter()
        .find(wanted)
        .context("the history has no such term; see `mandate history`")?;
    if format == Format::Json {
        output::print_json(&document(reign))?;
        return Ok(Exit::Success);
    }
    let mut text = line(reign);
    if let Some(former) = reign.former {
        text += &format!("\n{former} led before.");
    }
    text += &format!("\n{}", how(reign.reason));
    let seen = reader.look()?;
    if seen.standing.control.version.term == reign.term {
        text += "\n\nNow, by score and then by how long they have been in the group:";
        let mut rows: Vec<_> = seen.members.iter().collect();
        let successors = &seen.standing.control.published.successors;
        rows.sort_by_key(|row| {
            (successors.rank_of(row.member).unwrap_or(usize::MAX), row.incarnation)
        });
        for row in rows {
            let score = match &row.score {
                Some(score) if score.is_empty() => "no figures".into(),
                Some(score) => format!(
                    "score {}",
                    score.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
                ),
                None => "no candidate".into(),
            };
            let place =
                successors.rank_of(row.member).map_or("".into(), |rank| format!("{}.", rank + 1));
            text += &format!(
                "\n  {place:<3} {:<12} number {:<6} {score}",
                row.member.to_string(),
                row.incarnation
            );
        }
    }
    output::print(text)?;
    Ok(Exit::Success)
}

/// A row that was vacated does not name who vacated it; the term before does.
fn name_former(reigns: &mut [Reigned]) {
    for place in 0..reigns.len() {
        let Reigned { term, former, reason, .. } = reigns[place];
        if former.is_none() && reason != Reason::First {
            let before = reigns.iter().filter(|other| other.term < term);
            reigns[place].former = before.max_by_key(|other| other.term).map(|other| other.leader);
        }
    }
}

/// How a term comes to begin for that reason.
fn how(reason: Reason) -> &'static str {
    match reason {
        Reason::First => "The row was free.",
        Reason::Silence => {
            "The last renewal of the one before stood in the row for a whole lease, as the new leader saw it."
        }
        Reason::Lapsed => {
            "It missed its own deadline, and took a new term when the row still stood as it had left it."
        }
        Reason::SessionGone => {
            "The session lock of the one before was released: its process died, or lost its connection. Terms keep that safe."
        }
        Reason::Resigned | Reason::Transferred => {
            "The one before stopped first, and then vacated the row."
        }
        Reason::TooSlow => {
            "The writes of the one before were acknowledged too late, even for the longest lease."
        }
    }
}

/// Says who leads, whenever that changes, until interrupted.
pub(crate) fn observe(address: &Address, at: &WhereArgs, format: Format) -> anyhow::Result<Exit> {
    let reader = Reader::open(address, at)?;
    let mut before = None;
    loop {
        let standing = reader.runtime.block_on(reader.database.standing(&reader.group));
        let pause = match standing {
            Ok(Some(standing)) => {
                let control = standing.control;
                let now = (control.version.term, control.leader);
                if before.replace(now) != Some(now) {
                    let members =
                        reader.runtime.block_on(reader.database.members(&reader.group))?;
                    let (roles, doubts) = (Vec::new(), Vec::new());
                    let seen = Seen { standing, renews: true, members, roles, doubts };
                    match format {
                        Format::Json => output::print_json(&seen.document(&reader.group))?,
                        Format::Text => {
                            let text = seen.text(&reader.group);
                            output::print(text.lines().next().unwrap_or_default())?;
                        }
                    }
                }
                (control.published.round / 4)
                    .clamp(Duration::from_millis(25), Duration::from_secs(1))
            }
            Ok(None) => Duration::from_millis(250),
            Err(error) => {
                output::complain(error.to_string());
                Duration::from_secs(1)
            }
        };
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_proto::identity::Term;

    fn reigned(term: u64, leader: u32, reason: Reason, former: Option<u32>) -> Reigned {
        let (term, leader) = (Term::new(term), MemberId::new(leader));
        let former = former.map(MemberId::new);
        Reigned { term, leader, label: String::new(), reason, former, began_ms: 0 }
    }

    #[test]
    fn who_vacated_the_row_is_who_led_in_the_term_before() {
        // The latest first, as they are read; the history may have gaps.
        let mut reigns = [
            reigned(7, 3, Reason::Transferred, None),
            reigned(5, 2, Reason::Silence, Some(9)),
            reigned(4, 1, Reason::First, None),
            reigned(2, 4, Reason::Resigned, None),
        ];
        name_former(&mut reigns);
        let former = reigns.map(|reigned| reigned.former.map(MemberId::get));
        assert_eq!(former, [Some(2), Some(9), None, None]);
    }
}
