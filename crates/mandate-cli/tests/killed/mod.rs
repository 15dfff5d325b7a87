//! Programs that are killed by a test, and what is looked for afterwards.

// Each test file uses some of it.
#![allow(dead_code)]

use std::process::Child;

/// Ends with the test, whatever happens.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes that work below a directory, as they see it.
pub(crate) fn processes_in(directory: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("there is one").flatten();
    let places =
        processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok());
    places.filter(|place| place.display().to_string().starts_with(directory)).count()
}
