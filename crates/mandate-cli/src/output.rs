//! How results are shown: text for people, JSON for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

/// What `-o` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Made for reading.
    #[default]
    Text,
    /// Made for programs: one JSON document, or one a line where there are many.
    Json,
}

/// Prints a JSON document.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    Ok(writeln!(out)?)
}

/// Prints a JSON document on one line.
pub(crate) fn print_json_line(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, document)?;
    Ok(writeln!(out)?)
}

/// Prints text, with a line break behind it.
pub(crate) fn print(text: impl AsRef<str>) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", text.as_ref())
}

/// Milliseconds, as JSON carries durations.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A duration for reading: to the millisecond below a minute, else to the second.
pub(crate) fn readable(duration: Duration) -> String {
    let shortest = Duration::from_millis(1);
    let unit = match duration {
        d if d < shortest => 1,
        d if d < Duration::from_secs(60) => 1_000_000,
        _ => 1_000_000_000,
    };
    let rounded = (duration.as_nanos() + unit / 2) / unit * unit;
    humantime::format_duration(Duration::from_nanos(rounded as u64)).to_string()
}

/// A number of seconds that may be too large for a duration.
pub(crate) fn readable_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 3.15e9 => readable(Duration::from_secs_f64(s.max(0.0))),
        s if s.is_finite() => format!("{:.0e} years", s / 3.156e7),
        _ => "for ever".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_what_one_reads() {
        assert_eq!(readable(Duration::from_nanos(669_370_123)), "669ms");
        assert_eq!(readable(Duration::from_nanos(3_600_400_000_000)), "1h");
        assert_eq!(readable(Duration::from_nanos(1500)), "1us 500ns");
        assert_eq!(readable_seconds(f64::INFINITY), "for ever");
        assert_eq!(readable_seconds(3.2e12), "1e5 years");
    }
}
