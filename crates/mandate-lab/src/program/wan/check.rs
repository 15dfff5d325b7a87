//! `mandate lab wan check`: how precise the emulator is here.

use mandate_lab::wan::check::{self, Effort, Findings, STEPS, TOLERANCE_MS};

use super::args::CheckArgs;
use mandate_cli::exit::Exit;
use mandate_cli::output::{self, Format};

pub(super) fn run(args: &CheckArgs, format: Format) -> anyhow::Result<Exit> {
    let bar = crate::progress::bar(STEPS, "steps");
    let findings = check::run(Effort { pings: args.pings, stream: args.stream }, || bar.inc(1))?;
    bar.finish_and_clear();
    match format {
        Format::Json => output::print_json(&findings)?,
        Format::Text => output::print(text(&findings))?,
    }
    Ok(if findings.precise { Exit::Success } else { Exit::ClaimFailed })
}

fn text(findings: &Findings) -> String {
    let mut text =
        String::from("  round trip, ms      mean    median       p99    TCP, Mb/s   core used\n");
    for link in &findings.links {
        text += &format!(
            "  {:>14.2} {:>9.3} {:>9.3} {:>9.3} {:>12.0} {:>9.0} %{}\n",
            link.wanted_ms,
            link.mean_ms,
            link.median_ms,
            link.p99_ms,
            link.tcp_mbit,
            link.processor * 100.0,
            if link.precise { "" } else { "   OFF" }
        );
    }
    text += &format!(
        "\n  small packets a second   {:.0}, with {:.0} % of a core\n  core used when idle      {:.2} %\n",
        findings.packets_per_second,
        findings.processor_flooded * 100.0,
        findings.processor_idle * 100.0
    );
    if !findings.real_time {
        text += "  without real-time priority (CAP_SYS_NICE)\n";
    }
    let verdict = if findings.precise { "within" } else { "NOT within" };
    text + &format!("\nAll means are {verdict} 1 % or {TOLERANCE_MS} ms of what was asked for.")
}
