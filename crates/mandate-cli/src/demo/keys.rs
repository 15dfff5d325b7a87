//! Keys, one by one, while the demo runs in a terminal.

use std::io::Read;

use anyhow::Context;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// A terminal that gives keys at once and does not show them; as it was before, when this is dropped.
///
/// Ctrl-C still interrupts and lines still end as usual: only waiting for a whole line, and the echo, are off.
pub(super) struct Keys {
    before: Termios,
}

impl Keys {
    pub(super) fn read(pressed: mpsc::UnboundedSender<char>) -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin()).context("this is no terminal")?;
        let mut keys = before.clone();
        keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &keys).context("this is no terminal")?;
        // Blocked in a read when the demo ends, and ends with it.
        std::thread::spawn(move || {
            for byte in std::io::stdin().lock().bytes().map_while(Result::ok) {
                if pressed.send(char::from(byte)).is_err() {
                    return;
                }
            }
        });
        Ok(Keys { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}
