//! Where to connect to and as whom: what the connection string says, and what stands in for what it leaves out.
//!
//! As in `libpq`: the string, then the service file, then the environment, then a default. A password that none of them
//! has is looked up in the password file, for each host.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::ChannelBinding;

use super::parameters::Parameters;
use super::tls::{Identity, Roots, Trust};

/// Which variable of the environment stands in for which parameter.
const VARIABLES: [(&str, &str); 17] = [
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("dbname", "PGDATABASE"),
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("options", "PGOPTIONS"),
    ("passfile", "PGPASSFILE"),
    ("password", "PGPASSWORD"),
    ("port", "PGPORT"),
    ("service", "PGSERVICE"),
    ("servicefile", "PGSERVICEFILE"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
];

/// Where servers of this host put their sockets, Debian's way and the original one.
const SOCKETS: [&str; 2] = ["/run/postgresql", "/tmp"];

const PORT: u16 = 5432;

/// What this process knows besides the connection string. Given, so that tests have an environment of their own.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Surroundings<'_> {
    /// Those of this process.
    pub(crate) fn own() -> Surroundings<'static> {
        Surroundings {
            variable: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        }
    }

    fn home(&self) -> Option<PathBuf> {
        (self.variable)("HOME").map(PathBuf::from)
    }

    /// A file of the user's that is there.
    fn in_home(&self, name: &str) -> Option<PathBuf> {
        self.home().map(|home| home.join(name)).filter(|path| path.is_file())
    }
}

/// A server that may be the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// A name, an address, or a directory with a socket.
    pub(crate) host: String,
    /// The address, where the name need not be looked up.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Place {
    /// The file, if it is a socket of this host.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let is_path = self.address.is_none() && self.host.starts_with('/');
        is_path.then(|| Path::new(&self.host).join(format!(".s.PGSQL.{}", self.port)))
    }
}

/// What kind of server is wanted, of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// One that takes writes, or any if there is none: what several hosts mean to an election.
    PreferWritable,
    Writable,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// Whether and how TLS is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// It was written so.
    Never,
    /// Where the server offers it.
    Offered(Terms),
    Always(Terms),
}

/// How a TLS connection is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) trust: Trust,
    pub(crate) roots: Roots,
    pub(crate) identity: Option<Identity>,
    /// Whether the server is told by name which one is meant.
    pub(crate) names_server: bool,
}

/// Everything that is needed to connect.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) places: Vec<Place>,
    pub(crate) wanted: Wanted,
    pub(crate) tls: Tls,
    /// How long one attempt may take, if that is written.
    pub(crate) limit: Option<Duration>,
    /// In which order: at random, or as written.
    pub(crate) shuffles: bool,
    pub(crate) keepalive: Option<Keepalive>,
    /// How long what was sent may go unacknowledged, if that is written; zero leaves it to the system.
    pub(crate) user_timeout: Option<Duration>,
    /// Whether an address is this host's own, where nobody else sees what is sent.
    pub(crate) is_near: fn(IpAddr) -> bool,
    config: Config,
    passwords: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
}

/// Whether a database is named, somewhere.
pub(crate) fn names_database(parameters: &Parameters, around: &Surroundings<'_>) -> bool {
    let named = |name: &str| {
        let variable = VARIABLES.iter().find(|(known, _)| *known == name).map(|(_, it)| *it);
        parameters.get(name).is_some() || variable.and_then(|it| (around.variable)(it)).is_some()
    };
    named("dbname") || named("service")
}

/// What the string and its surroundings come to.
pub(crate) fn resolve(
    parameters: &Parameters,
    around: &Surroundings<'_>,
) -> Result<Target, String> {
    let from_environment = |name: &str| {
        let (_, variable) = VARIABLES.iter().find(|(known, _)| *known == name)?;
        (around.variable)(variable)
    };
    let plain =
        |name: &str| parameters.get(name).map(str::to_owned).or_else(|| from_environment(name));
    let service = match plain("service") {
        None => None,
        Some(name) => Some(service(&name, plain("servicefile"), around)?),
    };
    let get = |name: &str| {
        let written = parameters.get(name).map(str::to_owned);
        let served = || service.as_ref()?.get(name).map(str::to_owned);
        written.or_else(served).or_else(|| from_environment(name))
    };
    let mut config = Config::new();
    let user =
        get("user").or_else(|| (around.variable)("PGUSER")).or_else(|| (around.variable)("USER"));
    if let Some(user) = user {
        config.user(user);
    }
    config.dbname(get("dbname").ok_or("name the database, as in HOST:PORT/DATABASE")?);
    if let Some(options) = get("options") {
        config.options(options);
    }
    let name = get("application_name").or_else(|| get("fallback_application_name"));
    config.application_name(name.unwrap_or_else(|| "mandate".into()));
    config.channel_binding(match get("channel_binding").as_deref() {
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        _ => ChannelBinding::Prefer,
    });
    let password = get("password");
    if let Some(password) = &password {
        config.password(password);
    }
    let places = places(get("host"), get("hostaddr"), get("port"))?;
    let passwords = match password {
        Some(_) => None,
        None => password_file(get("passfile"), around),
    };
    let seconds = |name: &str| get(name).and_then(|it| it.parse().ok()).map(Duration::from_secs);
    let number = |name: &str| get(name).and_then(|it| it.parse::<u32>().ok());
    Ok(Target {
        wanted: wanted(get("target_session_attrs").as_deref(), places.len())?,
        places,
        tls: tls(&get, around)?,
        // Zero is no limit to libpq; here there is always one.
        limit: seconds("connect_timeout").filter(|limit| !limit.is_zero()),
        shuffles: get("load_balance_hosts").as_deref() == Some("random"),
        keepalive: (number("keepalives") != Some(0)).then(|| Keepalive {
            idle: seconds("keepalives_idle").unwrap_or(Duration::from_secs(5)),
            interval: seconds("keepalives_interval").unwrap_or(Duration::from_secs(2)),
            count: number("keepalives_count").or(number("keepalives_retries")).unwrap_or(3),
        }),
        user_timeout: number("tcp_user_timeout").map(|it| Duration::from_millis(it.into())),
        is_near: |address| address.to_canonical().is_loopback(),
        config,
        passwords,
    })
}

impl Target {
    /// The driver's configuration for one of the places: each may have a password of its own.
    pub(crate) fn config(&self, place: &Place) -> Config {
        let mut config = self.config.clone();
        let found = self.passwords.as_deref().and_then(|file| {
            // What libpq writes for the socket where no host is named.
            let host = if place.socket().is_some() { "localhost" } else { &place.host };
            let names = [&place.host, host];
            let user = config.get_user().unwrap_or_default();
            let database = config.get_dbname().unwrap_or_default();
            names
                .iter()
                .find_map(|host| password(file, [host, &place.port.to_string(), database, user]))
        });
        if let Some(found) = found {
            config.password(found);
        }
        config
    }
}

fn wanted(text: Option<&str>, places: usize) -> Result<Wanted, String> {
    Ok(match text {
        None if places > 1 => Wanted::PreferWritable,
        None | Some("any") => Wanted::Any,
        Some("read-write") => Wanted::Writable,
        Some("read-only") => Wanted::ReadOnly,
        Some("primary") => Wanted::Primary,
        Some("standby") => Wanted::Standby,
        Some("prefer-standby") => Wanted::PreferStandby,
        Some(_) => return Err("target_session_attrs is not one of those that are known".into()),
    })
}

fn places(
    hosts: Option<String>,
    addresses: Option<String>,
    ports: Option<String>,
) -> Result<Vec<Place>, String> {
    let list = |text: Option<String>| -> Vec<String> {
        text.map(|text| text.split(',').map(|it| it.trim().to_owned()).collect())
            .unwrap_or_default()
    };
    let (hosts, addresses, ports) = (list(hosts), list(addresses), list(ports));
    let number = hosts.len().max(addresses.len()).max(1);
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err("host and hostaddr must name equally many".into());
    }
    if ports.len() > 1 && ports.len() != number {
        return Err("name one port, or one for each host".into());
    }
    let place = |at: usize| {
        let port = match ports.get(at).or(ports.first()).map(String::as_str) {
            None | Some("") => PORT,
            Some(port) => port.parse().map_err(|_| "a port must be a number up to 65535")?,
        };
        let address = match addresses.get(at).map(String::as_str) {
            None | Some("") => None,
            Some(text) => {
                Some(text.parse::<IpAddr>().map_err(|_| "hostaddr must be an IP address")?)
            }
        };
        let host = match hosts.get(at).map(String::as_str) {
            None | Some("") => match address {
                Some(address) => address.to_string(),
                None => default_host(port),
            },
            Some(host) => host.to_owned(),
        };
        Ok::<_, String>(Place { host, address, port })
    };
    (0..number).map(place).collect()
}

/// A socket of this host if there is one, else loopback.
fn default_host(port: u16) -> String {
    let name = format!(".s.PGSQL.{port}");
    let there = SOCKETS.iter().find(|directory| Path::new(directory).join(&name).exists());
    there.copied().unwrap_or("localhost").to_owned()
}

fn tls(get: &dyn Fn(&str) -> Option<String>, around: &Surroundings<'_>) -> Result<Tls, String> {
    let root = get("sslrootcert");
    let roots = match root.as_deref() {
        Some("system") => Roots::System,
        Some(path) => Roots::File(path.into()),
        None => match around.in_home(".postgresql/root.crt") {
            Some(path) => Roots::File(path),
            None => Roots::System,
        },
    };
    let identity = match (get("sslcert"), get("sslkey")) {
        (Some(certificate), Some(key)) => {
            Some(Identity { certificate: certificate.into(), key: key.into() })
        }
        (None, None) => {
            let files =
                ["crt", "key"].map(|it| around.in_home(&format!(".postgresql/postgresql.{it}")));
            let [certificate, key] = files;
            certificate.zip(key).map(|(certificate, key)| Identity { certificate, key })
        }
        (Some(_), None) => return Err("sslcert needs sslkey=FILE beside it".into()),
        (None, Some(_)) => return Err("sslkey needs sslcert=FILE beside it".into()),
    };
    let names_server = get("sslsni").as_deref() != Some("0");
    let terms =
        |trust| Terms { trust, roots: roots.clone(), identity: identity.clone(), names_server };
    Ok(match get("sslmode").as_deref() {
        // With a file of certificates `require` checks them, as libpq does.
        Some("require") if matches!(roots, Roots::File(_)) => Tls::Always(terms(Trust::Chain)),
        // The system's certificates are for servers of the whole internet: only a name tells them apart.
        None if root.as_deref() == Some("system") => Tls::Always(terms(Trust::Name)),
        None | Some("prefer" | "allow") => Tls::Offered(terms(Trust::Anything)),
        Some("disable") => Tls::Never,
        Some("require") => Tls::Always(terms(Trust::Anything)),
        Some("verify-ca") => Tls::Always(terms(Trust::Chain)),
        Some("verify-full") => Tls::Always(terms(Trust::Name)),
        Some(_) => return Err("sslmode is not one of those that are known".into()),
    })
}

/// A section of the service file, as a connection string.
fn service(
    name: &str,
    file: Option<String>,
    around: &Surroundings<'_>,
) -> Result<Parameters, String> {
    let system =
        (around.variable)("PGSYSCONFDIR").map(|it| PathBuf::from(it).join("pg_service.conf"));
    let files = [
        file.map(PathBuf::from),
        around.in_home(".pg_service.conf"),
        system,
        Some("/etc/postgresql-common/pg_service.conf".into()),
    ];
    for file in files.into_iter().flatten() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        if let Some(pairs) = section(&text, name) {
            return Parameters::from_pairs(&pairs)
                .map_err(|error| format!("service `{name}` in {}: {error}", file.display()));
        }
    }
    Err(format!("no service file has the service `{name}`"))
}

/// The lines of a section as pairs.
fn section(text: &str, name: &str) -> Option<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let heading = format!("[{name}]");
    let mut found = lines.skip_while(|line| *line != heading);
    found.next()?;
    let pairs = found.take_while(|line| !line.starts_with('[')).filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.trim().replace('\\', "\\\\").replace('\'', "\\'");
        Some(format!("{}='{value}'", name.trim()))
    });
    Some(pairs.collect::<Vec<_>>().join(" "))
}

/// The password file, unless others may read it: then it is not used, and that is logged, as in libpq.
fn password_file(path: Option<String>, around: &Surroundings<'_>) -> Option<String> {
    let path = path.map(PathBuf::from).or_else(|| around.in_home(".pgpass"))?;
    let text = std::fs::read_to_string(&path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).ok()?.permissions().mode();
        if mode & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "the password file is not used: others may read it; chmod 0600 it");
            return None;
        }
    }
    Some(text)
}

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits anything.
fn password(file: &str, wanted: [&str; 4]) -> Option<String> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let (password, keys) = fields.split_last()?;
        let fits = keys.len() == 4
            && keys.iter().zip(wanted).all(|(key, wanted)| key == "*" || key == wanted);
        fits.then(|| password.clone())
    })
}

/// The fields of a line, between colons that no backslash stands before. The fifth is the rest.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut escapes) = (vec![String::new()], false);
    for c in line.chars() {
        let is_last = fields.len() == 5;
        let field = fields.last_mut().expect("there is one");
        match c {
            _ if escapes => {
                field.push(c);
                escapes = false;
            }
            '\\' => escapes = true,
            ':' if !is_last => fields.push(String::new()),
            c => field.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn with(variables: &[(&str, &str)], text: &str) -> Result<Target, String> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let parameters = match text.contains("://") {
            true => Parameters::from_url(text)?,
            false => Parameters::from_pairs(text)?,
        };
        resolve(&parameters, &Surroundings { variable: &variable })
    }

    fn place(host: &str, port: u16) -> Place {
        Place { host: host.into(), address: None, port }
    }

    #[test]
    fn what_libpq_users_write_is_understood() {
        let several = with(&[], "postgres://u@h1:1,h2/d?target_session_attrs=read-write").unwrap();
        assert_eq!(several.places, [place("h1", 1), place("h2", 5432)]);
        assert_eq!(several.wanted, Wanted::Writable);
        let unsaid = with(&[], "postgres://u@h1,h2/d").unwrap();
        assert_eq!(unsaid.wanted, Wanted::PreferWritable, "an election writes");
        let options = with(&[], "postgres://u@h/d?options=-c%20search_path%3Dx").unwrap();
        assert_eq!(options.config(&options.places[0]).get_options(), Some("-c search_path=x"));
        let plus = with(&[], "postgres://u@h/d?application_name=a+b%2Bc").unwrap();
        assert_eq!(plus.config(&plus.places[0]).get_application_name(), Some("a+b+c"));
        for text in [
            "postgres://u:p@/d?host=/run/pg",
            "postgres://u:p@%2Frun%2Fpg/d",
            "host=/run/pg user=u password=p dbname=d",
        ] {
            let socket = with(&[], text).unwrap();
            let path = socket.places[0].socket();
            assert_eq!(path.unwrap(), Path::new("/run/pg/.s.PGSQL.5432"), "{text}");
            assert_eq!(socket.config(&socket.places[0]).get_password(), Some(&b"p"[..]), "{text}");
        }
        let v6 = with(&[], "postgresql://u@[::1]:7/d?gssencmode=disable").unwrap();
        assert_eq!(v6.places, [place("::1", 7)]);
        let quoted = with(&[], r"dbname = 'two words' user=u password='it\'s' host=h").unwrap();
        let config = quoted.config(&quoted.places[0]);
        assert_eq!(config.get_dbname(), Some("two words"));
        assert_eq!(config.get_password(), Some(&b"it's"[..]));
    }

    #[test]
    fn the_environment_stands_in_for_what_is_not_written() {
        let variables = [
            ("PGHOST", "db"),
            ("PGPORT", "7"),
            ("PGUSER", "me"),
            ("PGDATABASE", "app"),
            ("PGPASSWORD", "secret"),
            ("PGSSLMODE", "disable"),
        ];
        let all = with(&variables, "postgres://").unwrap();
        assert_eq!((&all.places[0], &all.tls), (&place("db", 7), &Tls::Never));
        let config = all.config(&all.places[0]);
        assert_eq!((config.get_user(), config.get_dbname()), (Some("me"), Some("app")));
        assert_eq!(config.get_password(), Some(&b"secret"[..]));
        let written = with(&variables, "postgres://you:mine@h:1/d?sslmode=require").unwrap();
        let config = written.config(&written.places[0]);
        assert_eq!((config.get_user(), config.get_password()), (Some("you"), Some(&b"mine"[..])));
        assert!(matches!(written.tls, Tls::Always(_)) && written.places == [place("h", 1)]);
        assert!(with(&[], "postgres://u@h").unwrap_err().contains("name the database"));
    }

    #[test]
    fn passwords_and_services_are_read_from_their_files() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".pgpass");
        std::fs::write(
            &file,
            "# a comment\nh1:*:d:u:first\nh2:5432:*:u:se\\:co\\\\nd:x\nlocalhost:*:*:*:here\n",
        )
        .unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let services =
            "[other]\nhost=no\n[orders]\n# of the shop\nhost=h1\ndbname=d\nuser=u\nport=9\n";
        std::fs::write(home.path().join(".pg_service.conf"), services).unwrap();
        let variables = [("HOME", home.path().to_str().unwrap())];
        let passwords = |text: &str| -> Vec<Option<String>> {
            let target = with(&variables, text).unwrap();
            let password = |place| {
                let config = target.config(place);
                config.get_password().map(|it| String::from_utf8(it.to_vec()).unwrap())
            };
            target.places.iter().map(password).collect()
        };
        mode(0o600);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            passwords("postgres://u@h1,h2,h3/d"),
            [some("first"), some("se:co\\nd:x"), None]
        );
        assert_eq!(passwords("postgres://u@/d?host=/run/pg"), [some("here")]);
        assert_eq!(passwords("postgres://u:own@h1/d"), [some("own")]);
        assert_eq!(passwords("service=orders"), [some("first")]);
        assert_eq!(with(&variables, "service=orders").unwrap().places, [place("h1", 9)]);
        assert_eq!(
            with(&variables, "postgres://h/?service=orders").unwrap().places,
            [place("h", 9)]
        );
        let error = with(&variables, "service=none").unwrap_err();
        assert!(error.contains("`none`"), "{error}");
        mode(0o644);
        assert_eq!(passwords("postgres://u@h1/d"), [None], "others could read it");
    }

    #[test]
    fn tls_modes_mean_what_they_mean_to_libpq() {
        let tls = |text: &str| with(&[], &format!("postgres://u@h/d?{text}")).map(|it| it.tls);
        let terms = |trust, roots: &Roots| Terms {
            trust,
            roots: roots.clone(),
            identity: None,
            names_server: true,
        };
        let (system, file) = (Roots::System, Roots::File("r.crt".into()));
        for (text, expected) in [
            ("", Tls::Offered(terms(Trust::Anything, &system))),
            ("sslmode=prefer", Tls::Offered(terms(Trust::Anything, &system))),
            ("sslmode=disable", Tls::Never),
            ("sslmode=require", Tls::Always(terms(Trust::Anything, &system))),
            ("ssl=true", Tls::Always(terms(Trust::Anything, &system))),
            ("sslmode=require&sslrootcert=r.crt", Tls::Always(terms(Trust::Chain, &file))),
            ("sslmode=verify-ca&sslrootcert=r.crt", Tls::Always(terms(Trust::Chain, &file))),
            ("sslmode=verify-full", Tls::Always(terms(Trust::Name, &system))),
            ("sslrootcert=system", Tls::Always(terms(Trust::Name, &system))),
        ] {
            assert_eq!(tls(text).unwrap(), expected, "{text}");
        }
        let Tls::Always(terms) = tls("sslmode=require&sslcert=c&sslkey=k").unwrap() else {
            panic!()
        };
        assert_eq!(terms.identity, Some(Identity { certificate: "c".into(), key: "k".into() }));
        let Tls::Offered(terms) = tls("sslsni=0").unwrap() else { panic!() };
        assert!(!terms.names_server);
        assert!(tls("sslsni=maybe").unwrap_err().contains("sslsni"));
        assert!(tls("sslcompression=1").unwrap_err().contains("sslcompression"));
        assert!(tls("sslcert=c").unwrap_err().contains("sslkey"));
        assert!(tls("sslmode=maybe").unwrap_err().contains("verify-full"));
    }
}
