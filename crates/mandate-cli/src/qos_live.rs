//! `mandate qos measure` without a trace: what a running member measures of its leader.

use crate::client::{ApiArgs, DaemonClient};
use crate::exit::Exit;
use crate::node::document::StatusDocument;
use crate::node::quality::{MeasuredDocument, QualityDocument};
use crate::output::{self, Format, plural};

pub(crate) fn run(args: &ApiArgs, format: Format) -> anyhow::Result<Exit> {
    let status: StatusDocument = DaemonClient::new(args)?.get("/v1/status")?;
    match format {
        Format::Json => output::print_json(&status.quality)?,
        Format::Text => {
            let member = &status.member;
            let texts: Vec<_> = status.quality.iter().map(|it| text(member, it)).collect();
            output::print(texts.join("\n\n"))?;
        }
    }
    let is_achievable = status.quality.iter().all(|quality| quality.unachievable.is_none());
    Ok(if is_achievable { Exit::Success } else { Exit::Infeasible })
}

fn text(member: &str, quality: &QualityDocument) -> String {
    let measured = &quality.measured;
    let mut text = match &quality.member {
        Some(leader) => link(leader, measured),
        None => format!("{member} follows no leader now, so there is no link to measure."),
    };
    text += &table(quality);
    if let Some(reason) = &quality.unachievable {
        text += &format!("\n\nWhat is wanted cannot be had on this link: {reason}.");
    }
    if quality.wanted.is_none() {
        text +=
            "\n\nThe interval is fixed. With mistake_every in [detection], it follows the link.";
    }
    text
}

fn link(leader: &str, measured: &MeasuredDocument) -> String {
    match (measured.heartbeats, measured.loss, measured.delay_sd_ms) {
        (Some(heartbeats), Some(loss), Some(deviation)) => format!(
            "Link from {leader}, which leads, over {}:\n\
             \x20 lost      {:9.4} %\n\
             \x20 delay     {deviation:9.2} ms    standard deviation",
            plural(heartbeats, "heartbeat"),
            loss * 100.0,
        ),
        _ => format!("Link from {leader}, which leads: too few heartbeats yet to measure it."),
    }
}

/// Wanted and delivered, side by side.
fn table(quality: &QualityDocument) -> String {
    let (wanted, measured) = (quality.wanted.as_ref(), &quality.measured);
    let shown = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} {unit}"))
    };
    let mut text = String::new();
    if let Some(plan) = &quality.plan {
        text += &format!(
            "\n\nIn force: a heartbeat every {:.1} ms, up to {:.1} ms late",
            plan.interval_ms, plan.margin_ms
        );
    }
    text += &format!(
        "\n\nWatched for {:.0} s:              wanted       delivered\n",
        measured.watched_s
    );
    let rows = [
        (
            "crash noticed within (T_D)",
            shown(wanted.map(|it| it.detect_ms), "ms"),
            format!(
                "{} at most, {}",
                shown(measured.detection_max_ms, "ms"),
                plural(measured.detections, "detection")
            ),
        ),
        (
            "time between mistakes (T_MR)",
            shown(wanted.map(|it| it.mistake_every_s), "s"),
            format!(
                "{}, {}",
                shown(measured.mistake_every_s, "s"),
                plural(measured.mistakes, "mistake")
            ),
        ),
        (
            "duration of a mistake (T_M)",
            shown(wanted.map(|it| it.mistake_lasts_ms), "ms"),
            shown(measured.mistake_lasts_ms, "ms"),
        ),
    ];
    for (name, wanted, delivered) in rows {
        text += &format!("\n  {name:<28} {wanted:>10}   {delivered}");
    }
    text
}
