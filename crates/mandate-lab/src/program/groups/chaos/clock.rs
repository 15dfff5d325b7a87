//! The wall clock of this host, which is stepped and always put back.
//!
//! By a shell that waits for its input to end: it ends when the owner closes it or is gone, however that came about.
//! What is right is told by a clock that nobody can step, the time since the host was started.

use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// Reads what to add, steps, waits, and puts back.
const KEEPER: &str = r#"
trap '' INT TERM HUP
wall_clock() { awk -v now="$(date +%s.%N)" -v step="$1" '{ printf "%.3f", now - $1 + step }' /proc/uptime; }
right=$(wall_clock 0)
set_to() { date -u -s "@$(awk -v offset="$1" '{ printf "%.3f", $1 + offset }' /proc/uptime)" > /dev/null; }
set_to "$(wall_clock "$1")" || exit 1
echo stepped
cat > /dev/null
set_to "$right"
"#;

/// A wall clock that is wrong until this is dropped.
pub(super) struct Stepped {
    keeper: Child,
}

impl Stepped {
    /// Steps it by so many seconds. Needs root.
    pub(super) fn by(seconds: i64) -> anyhow::Result<Self> {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("could not start what puts the clock back")?;
        let mut said = String::new();
        let output = keeper.stdout.take().context("it has an output")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said)
            .context("could not step the clock")?;
        let stepped = Stepped { keeper };
        anyhow::ensure!(said.trim() == "stepped", "could not step the clock; that needs root");
        Ok(stepped)
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
