//! One process: what it says, what it is told, and its end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

/// A process whose lines are read. It is killed when this is dropped.
pub struct ChildProcess {
    child: Child,
    input: Option<ChildStdin>,
    reading: Option<JoinHandle<()>>,
}

impl ChildProcess {
    /// Starts it; `said` is called with every line that it writes, and what it complains goes to `log`.
    pub fn spawn(
        command: &mut Command,
        log: File,
        mut said: impl FnMut(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let reading = output.map(|output| {
            thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).for_each(|line| said(&line));
            })
        });
        Ok(ChildProcess { child, input, reading })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(format!("{line}\n").as_bytes())
    }

    /// How it ended, if it has. Then everything that it said has been read.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let ended = self.child.try_wait()?;
        if ended.is_some() {
            self.hear_out();
        }
        Ok(ended)
    }

    /// Ends it at once. When this returns, everything that it said has been read.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.hear_out();
        Ok(())
    }

    fn hear_out(&mut self) {
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
