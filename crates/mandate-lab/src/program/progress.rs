//! How far long work has come.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar over `total` of `things`, on standard error and only if that is a terminal.
pub(crate) fn bar(total: u64, things: &str) -> ProgressBar {
    let style = format!("{{wide_bar}} {{pos}}/{{len}} {things}, {{eta}} left");
    let style = ProgressStyle::with_template(&style).expect("the template is well-formed");
    ProgressBar::new(total).with_style(style)
}
