//! Which database, from one line of text.
//!
//! The line may hold a password. Whatever is shown of it, by any way, is shown without: an address that was understood has
//! its secrets replaced, and of a text that was not understood nothing is repeated that could be one.

#[cfg(feature = "sqlite")]
use std::path::PathBuf;
use std::str::FromStr;

use crate::dbms::Dbms;
use crate::error::SqlError;
#[cfg(feature = "postgres")]
pub use crate::postgres::parameters::Parameters;
use crate::schema::Dialect;

/// The address of a database.
///
/// - `sqlite:PATH`: a file, made if it is not there. Relative to the working directory.
/// - `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full&sslrootcert=FILE`, or pairs
///   (`host=HOST dbname=DATABASE`), as `libpq` reads them: several hosts, sockets, service and password files, the
///   environment.
/// - `mysql://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=REQUIRED`; `mariadb://` is the same.
///
/// The latter two may say `mandate_durability=accept-loss`: then members lead also on a server that does not wait for its
/// disk (`fsync = off`, `innodb_flush_log_at_trx_commit` other than 1).
///
/// It may hold a password, and is shown without.
///
/// Each variant is there if its cargo feature is on: `sqlite`, `postgres`, `mysql`.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A file of SQLite.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// PostgreSQL, or what speaks its protocol.
    #[cfg(feature = "postgres")]
    Postgres(Box<Parameters>),
    /// MySQL, MariaDB, or what speaks their protocol.
    #[cfg(feature = "mysql")]
    MySql(Box<url::Url>),
}

impl Address {
    pub(crate) fn dbms(&self) -> &dyn Dbms {
        match self {
            #[cfg(feature = "sqlite")]
            Address::Sqlite(path) => path,
            #[cfg(feature = "postgres")]
            Address::Postgres(parameters) => &**parameters,
            #[cfg(feature = "mysql")]
            Address::MySql(url) => &**url,
        }
    }

    /// The whole of it, with its password: what another process needs to find the same database, and nobody else
    /// should read.
    pub fn url(&self) -> String {
        self.dbms().url()
    }

    /// What kind of database it is, for messages.
    pub fn kind(&self) -> &'static str {
        self.dialect().name()
    }

    /// What its statements are written in.
    pub fn dialect(&self) -> Dialect {
        self.dbms().dialect()
    }

    /// The host and port that it names, if it names one host.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        self.dbms().host_and_port()
    }

    /// The same database, reached through another host and port: a relay, say. A file stays what it is.
    pub fn through(&self, host: &str, port: u16) -> Self {
        self.dbms().through(host, port)
    }
}

impl FromStr for Address {
    type Err = SqlError;

    fn from_str(text: &str) -> Result<Self, SqlError> {
        if text.starts_with("sqlite:") {
            return read(Dialect::Sqlite, text);
        }
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("postgres" | "postgresql") => read(Dialect::Postgres, text),
            Some("mysql" | "mariadb") => read(Dialect::MySql, text),
            #[cfg(feature = "postgres")]
            None if Parameters::are_pairs(text) => read(Dialect::Postgres, text),
            None if looks_like_file(text) => {
                Err(wrong(text, format!("to elect on a file of SQLite, write sqlite:{text}")))
            }
            _ => Err(wrong(text, "it must begin with sqlite:, postgres:// or mysql://".into())),
        }
    }
}

/// Reads an address of this database, if this build has it.
fn read(dialect: Dialect, text: &str) -> Result<Address, SqlError> {
    match dialect {
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => crate::sqlite::parse(text),
        #[cfg(feature = "postgres")]
        Dialect::Postgres => crate::postgres::address::parse(text),
        #[cfg(feature = "mysql")]
        Dialect::MySql => crate::mysql::address::parse(text),
        #[allow(unreachable_patterns)] // Where all of them are on.
        _ => {
            let (name, feature) = (dialect.name(), dialect.feature());
            Err(wrong(
                text,
                format!("this build has no {name}: build with the feature `{feature}`"),
            ))
        }
    }
}

/// What is wrong with an address, without the secrets in it.
pub(crate) fn wrong(text: &str, reason: String) -> SqlError {
    SqlError::Address { url: harmless(text), reason }
}

/// Whether somebody has named a file and no more.
fn looks_like_file(text: &str) -> bool {
    let is_path = text.starts_with(['/', '.', '~']);
    let is_named_so = [".db", ".sqlite", ".sqlite3"].iter().any(|end| text.ends_with(end));
    is_harmless(text) && (is_path || is_named_so)
}

/// Whether there can be no password in it: nothing separates one from anything.
fn is_harmless(text: &str) -> bool {
    !text.contains([':', '@', '=', '?', '&', '\'', '"']) && !text.contains(char::is_whitespace)
}

/// What can be shown of a text that was not understood: all of it if there is no password in it, else what kind of
/// address it was to be.
fn harmless(text: &str) -> String {
    if is_harmless(text) || (text.starts_with("sqlite:") && is_harmless(&text["sqlite:".len()..])) {
        return text.to_owned();
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme).filter(|scheme| {
        scheme.len() < 16 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
    });
    scheme.map_or_else(|| "...".into(), |scheme| format!("{scheme}://..."))
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.dbms().shown())
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(all(test, not(all(feature = "sqlite", feature = "postgres", feature = "mysql"))))]
mod tests_of_fewer {
    use super::*;

    #[test]
    fn a_database_that_this_build_does_not_have_is_refused_with_its_feature() {
        for (text, is_there, expected) in [
            ("sqlite:m.db", cfg!(feature = "sqlite"), "no SQLite: build with the feature `sqlite`"),
            (
                "postgres://u:secret@h/d",
                cfg!(feature = "postgres"),
                "no PostgreSQL: build with the feature `postgres`",
            ),
            (
                "mysql://u:secret@h/d",
                cfg!(feature = "mysql"),
                "no MySQL or MariaDB: build with the feature `mysql`",
            ),
        ] {
            match text.parse::<Address>() {
                Ok(address) => assert!(is_there, "{address}"),
                Err(error) => {
                    assert!(!is_there && error.is_final(), "{error}");
                    let error = error.to_string();
                    assert!(error.contains(expected) && !error.contains("secret"), "{error}");
                }
            }
        }
    }
}

#[cfg(all(test, feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_is_told_by_its_scheme_and_shown_without_its_password() {
        let shown = |text: &str| text.parse::<Address>().unwrap().to_string();
        assert_eq!(shown("sqlite:./m.db"), "sqlite:./m.db");
        assert_eq!(shown("sqlite:///var/m.db"), "sqlite:/var/m.db");
        assert_eq!(shown("postgres://u:secret@h:5/d"), "postgres://u:...@h:5/d");
        assert_eq!(shown("mariadb://u:secret@h/d"), "mysql://u:...@h/d");
        assert_eq!(shown("postgres://u@h/d?password=secret"), "postgres://u:...@h/d");
        assert_eq!(shown("host=h password=secret dbname=d"), "postgres://:...@h/d");
        assert_eq!(shown("postgres://u@h:1,[::1]:2/d"), "postgres://u@h:1,[::1]:2/d");
    }

    #[test]
    fn what_is_wrong_is_said_without_showing_a_password() {
        for (text, expected) in [
            ("sqlite:", "members share it"),
            ("sqlite::memory:", "members share it"),
            ("oracle://u:secret@h/d", "must begin with"),
            ("postgres://u:secret@h", "name the database"),
            ("postgres://u:secret@h:port/d", "port"),
            ("postgres://u:sec/secret@h/d", "%2F"),
            ("postgres://u:sec?secret@h/d", "%3F"),
            ("postgres://u:secret@h/d?sslcrl=x", "`sslcrl`"),
            ("postgres://u:secret@h/d?gssencmode=require", "gssencmode"),
            ("postgres://u:%zz@h/d", "two digits"),
            ("host=h password=secret frobnicate=1", "`frobnicate`"),
            ("host=h password='secret", "quote"),
            ("mysql://u:secret@h", "name the database"),
            ("mysql://u:secret@h/d?frobnicate=1", "frobnicate"),
            ("mysql://u:sec/secret@h/d", "%2F"),
            ("mysql://u:secret@h/d?mandate_durability=yes", "accept-loss"),
            ("postgres://u:secret@h/d?mandate_durability=yes", "accept-loss"),
            ("./mandate.db", "sqlite:./mandate.db"),
            ("mandate.db", "sqlite:mandate.db"),
            ("/var/lib/mandate.sqlite", "sqlite:/var/lib/mandate.sqlite"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.is_final(), "{text}");
            let error = error.to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_relay_stands_in_for_the_server_and_the_rest_is_kept() {
        let through = |text: &str| text.parse::<Address>().unwrap().through("127.0.0.1", 9).url();
        let url = through("postgres://u:a%40b@h1:1,h2/d?options=-c%20x%3Dy");
        assert_eq!(url, "postgres://u:a%40b@127.0.0.1:9/d?options=-c%20x%3Dy");
        assert_eq!(through("mysql://u:p@h/d"), "mysql://u:p@127.0.0.1:9/d");
        let place = |text: &str| text.parse::<Address>().unwrap().host_and_port();
        assert_eq!(place("postgres://u@h/d"), Some(("h".into(), 5432)));
        assert_eq!(place("mysql://u@h:7/d"), Some(("h".into(), 7)));
        assert_eq!(place("sqlite:m.db"), None);
    }

    /// Every way to write a password, and what surrounds it.
    fn texts(password: &str) -> Vec<String> {
        let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
        let mut texts = Vec::new();
        for written in [password, &encoded] {
            for scheme in ["postgres", "postgresql", "mysql", "mariadb", "oracle", "Postgres"] {
                texts.push(format!("{scheme}://u:{written}@h/d"));
                texts.push(format!("{scheme}://u:{written}@h:1,i:2/d?sslmode=disable"));
                texts.push(format!("{scheme}://u:{written}@h:x/d"));
                texts.push(format!("{scheme}://u:{written}@h"));
                texts.push(format!("{scheme}://u@h/d?password={written}"));
                texts.push(format!("{scheme}://u@h/d?x=1&password={written}&sslmode=y"));
            }
        }
        texts.push(format!("host=h dbname=d password='{quoted}'"));
        texts.push(format!("host=h password={password} dbname=d"));
        texts.push(format!("host = h password = '{quoted}' nonsense=1 dbname=d"));
        texts.push(format!("password={password}"));
        texts.push(format!("u:{password}@h/d"));
        texts
    }

    proptest! {
        /// Display, Debug, errors: whatever is made of the text, the password is nowhere in it.
        #[test]
        fn no_password_is_ever_shown(
            body in "[a-zA-Z0-9/@:?#&=+%' .,;!*-]{0,12}",
            place in 0_usize..3,
        ) {
            // A password of which every part can be recognised.
            let parts = [format!("Xq7Zw{body}"), format!("{body}Xq7Zw"), format!("Xq7Zw{body}Vk9Jp")];
            for text in texts(&parts[place]) {
                let shown = match text.parse::<Address>() {
                    Ok(address) => format!("{address} {address:?}"),
                    Err(error) => format!("{error} {error:?}"),
                };
                prop_assert!(!shown.contains("Xq7Zw") && !shown.contains("Vk9Jp"), "{} -> {}", text, shown);
            }
        }
    }
}
