//! A server's private directory, and the keeper that ends what runs in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use std::os::unix::process::CommandExt;

use crate::user::User;
use crate::{ServerError, system};

/// Waits until its input ends, which it does when the owner closes it or is gone; kills everything that
/// has its working directory below `$1`, does what `$2` says, and removes it. It has a process group of
/// its own, so that what ends the owner at a terminal does not end the keeper first.
const KEEPER: &str = r#"
trap '' INT TERM HUP
cd /
cat > /dev/null
found() { find /proc/[0-9]*/cwd -prune -lname "*/${1##*/}*" 2>/dev/null | cut -d/ -f3; }
for _ in $(seq 600); do
  running=$(found "$1")
  [ -z "$running" ] && break
  kill -9 $running 2>/dev/null
  sleep 0.05
done
eval "$2"
# A process that is killed may write once more before it is gone.
for _ in $(seq 20); do
  rm -rf "$1" && break
  sleep 0.1
done
"#;

/// A directory that is removed, with every process in it, when this is dropped or its process is gone.
#[derive(Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    keeper: Child,
}

impl Home {
    /// Makes one for a user, below `within`. `leftovers` is shell that removes what a killed server leaves
    /// elsewhere, with the directory as `$1`.
    pub(crate) fn make(
        name: &str,
        user: Option<User>,
        leftovers: &str,
        within: &Path,
    ) -> Result<Self, ServerError> {
        let prefix = format!("mandate-{name}-");
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(within);
        let directory = directory.map_err(system("make a private directory"))?;
        // As the kernel names it: links in /proc are compared with it.
        let path = fs::canonicalize(directory.path()).map_err(system("find that directory"))?;
        if let Some(user) = user {
            user.own(&path)?;
        }
        let keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&path)
            .arg(leftovers)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(system("start the keeper of a private directory"))?;
        // From here on the keeper removes it.
        let _ = directory.keep();
        Ok(Home { directory: path, keeper })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
