//! From an address to a connection that is logged in.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mysql_async::{ClientIdentity, Conn, DriverError, Error, Opts, OptsBuilder, SslOpts, UrlError};
use url::Url;

use super::refusal;
use crate::error::NoConnection;
use crate::server::encoded;
use crate::{durability, session};

/// Whether and how TLS is used: the modes of MySQL's own client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Disabled,
    /// Where the server offers it. Nothing is verified: who could be in between could also offer none.
    Preferred,
    Required,
    VerifyCa,
    VerifyIdentity,
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().replace('-', "_").as_str() {
            "disabled" | "disable" => Mode::Disabled,
            "preferred" | "prefer" => Mode::Preferred,
            "required" | "require" => Mode::Required,
            "verify_ca" => Mode::VerifyCa,
            "verify_identity" | "verify_full" => Mode::VerifyIdentity,
            _ => return None,
        })
    }
}

/// How to connect.
#[derive(Debug)]
pub(crate) struct Options {
    plain: OptsBuilder,
    /// With TLS, if it is used at all.
    secure: Option<OptsBuilder>,
    mode: Mode,
    server: String,
    /// Nobody but this host sees what is sent.
    is_near: bool,
    /// Certificates and keys that are named.
    files: Vec<PathBuf>,
}

/// What an address says. The driver's own parameters (`require_ssl`, `verify_ca`, ...) are left to it.
pub(crate) fn options(url: &Url) -> Result<Options, String> {
    let mut rest = url.clone();
    rest.set_query(None);
    let (mut mode, mut root, mut certificate, mut key) = (None, None, None, None);
    let mut others = Vec::new();
    for (name, value) in url.query_pairs() {
        match &*name {
            "ssl-mode" | "ssl_mode" | "sslmode" => {
                let modes = "DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY";
                let parsed = Mode::parse(&value);
                mode = Some(parsed.ok_or_else(|| format!("{name} must be one of {modes}"))?);
            }
            durability::PARAMETER if value == durability::ACCEPTED => {}
            durability::PARAMETER => {
                return Err(format!("{name} must be {}, or left out", durability::ACCEPTED));
            }
            "ssl-ca" | "ssl_ca" | "sslrootcert" => root = Some(PathBuf::from(&*value)),
            "ssl-cert" | "ssl_cert" | "sslcert" => certificate = Some(PathBuf::from(&*value)),
            "ssl-key" | "ssl_key" | "sslkey" => key = Some(PathBuf::from(&*value)),
            _ => others.push(format!("{}={}", encoded(&name), encoded(&value))),
        }
    }
    if !others.is_empty() {
        rest.set_query(Some(&others.join("&")));
    }
    let opts = Opts::from_url(rest.as_str()).map_err(|error| match error {
        UrlError::UnknownParameter { param } => {
            format!("the parameter `{param}` is not known, or not supported")
        }
        UrlError::InvalidParamValue { param, .. } => {
            format!("the value of the parameter `{param}` is not one of those that it can have")
        }
        error => error.to_string(),
    })?;
    let files = [&root, &certificate, &key].into_iter().flatten().cloned().collect();
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientIdentity::new(certificate.into(), key.into())),
        _ => return Err("ssl-cert and ssl-key go together: name both files".into()),
    };
    let by_driver = opts.ssl_opts().cloned();
    let mode = mode.unwrap_or(match (&by_driver, &root) {
        // What `require_ssl=true` has always meant here.
        (Some(_), _) | (None, Some(_)) => Mode::VerifyIdentity,
        (None, None) => Mode::Preferred,
    });
    let plain = OptsBuilder::from_opts(opts.clone())
        // Conditions are counted, not changes: a row that was written as it was is one.
        .client_found_rows(true)
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(5)))
        .ssl_opts(None::<SslOpts>);
    let secure = (mode != Mode::Disabled).then(|| {
        let mut tls = by_driver.clone().unwrap_or_default().with_client_identity(identity);
        if let Some(root) = root {
            tls = tls.with_root_certs(vec![root.into()]);
        }
        if by_driver.is_none() {
            tls = tls
                .with_danger_accept_invalid_certs(matches!(mode, Mode::Preferred | Mode::Required))
                .with_danger_skip_domain_validation(mode == Mode::VerifyCa);
        }
        plain.clone().ssl_opts(tls)
    });
    let host = opts.ip_or_hostname();
    let is_loopback =
        host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let is_near = is_loopback || host == "localhost" || opts.socket().is_some();
    let server = format!("{host}:{}", opts.tcp_port());
    Ok(Options { plain, secure, mode, server, is_near, files })
}

/// A connection for anything.
pub(crate) async fn connect(url: &Url, patience: Duration) -> Result<Conn, NoConnection> {
    let options = options(url).map_err(NoConnection::lasting)?;
    for file in &options.files {
        let unreadable = |error| NoConnection::lasting(format!("{}: {error}", file.display()));
        std::fs::File::open(file).map_err(unreadable)?;
    }
    let connecting = async { log_in(options).await.map_err(|error| refusal(&error)) };
    session::within(session::bound(patience), connecting).await
}

async fn log_in(options: Options) -> Result<Conn, Error> {
    let Options { plain, secure, mode, server, is_near, .. } = options;
    match secure {
        None => Conn::new(plain).await,
        Some(secure) if mode != Mode::Preferred => Conn::new(secure).await,
        // There is nobody to hide it from. Some servers want TLS all the same, of some users.
        Some(secure) if is_near => match Conn::new(plain).await {
            Err(error @ Error::Server(_)) => match Conn::new(secure).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) => Err(error),
                connected => connected,
            },
            connected => connected,
        },
        Some(secure) => match Conn::new(secure).await {
            // The driver sends no password in plain text. A proxy in between that hides that the server has TLS gets
            // it all the same: over a plain connection `caching_sha2_password` encrypts it with the RSA key that the other
            // side shows. Only a server that is verified (VERIFY_CA, VERIFY_IDENTITY) is known to be the one.
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer)) => {
                let connection = Conn::new(plain).await?;
                warn_once(&server);
                Ok(connection)
            }
            connected => connected,
        },
    }
}

/// Tells the operator once for each server that nothing is encrypted.
fn warn_once(server: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(server.to_owned()) {
        tracing::warn!(
            server,
            "the connection is not encrypted: the server offers no TLS. Have it offer TLS and write ssl-mode=REQUIRED, or \
             write ssl-mode=DISABLED if the network is trusted"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(query: &str) -> Result<(Mode, bool), String> {
        let url = Url::parse(&format!("mysql://u:p@db.example/d?{query}")).unwrap();
        options(&url).map(|options| (options.mode, options.secure.is_some()))
    }

    #[test]
    fn tls_is_used_where_it_is_offered_unless_something_else_is_written() {
        assert_eq!(mode(""), Ok((Mode::Preferred, true)));
        assert_eq!(mode("ssl-mode=DISABLED"), Ok((Mode::Disabled, false)));
        assert_eq!(mode("sslmode=disable"), Ok((Mode::Disabled, false)));
        assert_eq!(mode("ssl-mode=REQUIRED"), Ok((Mode::Required, true)));
        assert_eq!(mode("require_ssl=true"), Ok((Mode::VerifyIdentity, true)));
        assert_eq!(mode("ssl-ca=r.pem"), Ok((Mode::VerifyIdentity, true)));
        assert_eq!(mode("ssl-mode=VERIFY_CA&ssl-ca=r.pem"), Ok((Mode::VerifyCa, true)));
        assert!(mode("ssl-mode=maybe").unwrap_err().contains("VERIFY_IDENTITY"));
        assert!(mode("ssl-cert=c").unwrap_err().contains("ssl-key"));
        assert!(mode("frobnicate=1").unwrap_err().contains("`frobnicate`"));
    }
}
