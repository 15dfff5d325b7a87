//! The runtime of a command that runs until it is done, or asked to stop.

use anyhow::Context;

/// Runs it, and does not wait for what it has left behind: a call that waits for a broker, a disk or a member that does not
/// answer must not keep the process.
pub fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("could not start")?;
    let ended = runtime.block_on(command);
    runtime.shutdown_background();
    ended
}
