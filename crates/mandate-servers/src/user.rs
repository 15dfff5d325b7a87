//! As whom a server runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;

use crate::{ServerError, system};

/// A user of the system, other than the one who runs this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Whom to become: nobody else, unless this is root; then the first of these users that there is,
    /// or `nobody`. PostgreSQL refuses to run as root, and no other server should.
    pub(crate) fn unprivileged(preferred: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| users.lines().find_map(|line| User::parse(line, name));
        find(preferred).or_else(|| find("nobody"))
    }

    fn parse(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { uid, gid })
    }

    /// Has a command run as this user.
    pub(crate) fn become_in(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives it a file or directory.
    pub(crate) fn own(self, path: &Path) -> Result<(), ServerError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(system(format!("give {} to the server's user", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::User;

    #[test]
    fn a_line_of_the_users_file_is_understood() {
        let user =
            User::parse("postgres:x:101:104:Administrator,,,:/var/lib:/bin/bash", "postgres");
        assert_eq!(user.map(|user| (user.uid, user.gid)), Some((101, 104)));
        assert!(User::parse("postgres:x:101:104::/:/bin/sh", "post").is_none());
        assert!(User::parse("nobody:x", "nobody").is_none(), "nonsense is nobody");
    }
}
