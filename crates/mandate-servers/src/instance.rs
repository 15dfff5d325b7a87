//! One server: its home, its main process, and what is done to it. What is particular to a kind of server is
//! in that kind's module.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::home::Home;
use crate::user::User;
use crate::{ServerError, processes, programs, system};

/// What can be done to a server, for its `impl Server`: it is done to its `instance`. Only the signal that ends it in
/// good order differs.
macro_rules! faults {
    ($stop:expr) => {
        fn stop(&mut self) -> Result<(), $crate::ServerError> {
            self.instance.stop($stop)
        }

        fn kill(&mut self) -> Result<(), $crate::ServerError> {
            self.instance.kill()
        }

        fn freeze(&mut self) -> Result<(), $crate::ServerError> {
            self.instance.freeze()
        }

        fn resume(&mut self) -> Result<(), $crate::ServerError> {
            self.instance.resume()
        }

        fn directory(&self) -> &std::path::Path {
            self.instance.directory()
        }

        fn cpu_time(&self) -> std::time::Duration {
            self.instance.cpu_time()
        }
    };
}
pub(crate) use faults;

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(5);

/// How long a server may take to answer, or to end in good order: far more than any needs on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much of what a server said is shown with an error.
const SHOWN_BYTES: usize = 3000;

#[derive(Debug)]
pub(crate) struct Instance {
    /// Before the home, which waits for everything in it to end.
    main: Option<Child>,
    home: Home,
    name: &'static str,
    user: Option<User>,
}

impl Instance {
    /// A home for a server, below `within` or where temporary files are. When this is root, it runs as
    /// `user`.
    pub(crate) fn new(
        name: &'static str,
        user: &str,
        leftovers: &str,
        within: Option<&Path>,
    ) -> Result<Self, ServerError> {
        let user = User::unprivileged(user);
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        let home = Home::make(name, user, leftovers, &within)?;
        Ok(Instance { main: None, home, name, user })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.home.path()
    }

    /// A file that the server may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, ServerError> {
        let path = self.directory().join(name);
        fs::write(&path, text).map_err(system(format!("write {}", path.display())))?;
        if let Some(user) = self.user {
            user.own(&path)?;
        }
        Ok(path)
    }

    /// A command as the server's user, in its home, with nothing of the environment of this process: a
    /// stray setting there must not change what is tested.
    fn prepared<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(self.directory()).env_clear();
        command.env("PATH", programs::search_path()).env("LC_ALL", "C");
        command.env("HOME", self.directory()).env("TMPDIR", self.directory());
        if let Some(user) = self.user {
            user.become_in(command);
        }
        command
    }

    /// Runs a program to its end as the server's user, in its home; what it wrote.
    pub(crate) fn run(&self, command: &mut Command) -> Result<String, ServerError> {
        self.run_as_owner(self.prepared(command))
    }

    /// Runs a program to its end as it is; what it wrote.
    pub(crate) fn run_as_owner(&self, command: &mut Command) -> Result<String, ServerError> {
        let program = command.get_program().display().to_string();
        let ran = command.stdin(Stdio::null()).output();
        let output = ran.map_err(system(format!("run {program}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(ServerError::Ended { program, status: output.status.to_string(), said: tail(&said) })
    }

    fn log_path(&self) -> PathBuf {
        self.directory().join("log")
    }

    /// What the server said on its standard output and error, from its first start on.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Starts the main process and waits until `ready` with its number.
    pub(crate) fn launch(
        &mut self,
        command: &mut Command,
        mut ready: impl FnMut(Pid) -> bool,
    ) -> Result<(), ServerError> {
        if self.runs() {
            return Ok(());
        }
        let opened = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = opened.map_err(system("keep what the server says"))?;
        let errors = log.try_clone().map_err(system("keep what the server says"))?;
        let command = self.prepared(command).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(system(format!("start {}", self.name)))?;
        let number = Pid::from_child(&child);
        self.main = Some(child);
        self.until("it answers", |_| ready(number))
    }

    /// Waits for something of a server that runs.
    pub(crate) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<(), ServerError> {
        let began = Instant::now();
        while !holds(self) {
            self.still_runs()?;
            self.within_patience(began, what)?;
            sleep(LOOK);
        }
        Ok(())
    }

    fn still_runs(&mut self) -> Result<(), ServerError> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(ServerError::Ended {
                program: self.name.into(),
                status: status.to_string(),
                said: tail(self.log().as_bytes()),
            }),
        }
    }

    /// Whether the main process runs, frozen or not.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.ended(), Ok(None)) && self.main.is_some()
    }

    /// How the main process ended, if it has.
    fn ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        let Some(main) = &mut self.main else { return Ok(None) };
        let status = main.try_wait().map_err(system(format!("look after {}", self.name)))?;
        if status.is_some() {
            self.main = None;
        }
        Ok(status)
    }

    fn within_patience(&self, began: Instant, what: &str) -> Result<(), ServerError> {
        if began.elapsed() < PATIENCE {
            return Ok(());
        }
        let what = format!("{}: {what}", self.name);
        Err(ServerError::NotInTime { what, bound: PATIENCE, said: tail(self.log().as_bytes()) })
    }

    fn main(&mut self) -> Result<Pid, ServerError> {
        let runs = self.runs();
        let main = self.main.as_ref().filter(|_| runs).map(Pid::from_child);
        main.ok_or(ServerError::NotRunning(self.name))
    }

    /// Asks the main process to end, and waits until nothing runs.
    pub(crate) fn stop(&mut self, with: Signal) -> Result<(), ServerError> {
        if let Ok(main) = self.main() {
            processes::signal(&[main], with);
            // A frozen one would not hear it.
            processes::signal(&self.processes(), Signal::CONT);
        }
        self.until_gone("it ends", |_| ())
    }

    /// Ends everything at once.
    pub(crate) fn kill(&mut self) -> Result<(), ServerError> {
        if let Ok(main) = self.main() {
            processes::signal(&[main], Signal::KILL);
        }
        self.until_gone("its processes are gone", |running| {
            processes::signal(running, Signal::KILL);
        })
    }

    fn until_gone(&mut self, what: &str, act: impl Fn(&[Pid])) -> Result<(), ServerError> {
        let began = Instant::now();
        loop {
            let running = self.processes();
            if running.is_empty() && !self.runs() {
                return Ok(());
            }
            act(&running);
            self.within_patience(began, what)?;
            sleep(LOOK);
        }
    }

    /// Stops everything where it is. The main process comes first, so that it starts no further ones.
    pub(crate) fn freeze(&mut self) -> Result<(), ServerError> {
        let main = self.main()?;
        processes::signal(&[main], Signal::STOP);
        let all = self.processes();
        processes::signal(&all, Signal::STOP);
        let began = Instant::now();
        while !processes::have_stopped(&all) {
            self.within_patience(began, "it is frozen")?;
            sleep(LOOK);
        }
        Ok(())
    }

    /// Lets everything go on.
    pub(crate) fn resume(&mut self) -> Result<(), ServerError> {
        let main = self.main()?;
        processes::signal(&self.processes(), Signal::CONT);
        processes::signal(&[main], Signal::CONT);
        Ok(())
    }

    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes::within(self.directory())
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        processes::cpu_time(&self.processes())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn tail(said: &[u8]) -> String {
    String::from_utf8_lossy(&said[said.len().saturating_sub(SHOWN_BYTES)..]).into_owned()
}
