//! The log: to standard error, as much as `MANDATE_LOG` asks for (`debug`, `mandate_peer=trace`, ...).

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Begins to log, as much as `otherwise` says if nobody asks for more or less.
pub(crate) fn begin(otherwise: &str) {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(EnvFilter::try_from_env("MANDATE_LOG").unwrap_or(otherwise.into()))
        .with_target(false)
        .init();
}
