//! The log: to standard error, as much as `MANDATE_LOG` asks for (`debug`, `mandate_peer=trace`, ...).

use std::env;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::output;

const VARIABLE: &str = "MANDATE_LOG";

/// Begins to log, as much as `otherwise` says if nobody asks for more or less.
pub fn begin(otherwise: &str) {
    let wanted = env::var(VARIABLE).ok().filter(|wanted| !wanted.trim().is_empty());
    let filter = wanted.as_deref().map(filter).unwrap_or_else(|| Ok(otherwise.into()));
    let filter = filter.unwrap_or_else(|reason| {
        output::complain(format!("{VARIABLE} is not used: {reason}"));
        otherwise.into()
    });
    // See no-color.org.
    let has_color = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(has_color && std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .with_target(false)
        .init();
}

/// What is asked for, or what is wrong with it. A word that is no level would be taken for the name of a module, and
/// nothing would be logged.
fn filter(text: &str) -> Result<EnvFilter, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let is_level = LEVELS.contains(&part.to_lowercase().as_str());
        let is_module = part.contains(['=', '[']) || part.starts_with("mandate");
        if !is_level && !is_module {
            return Err(format!(
                "`{part}` is no level. Write one of {}, or a level of a module, such as mandate_peer=trace",
                LEVELS.join(", ")
            ));
        }
    }
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_level_are_complained_of() {
        for right in ["debug", "WARN", "mandate_peer=trace,info", "mandate_sql", "info,"] {
            assert!(filter(right).is_ok(), "{right}");
        }
        for wrong in ["foo", "verbose", "info,debgu", "mandate_peer=loud"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
