//! Which database, from one line of text.

use std::path::PathBuf;
use std::str::FromStr;

use url::Url;

use crate::error::SqlError;

/// The address of a database.
///
/// - `sqlite:PATH`: a file, made if it is not there. Relative to the working directory.
/// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full&sslrootcert=FILE`, and everything else that
///   `libpq` writes in such a line and `tokio-postgres` understands.
/// - `mysql://USER:PASSWORD@HOST:PORT/DATABASE?require_ssl=true`; `mariadb://` is the same.
///
/// It may hold a password, and is shown without.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// PostgreSQL, or what speaks its protocol.
    Postgres(Box<Url>),
    /// MySQL, MariaDB, or what speaks their protocol.
    MySql(Box<Url>),
}

impl Address {
    /// The whole of it, with its password: what another process needs to find the same database, and nobody else
    /// should read.
    pub fn url(&self) -> String {
        match self {
            Address::Sqlite(path) => format!("sqlite:{}", path.display()),
            Address::Postgres(url) | Address::MySql(url) => url.to_string(),
        }
    }

    /// What kind of database it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Address::Sqlite(_) => "SQLite",
            Address::Postgres(_) => "PostgreSQL",
            Address::MySql(_) => "MySQL or MariaDB",
        }
    }
}

impl FromStr for Address {
    type Err = SqlError;

    fn from_str(text: &str) -> Result<Self, SqlError> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path == ":memory:" {
                let reason = "write a file, such as sqlite:./mandate.db: members share it";
                return Err(SqlError::Address { url: text.into(), reason: reason.into() });
            }
            return Ok(Address::Sqlite(path.into()));
        }
        let url = Url::parse(text).map_err(|error| SqlError::Address {
            // Not the text: it may hold a password.
            url: text.split(':').next().unwrap_or_default().into(),
            reason: error.to_string(),
        })?;
        let address = match url.scheme() {
            "postgres" | "postgresql" => Address::Postgres(Box::new(url)),
            // The scheme of a URL of this kind cannot be changed in place.
            "mariadb" => return text.replacen("mariadb", "mysql", 1).parse(),
            "mysql" => Address::MySql(Box::new(url)),
            other => {
                return Err(SqlError::Address {
                    url: other.into(),
                    reason: "it must begin with sqlite:, postgres:// or mysql://".into(),
                });
            }
        };
        let (Address::Postgres(url) | Address::MySql(url)) = &address else { return Ok(address) };
        if url.path().len() < 2 {
            let reason = "name the database, as in HOST:PORT/DATABASE";
            return Err(SqlError::Address { url: address.to_string(), reason: reason.into() });
        }
        Ok(address)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Address::Postgres(url) | Address::MySql(url) => {
                let mut shown = (**url).clone();
                if shown.password().is_some() {
                    let _ = shown.set_password(Some("..."));
                }
                write!(f, "{shown}")
            }
        }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_by_its_scheme_and_shown_without_its_password() {
        let shown = |text: &str| text.parse::<Address>().unwrap().to_string();
        assert_eq!(shown("sqlite:./m.db"), "sqlite:./m.db");
        assert_eq!(shown("sqlite:///var/m.db"), "sqlite:/var/m.db");
        assert_eq!(shown("postgres://u:secret@h:5/d"), "postgres://u:...@h:5/d");
        assert_eq!(shown("mariadb://u:secret@h/d"), "mysql://u:...@h/d");
    }

    #[test]
    fn what_is_wrong_is_said_without_showing_a_password() {
        for (text, expected) in [
            ("sqlite:", "members share it"),
            ("sqlite::memory:", "members share it"),
            ("oracle://h/d", "must begin with"),
            ("postgres://u:secret@h", "name the database"),
            ("postgres://u:secret@h:port/d", "port"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }
}
