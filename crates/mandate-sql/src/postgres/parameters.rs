//! A connection string of PostgreSQL, as `libpq` reads it: a URL, or `name=value` pairs.
//!
//! It is parsed here and not by the driver. The driver's parser knows neither TLS files nor password files, names no
//! parameter that it does not know, and repeats what it could not read, which may be a password. Nothing here repeats a
//! value in an error: of what cannot be read nobody knows which part is the password.

use std::fmt::Write as _;

use crate::server::{ENCODE, encoded};

/// What is known. Everything else is refused by name: a setting that is not understood must not be ignored.
const KNOWN: [&str; 32] = [
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    crate::durability::PARAMETER,
    "options",
    "passfile",
    "password",
    "port",
    "service",
    "servicefile",
    "sslcert",
    "sslcompression",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// A connection string. It may hold a password, and is shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct Parameters {
    text: String,
    pairs: Vec<(&'static str, String)>,
}

impl Parameters {
    /// From a URL with its scheme.
    pub(crate) fn from_url(text: &str) -> Result<Self, String> {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        if rest.contains('#') {
            return Err(format!("there is a # in it: {ENCODE}"));
        }
        let (place, query) =
            rest.split_once('?').map_or((rest, ""), |(place, query)| (place, query));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        // A slash or a question mark in a password cuts the text in the wrong place.
        if database.contains(['@', '/']) || (!authority.contains('@') && query.contains('@')) {
            return Err(format!("it cannot be split into its parts: {ENCODE}"));
        }
        let mut parameters = Parameters { text: text.to_owned(), pairs: Vec::new() };
        let hosts = match authority.rsplit_once('@') {
            None => authority,
            Some((credentials, hosts)) => {
                let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
                parameters.set_decoded("user", user)?;
                parameters.set_decoded("password", password)?;
                hosts
            }
        };
        parameters.set_hosts(hosts)?;
        parameters.set_decoded("dbname", database)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("a parameter after the ? has no value; {ENCODE}"))?;
            match (name, value) {
                // What JDBC writes.
                ("ssl", "true") => parameters.set("sslmode", "require".into())?,
                _ => parameters.set(&decoded(name)?, decoded(value)?)?,
            }
        }
        Ok(parameters)
    }

    /// From pairs: `host=db.example dbname=orders password='two words'`.
    pub(crate) fn from_pairs(text: &str) -> Result<Self, String> {
        let mut parameters = Parameters { text: text.to_owned(), pairs: Vec::new() };
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=').ok_or("a parameter has no value")?;
            let (value, after) = pair_value(after.trim_start())?;
            parameters.set(name.trim(), value)?;
            rest = after.trim_start();
        }
        Ok(parameters)
    }

    /// Whether this looks like pairs: a parameter that is known, and then `=`.
    pub(crate) fn are_pairs(text: &str) -> bool {
        text.split_once('=').is_some_and(|(name, _)| KNOWN.contains(&name.trim()))
    }

    fn set_decoded(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        match value {
            "" => Ok(()),
            value => self.set(name, decoded(value)?),
        }
    }

    /// `h1:1,h2:2,[::1]` is two lists.
    fn set_hosts(&mut self, text: &str) -> Result<(), String> {
        let (mut hosts, mut ports) = (Vec::new(), Vec::new());
        for place in text.split(',') {
            let (host, port) = match place.strip_prefix('[') {
                Some(rest) => {
                    let (host, port) = rest.split_once(']').ok_or("a [ is not closed")?;
                    (host, port.strip_prefix(':').unwrap_or(port))
                }
                None => place.split_once(':').unwrap_or((place, "")),
            };
            hosts.push(decoded(host)?);
            ports.push(port.to_owned());
        }
        if hosts.iter().any(|host| !host.is_empty()) {
            self.set("host", hosts.join(","))?;
        }
        if ports.iter().any(|port| !port.is_empty()) {
            self.set("port", ports.join(","))?;
        }
        Ok(())
    }

    /// The last one counts.
    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let known = KNOWN.into_iter().find(|known| *known == name);
        let Some(known) = known else {
            let is_name =
                name.len() < 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let name = if is_name { name } else { "one" };
            return Err(format!("the parameter `{name}` is not known, or not supported"));
        };
        check(known, &value)?;
        self.pairs.retain(|(name, _)| *name != known);
        self.pairs.push((known, value));
        Ok(())
    }

    /// The value of a parameter that is written and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| *known == name);
        pair.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The text as it was written, with its password: what another process needs to find the same database, and nobody
    /// else should read.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same database, found through another host and port: a relay, say.
    pub(crate) fn moved(&self, host: &str, port: u16) -> Self {
        let mut pairs = self.pairs.clone();
        pairs.retain(|(name, _)| !["host", "hostaddr", "port"].contains(name));
        pairs.push(("host", host.to_owned()));
        pairs.push(("port", port.to_string()));
        let mut moved = Parameters { text: String::new(), pairs };
        moved.text = moved.written(false);
        moved
    }

    /// As a URL, with secrets or without.
    fn written(&self, masks: bool) -> String {
        let get = |name: &str| self.get(name).unwrap_or_default();
        let mut url = String::from("postgres://");
        let password = match (get("password"), masks) {
            ("", _) => String::new(),
            (_, true) => ":...".into(),
            (password, false) => format!(":{}", encoded(password)),
        };
        if !(get("user").is_empty() && password.is_empty()) {
            let _ = write!(url, "{}{password}@", encoded(get("user")));
        }
        url += &self.hosts_and_ports();
        if !get("dbname").is_empty() {
            let _ = write!(url, "/{}", encoded(get("dbname")));
        }
        let rest = self
            .pairs
            .iter()
            .filter(|(name, _)| !["user", "password", "host", "port", "dbname"].contains(name));
        for (place, (name, value)) in rest.enumerate() {
            let _ = write!(url, "{}{name}={}", if place == 0 { '?' } else { '&' }, encoded(value));
        }
        url
    }

    fn hosts_and_ports(&self) -> String {
        let hosts: Vec<&str> = self.get("host").unwrap_or_default().split(',').collect();
        let ports: Vec<&str> = self.get("port").unwrap_or_default().split(',').collect();
        let port = |place: usize| ports.get(place).or(ports.last()).copied().unwrap_or_default();
        let shown = hosts.iter().enumerate().map(|(place, host)| {
            let host = if host.contains(':') { format!("[{host}]") } else { encoded(host) };
            match port(place) {
                "" => host,
                port => format!("{host}:{port}"),
            }
        });
        shown.collect::<Vec<_>>().join(",")
    }
}

impl std::fmt::Display for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.written(true))
    }
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// What can be seen to be wrong before anybody connects.
fn check(name: &'static str, value: &str) -> Result<(), String> {
    let one_of = |words: &[&str]| match words.contains(&value) {
        true => Ok(()),
        false => Err(format!("{name} must be one of {}", words.join(", "))),
    };
    let number = || match value.parse::<u32>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{name} must be a whole number")),
    };
    match name {
        "sslmode" => one_of(&["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]),
        // What GSSAPI would encrypt, TLS does.
        "gssencmode" => one_of(&["disable", "prefer"]),
        "sslnegotiation" => one_of(&["postgres"]),
        // There is none, as in today's libpq.
        "sslcompression" => one_of(&["0"]),
        "sslsni" => one_of(&["0", "1"]),
        "channel_binding" => one_of(&["disable", "prefer", "require"]),
        "load_balance_hosts" => one_of(&["disable", "random"]),
        crate::durability::PARAMETER => one_of(&[crate::durability::ACCEPTED]),
        "client_encoding" => one_of(&["utf8", "UTF8", "auto"]),
        "target_session_attrs" => {
            one_of(&["any", "read-write", "read-only", "primary", "standby", "prefer-standby"])
        }
        "connect_timeout"
        | "keepalives"
        | "keepalives_count"
        | "keepalives_idle"
        | "keepalives_interval"
        | "keepalives_retries"
        | "tcp_user_timeout" => number(),
        "port" => match value.split(',').all(|port| port.is_empty() || port.parse::<u16>().is_ok())
        {
            true => Ok(()),
            false => Err(format!("a port must be a number up to 65535; {ENCODE}")),
        },
        _ => Ok(()),
    }
}

/// The value at the beginning of this, quoted or up to a blank, and what is after it.
fn pair_value(text: &str) -> Result<(String, &str), String> {
    let (is_quoted, text) = match text.strip_prefix('\'') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut value, mut escapes) = (String::new(), false);
    for (place, c) in text.char_indices() {
        match c {
            _ if escapes => {
                value.push(c);
                escapes = false;
            }
            '\\' => escapes = true,
            '\'' if is_quoted => return Ok((value, &text[place + 1..])),
            c if !is_quoted && c.is_whitespace() => return Ok((value, &text[place..])),
            c => value.push(c),
        }
    }
    match is_quoted {
        true => Err("a quote is not closed".into()),
        false => Ok((value, "")),
    }
}

/// Without percent signs. A plus is a plus.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("a % is not followed by two digits; {ENCODE}");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        let (high, low) = digit().zip(digit()).ok_or_else(wrong)?;
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 when decoded".into())
}
