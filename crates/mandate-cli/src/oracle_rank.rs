//! `mandate oracle rank`: whom an oracle elects in a topology, and why.

use std::collections::BTreeSet;

use crate::topology::Topology;
use anyhow::Context;
use mandate_proto::oracle::{
    Candidate, CandidateOutcome, Decided, Occasion, Oracle, Ranking, describe, rank,
};
use serde::Serialize;

use crate::args::RankArgs;
use crate::exit::Exit;
use crate::input;
use crate::output::{self, Format};

/// No topology is this long: a thousand servers take a tenth of it.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize)]
struct Document {
    winner: Option<String>,
    oracle: String,
    occasion: &'static str,
    candidates: Vec<CandidateDocument>,
}

#[derive(Serialize)]
struct CandidateDocument {
    id: String,
    /// Compared in order, bigger is better; `null` if it is not eligible.
    score: Option<Vec<f64>>,
    /// What each term measured, before classes.
    values: Vec<ValueDocument>,
    reason: String,
}

#[derive(Serialize)]
struct ValueDocument {
    term: &'static str,
    value: f64,
}

pub(crate) fn run(args: &RankArgs, format: Format) -> anyhow::Result<Exit> {
    let name = args.topology.display();
    let text = input::read_text(&args.topology, MAX_BYTES)?;
    let topology = Topology::parse(&text).with_context(|| format!("{name}"))?;
    let down: BTreeSet<_> = args.down.iter().copied().collect();
    let occasion = match args.leader {
        Some(leader) if !down.contains(&leader) => Occasion::BeforeResignation,
        _ => Occasion::AfterCrash,
    };
    let views = topology.views(&down, args.leader, occasion).with_context(|| format!("{name}"))?;
    let ranking = rank(&args.oracle, &views);
    match format {
        Format::Json => output::print_json(&document(&ranking, args, occasion))?,
        Format::Text => output::print(text_of(&ranking, &args.oracle, occasion))?,
    }
    Ok(if ranking.winner.is_some() { Exit::Success } else { Exit::Infeasible })
}

fn document(ranking: &Ranking, args: &RankArgs, occasion: Occasion) -> Document {
    let candidate = |candidate: &Candidate| CandidateDocument {
        id: candidate.id.to_string(),
        score: candidate.score().map(|score| score.components().to_vec()),
        values: values(candidate, &args.oracle),
        reason: reason(candidate, ranking),
    };
    Document {
        winner: ranking.winner.map(|winner| winner.to_string()),
        oracle: args.oracle.to_string(),
        occasion: match occasion {
            Occasion::AfterCrash => "after-crash",
            Occasion::BeforeResignation => "before-resignation",
        },
        candidates: ranking.candidates.iter().map(candidate).collect(),
    }
}

fn values(candidate: &Candidate, oracle: &Oracle) -> Vec<ValueDocument> {
    let terms = oracle.terms().iter().zip(candidate.values());
    terms.map(|(term, value)| ValueDocument { term: term.measure.name(), value: *value }).collect()
}

fn text_of(ranking: &Ranking, oracle: &Oracle, occasion: Occasion) -> String {
    let why = match occasion {
        Occasion::AfterCrash => "after a crash of the leader, or without one",
        Occasion::BeforeResignation => "while the leader is up",
    };
    let mut text = format!("By {oracle}, {why}:\n");
    let figures = |candidate: &Candidate| {
        let terms = oracle.terms().iter().zip(candidate.values());
        let shown = terms.map(|(term, value)| {
            format!("{} {}", term.measure.name(), describe(term.measure, *value))
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    // As wide as the widest, so that what follows stands in a column.
    let width = ranking.candidates.iter().map(|candidate| figures(candidate).chars().count()).max();
    let width = width.unwrap_or(0).max(36);
    for (place, candidate) in ranking.candidates.iter().enumerate() {
        let place = match candidate.score() {
            Some(_) => format!("{:>3}.", place + 1),
            None => "   -".into(),
        };
        let (id, figures) = (candidate.id.to_string(), figures(candidate));
        text += &format!("\n{place} {id:<5} {figures:<width$} {}", reason(candidate, ranking));
    }
    if ranking.winner.is_none() {
        text += "\n\nNobody can lead.";
    }
    text
}

/// What became of a candidate, in words.
pub(crate) fn reason(candidate: &Candidate, ranking: &Ranking) -> String {
    let second = ranking.candidates.get(1).map(|candidate| candidate.id.to_string());
    let second = second.unwrap_or_default();
    let first = ranking.winner.map(|winner| winner.to_string()).unwrap_or_default();
    match &candidate.outcome {
        CandidateOutcome::Wins(None) => "wins: the only one that can lead".into(),
        CandidateOutcome::Wins(Some(Decided::Term { measure, winner, other })) => format!(
            "wins over {second} on {}: {} against {}",
            measure.name(),
            describe(*measure, *winner),
            describe(*measure, *other)
        ),
        CandidateOutcome::Wins(Some(Decided::Id { .. })) => {
            format!("wins over {second} by its higher id: the scores are equal")
        }
        CandidateOutcome::Loses(Decided::Term { measure, winner, other }) => format!(
            "loses to {first} on {}: {} against {}",
            measure.name(),
            describe(*measure, *other),
            describe(*measure, *winner)
        ),
        CandidateOutcome::Loses(Decided::Id { .. }) => {
            format!("loses to {first} by its lower id: the scores are equal")
        }
        CandidateOutcome::NotEligible(reason) => reason.to_string(),
    }
}
