//! `mandate lab failover` with hundreds of members on a database, in the frame of [rivals](crate::rivals): single
//! processes that can be killed, and a crowd of all others in one.

use std::time::Duration;

use mandate_lab::rivals::figures::RivalFigures;
use mandate_lab::rivals::trial;
use serde::Serialize;

use super::failover::{Cause, FailoverArgs};
use super::sql::ServerName;
use super::{Engine, guarantee_text};
use crate::rivals::{Faults, Rival, Side};
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};
use mandate_cli::sql::GuaranteeName;

/// Up to so many, each member is a process.
pub(super) const BEYOND: u32 = 9;

/// How long the group is left alone and measured.
const STANDING: Duration = Duration::from_secs(10);

/// The figures have the names that those of a small group have.
#[derive(Serialize)]
struct Document {
    engine: &'static str,
    guarantee: String,
    cause: String,
    kills: usize,
    #[serde(flatten)]
    figures: RivalFigures,
}

pub(super) fn run(args: &FailoverArgs, format: Format) -> anyhow::Result<Exit> {
    let side = side(args)?;
    let cause = match args.cause {
        Cause::Kill => trial::RivalFault::Kill,
        Cause::Pause => trial::RivalFault::Pause,
        Cause::Cut => trial::RivalFault::Cut,
        Cause::Resign => trial::RivalFault::Handover,
        Cause::Transfer => anyhow::bail!(
            "beyond {BEYOND} members nobody is named to take over: try --cause resign"
        ),
    };
    // A leader that died is replaced within a lease and some rounds, or something is wrong.
    let bound = args.engine.lease() * 4 + Duration::from_secs(5);
    let faults = Faults { cause, number: args.kills, bound, standing: STANDING };
    let bar = crate::progress::bar(args.kills.into(), "faults");
    let figures = side.run(&faults, || bar.inc(1))?;
    bar.finish_and_clear();
    let document = Document {
        engine: "sql",
        guarantee: guarantee_text(args.engine.guarantee()),
        cause: args.cause.name(),
        kills: figures.answered + figures.unanswered,
        figures,
    };
    match format {
        Format::Json => output::print_json(&document)?,
        Format::Text => output::print(crate::rivals::text(
            side.rival.name(),
            &document.cause,
            output::ms(bound),
            &document.figures,
        ))?,
    }
    // Where terms are enough, an old leader may act on: terms tell.
    let may_overlap = side.rival == Rival::MandateFenced;
    let RivalFigures { overlap_ms, unanswered, .. } = document.figures;
    let is_kept = (may_overlap || overlap_ms == 0.0) && unanswered == 0;
    Ok(if is_kept { Exit::Success } else { Exit::ClaimFailed })
}

fn side(args: &FailoverArgs) -> anyhow::Result<Side> {
    anyhow::ensure!(
        args.engine.engine == Engine::Sql,
        "so many members are for --engine sql: a group of another engine has {BEYOND} at most here"
    );
    let at = args.engine.named()?;
    anyhow::ensure!(
        at.is_some() || args.engine.server == Some(ServerName::Postgres),
        "for more than {BEYOND} members name a database (--url), or have one started (--server postgres)"
    );
    Ok(Side {
        rival: match args.engine.guarantee {
            GuaranteeName::Fenced => Rival::MandateFenced,
            GuaranteeName::Leased => Rival::Mandate,
        },
        members: args.members.into(),
        round: args.engine.round(),
        tick: Duration::ZERO,
        at,
    })
}
