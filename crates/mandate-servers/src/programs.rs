//! Where programs are.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::ServerError;

/// Where distributions put servers that are not in everybody's path.
const SYSTEM: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The path that servers and their scripts look up programs in.
pub(crate) fn search_path() -> String {
    SYSTEM.join(":")
}

/// A program in the user's path or the system's.
pub(crate) fn find(program: &str, package: &'static str) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(SYSTEM.iter().map(PathBuf::from));
    let mut found = places.map(|place| place.join(program)).filter(|file| file.is_file());
    found.next().ok_or_else(|| ServerError::Missing { program: program.into(), package })
}

/// A file that a package brings.
pub(crate) fn require(file: &Path, package: &'static str) -> Result<(), ServerError> {
    match file.exists() {
        true => Ok(()),
        false => Err(ServerError::Missing { program: file.display().to_string(), package }),
    }
}

/// The directory of PostgreSQL's programs, of the newest version if there are several.
pub(crate) fn postgresql() -> Result<PathBuf, ServerError> {
    const VERSIONS: &str = "/usr/lib/postgresql";
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let number = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
    let versions = versions.filter_map(|entry| Some((number(&entry.file_name())?, entry.path())));
    let usable = versions
        .map(|(version, path)| (version, path.join("bin")))
        .filter(|(_, bin)| bin.join("initdb").is_file() && bin.join("postgres").is_file());
    match usable.max() {
        Some((_, bin)) => Ok(bin),
        None => {
            let initdb = find("initdb", "postgresql")?;
            Ok(initdb.parent().map(Path::to_owned).unwrap_or_default())
        }
    }
}
