//! How results are shown: text for people, JSON for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

/// What `-o` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Made for reading.
    #[default]
    Text,
    /// Made for programs: one JSON document, or one a line where there are many.
    Json,
}

/// Prints a JSON document.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(serde_json::to_string_pretty(document)?)?)
}

/// Prints a JSON document on one line.
pub fn print_json_line(document: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(serde_json::to_string(document)?)?)
}

/// Prints text, with a line break behind it. A reader that has seen enough is no error: what the
/// command found out still decides how it exits.
pub fn print(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{}", text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Says what went wrong. If nobody can be told, the exit code still says it.
pub fn complain(text: impl AsRef<str>) {
    let _ = writeln!(io::stderr().lock(), "mandate: {}", text.as_ref());
}

/// An error with its causes, each once: some errors end with the text of their own cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// What the library calls a start, as this program's flags say it.
pub fn with_flags(text: String) -> String {
    let flags = [
        ("with `Start::Stored`", "without --new or --lost"),
        ("`Start::New`", "--new"),
        ("`Start::Lost`", "--lost"),
        ("`Start::Changed`", "--members-changed"),
        ("`Start::Join`", "--join"),
        ("`Start::Auto`", "first_start = \"auto\" in its configuration"),
    ];
    flags.into_iter().fold(text, |text, (name, flag)| text.replace(name, flag))
}

/// A text of several lines, so that it stands in a column of a listing.
pub fn indented(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("\n              ")
}

/// A number of things, in words that agree with it.
pub fn plural(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Milliseconds, as JSON carries durations.
pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A duration for reading: to the millisecond below a minute, else to the second.
pub fn readable(duration: Duration) -> String {
    let half = |unit: Duration| duration.saturating_add(unit / 2);
    let rounded = match duration {
        d if d < Duration::from_millis(1) => d,
        d if d < Duration::from_secs(60) => {
            Duration::from_millis(half(Duration::from_millis(1)).as_millis() as u64)
        }
        _ => Duration::from_secs(half(Duration::from_secs(1)).as_secs()),
    };
    humantime::format_duration(rounded).to_string()
}

/// A number of seconds that may be too large for a duration.
pub fn readable_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 3.15e9 => readable(Duration::from_secs_f64(s.max(0.0))),
        s if s.is_finite() => format!("{:.0e} years", s / 3.156e7),
        _ => "never".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_an_error_has_told_already_is_not_told_again() {
        let io = || std::io::Error::other("no such file");
        let doubled = anyhow::Error::new(io()).context("cannot read p4.pem: no such file");
        assert_eq!(with_causes(&doubled), "cannot read p4.pem: no such file");
        let plain = anyhow::Error::new(io()).context("cannot read p4.pem");
        assert_eq!(with_causes(&plain), "cannot read p4.pem: no such file");
    }

    #[test]
    fn a_start_has_the_name_of_its_flag() {
        let said = "start it with `Start::New`; if its disk was lost, with `Start::Lost`";
        assert_eq!(
            with_flags(said.into()),
            "start it with --new; if its disk was lost, with --lost"
        );
        let error = mandate::runtime::StartError::NoState("p1.state".into());
        let said = with_flags(error.to_string());
        assert!(said.contains("with --join") && !said.contains("Start::"), "{said}");
        let error = mandate::runtime::StartError::HasState("p1.state".into());
        let said = with_flags(error.to_string());
        assert!(
            said.contains("Start it without --new or --lost") && !said.contains("Start::"),
            "{said}"
        );
    }

    #[test]
    fn numbers_agree_with_their_things() {
        assert_eq!((plural(1, "seed"), plural(2, "seed")), ("1 seed".into(), "2 seeds".into()));
    }

    #[test]
    fn durations_are_rounded_to_what_one_reads() {
        assert_eq!(readable(Duration::from_nanos(669_370_123)), "669ms");
        assert_eq!(readable(Duration::from_nanos(3_600_400_000_000)), "1h");
        assert_eq!(readable(Duration::from_nanos(1500)), "1us 500ns");
        assert_eq!(readable(Duration::from_secs(86_400 * 365_250)), "1000years");
        assert_eq!(readable_seconds(f64::INFINITY), "never");
        assert_eq!(readable_seconds(3.2e12), "1e5 years");
    }
}
