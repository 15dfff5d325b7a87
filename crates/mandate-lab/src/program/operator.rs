//! This program as the operator's: a member, daemon or guard of an experiment.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The command whose words are those of `mandate`.
pub(crate) const COMMAND: &str = "operator";

/// What the operator's program is called. It starts its guards under that name.
const NAME: &str = "mandate";

/// What `mandate` would have been started with, if that is what this process is to be.
pub(crate) fn words() -> Option<Vec<OsString>> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let is_name =
        words.first().is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(NAME)));
    if is_name {
        return Some(words);
    }
    (words.get(1)? == COMMAND).then(|| {
        words.remove(1);
        words[0] = NAME.into();
        words
    })
}
