//! Who may ask what of the daemon.
//!
//! | address | needs | who may read | who may change things |
//! | --- | --- | --- | --- |
//! | loopback | nothing | everyone on this host | everyone on this host |
//! | any | a token | who has it | who has it |
//! | any | TLS alone | everyone | nobody: a certificate says who the daemon is, not who asks |
//!
//! `/livez`, `/readyz`, `/leader`, `/openapi.json` and the page's own files are for everyone: balancers and probes carry
//! no token, and the files say nothing of the group.
//!
//! A page that a browser on this host shows must not be able to depose a leader. It could send its requests
//! here (so an `Origin` that is not this daemon's own is refused), or have its own name point here, whereupon
//! the origins agree (so without a token or TLS the name must be one of loopback). With a token that trick
//! brings nothing: the browser keeps the token for the daemon's own name alone, and in no cookie that it would
//! send by itself. With TLS the name would have to be in our certificate.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use anyhow::Context;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use subtle::ConstantTimeEq;

use super::page;

/// Shorter ones can be guessed.
const MIN_TOKEN: usize = 16;

/// Longer ones are another file, given by mistake.
const MAX_TOKEN: usize = 1024;

/// What probes and balancers ask, and the description of the interface, which says nothing of the group.
const OPEN: [&str; 4] = ["/leader", "/livez", "/readyz", "/openapi.json"];

/// Whether everyone may ask for this.
pub(super) fn is_open(path: &str) -> bool {
    OPEN.contains(&path) || page::is_file(path)
}

/// `[api_access]` of a configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessTable {
    token_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Where token, certificate and key are.
#[derive(Clone, Debug, Default)]
pub struct AccessFiles {
    token: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
}

#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl AccessFiles {
    pub(super) fn has_any(&self) -> bool {
        self.token.is_some() || self.tls.is_some()
    }

    pub(super) fn token(&self) -> anyhow::Result<Option<Token>> {
        self.token.as_deref().map(Token::read).transpose()
    }

    /// What the files hold now, to see whether that has changed.
    pub(super) fn contents(&self) -> Vec<Option<Vec<u8>>> {
        let tls = self.tls.iter().flat_map(|files| [&files.certificate, &files.key]);
        self.token.iter().chain(tls).map(|path| std::fs::read(path).ok()).collect()
    }
}

impl AccessTable {
    /// What it comes to for an API at `api`; relative paths are beside the configuration.
    pub fn resolve(&self, api: SocketAddr, directory: &Path) -> anyhow::Result<AccessFiles> {
        let beside = |path: &PathBuf| directory.join(path);
        let tls = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: beside(certificate), key: beside(key) })
            }
            (None, None) => None,
            _ => anyhow::bail!("[api_access] certificate and key: give both, or neither"),
        };
        let token = self.token_file.as_ref().map(beside);
        anyhow::ensure!(
            api.ip().is_loopback() || token.is_some() || tls.is_some(),
            "api is {api}, which others can reach: that needs [api_access] with a token_file, or a \
             certificate and key, or both; or take a loopback address, such as 127.0.0.1:{}",
            api.port()
        );
        Ok(AccessFiles { token, tls })
    }
}

/// Who may ask.
#[derive(Debug)]
pub struct Access {
    token: RwLock<Option<Token>>,
    is_loopback: bool,
    has_tls: bool,
}

impl Access {
    pub fn load(files: &AccessFiles, api: SocketAddr) -> anyhow::Result<Self> {
        let token = files.token()?.into();
        let access =
            Access { token, is_loopback: api.ip().is_loopback(), has_tls: files.tls.is_some() };
        if !access.is_loopback && !access.has_tls {
            tracing::warn!(
                "the api's token travels unencrypted: set [api_access] certificate and key"
            );
        }
        Ok(access)
    }

    /// For an API that only this host reaches.
    pub fn loopback() -> Self {
        Access { token: None.into(), is_loopback: true, has_tls: false }
    }

    /// Wants another token from now on. Whether one is wanted at all does not change.
    pub(super) fn replace_token(&self, token: Option<Token>) {
        *self.token.write().unwrap_or_else(PoisonError::into_inner) = token;
    }

    fn token(&self) -> RwLockReadGuard<'_, Option<Token>> {
        self.token.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let headers = request.headers();
        let host = text(headers, header::HOST).unwrap_or("localhost");
        let scheme = if self.has_tls { "https" } else { "http" };
        let is_own = |origin: &str| origin == format!("{scheme}://{host}");
        if text(headers, header::ORIGIN).is_some_and(|origin| !is_own(origin)) {
            return Err(Refusal::Origin);
        }
        if self.token().is_none() && !self.has_tls && !is_local(host) {
            return Err(Refusal::Host);
        }
        let path = request.uri().path();
        if is_open(path) {
            return Ok(());
        }
        match &*self.token() {
            Some(token) => token.check(headers),
            None if self.is_loopback => Ok(()),
            None if [Method::GET, Method::HEAD].contains(request.method()) => Ok(()),
            None => Err(Refusal::ReadOnly),
        }
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether a `Host` is a name of this host alone.
fn is_local(host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |it| it.0);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Origin,
    Host,
    NoToken,
    WrongToken,
    ReadOnly,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, reason) = match self {
            Refusal::Origin => (StatusCode::FORBIDDEN, "no requests of pages of another origin\n"),
            Refusal::Host => {
                (StatusCode::FORBIDDEN, "only requests to a loopback address or to localhost\n")
            }
            Refusal::NoToken => {
                (StatusCode::UNAUTHORIZED, "this needs a token: `Authorization: Bearer ...`\n")
            }
            Refusal::WrongToken => (StatusCode::UNAUTHORIZED, "this is not the token\n"),
            Refusal::ReadOnly => (
                StatusCode::FORBIDDEN,
                "from other hosts nothing can be changed without a token: set [api_access] token_file\n",
            ),
        };
        let mut response = (code, reason).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Lets a request through or refuses it, and marks what browsers are to do with the answer.
pub async fn admit(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let mut response = match access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in page::HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// The bearer token that a request must carry.
pub(super) struct Token(Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("could not read {shown}"))?;
        // Of the file that was opened, not of what may by now be in its place.
        let mode =
            file.metadata().with_context(|| format!("could not read {shown}"))?.permissions();
        anyhow::ensure!(
            mode.mode() & 0o077 == 0,
            "{shown} can be read or changed by others: `chmod 600 {shown}`"
        );
        Token::parse(file).with_context(|| format!("{shown} is no token"))
    }

    fn parse(file: impl Read) -> anyhow::Result<Self> {
        let mut text = String::new();
        file.take(MAX_TOKEN as u64 + 1).read_to_string(&mut text)?;
        let token = text.trim_end();
        anyhow::ensure!(
            (MIN_TOKEN..=MAX_TOKEN).contains(&token.len()) && text.len() <= MAX_TOKEN,
            "write {MIN_TOKEN} to {MAX_TOKEN} characters, such as `openssl rand -hex 32` prints"
        );
        anyhow::ensure!(
            token.bytes().all(|byte| byte.is_ascii_graphic()),
            "write letters, digits and signs on one line, without spaces"
        );
        Ok(Token(token.as_bytes().to_vec()))
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let given = headers.get(header::AUTHORIZATION).ok_or(Refusal::NoToken)?.as_bytes();
        let (scheme, given) = given.split_at_checked(7).ok_or(Refusal::NoToken)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(Refusal::NoToken);
        }
        // How long the comparison takes tells nothing but the length.
        if given.trim_ascii().ct_eq(&self.0).into() { Ok(()) } else { Err(Refusal::WrongToken) }
    }
}

/// Reads the token that a command is to show.
pub fn read_token(path: &Path) -> anyhow::Result<String> {
    let Token(bytes) = Token::read(path)?;
    String::from_utf8(bytes).context("a token is ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request {
        let request = Request::builder().method(method).uri(path);
        let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        request.body(axum::body::Body::empty()).unwrap()
    }

    const OWN: (&str, &str) = ("host", "127.0.0.1:8101");
    const SECRET: &str = "0123456789abcdef";

    fn with_token() -> Access {
        let token = Some(Token::parse(SECRET.as_bytes()).unwrap()).into();
        Access { token, is_loopback: false, has_tls: false }
    }

    #[test]
    fn on_loopback_only_this_host_and_its_own_page_may_ask() {
        let access = Access::loopback();
        let ask = |headers: &[(&str, &str)]| access.check(&request("POST", "/v1/resign", headers));
        assert_eq!(ask(&[OWN]), Ok(()));
        for host in ["localhost", "localhost:8101", "[::1]:8101", "127.9.9.9"] {
            assert_eq!(ask(&[("host", host)]), Ok(()), "{host}");
        }
        let rebound = [
            "evil.example",
            "evil.example:8101",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "[::1",
            "",
        ];
        for host in rebound {
            assert_eq!(ask(&[("host", host)]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(ask(&[OWN, ("origin", "http://127.0.0.1:8101")]), Ok(()));
        for origin in
            ["http://evil.example", "https://127.0.0.1:8101", "http://127.0.0.1:9", "null"]
        {
            assert_eq!(ask(&[OWN, ("origin", origin)]), Err(Refusal::Origin), "{origin}");
        }
        assert_eq!(
            ask(&[("host", "evil.example"), ("origin", "http://evil.example")]),
            Err(Refusal::Host),
            "a name that was made to point here"
        );
    }

    #[test]
    fn with_a_token_everything_but_probes_and_the_page_needs_it() {
        let access = with_token();
        let host = ("host", "db7.example:8101");
        let ask = |path: &str, authorization: Option<&str>| {
            let authorization = authorization.map(|value| ("authorization", value));
            let headers: Vec<_> = [host].into_iter().chain(authorization).collect();
            access.check(&request("GET", path, &headers))
        };
        for path in ["/leader", "/livez", "/readyz", "/openapi.json", "/", "/page.js"] {
            assert_eq!(ask(path, None), Ok(()), "{path}");
        }
        for path in ["/metrics", "/v1/status", "/leader/", "/nothing"] {
            assert_eq!(ask(path, None), Err(Refusal::NoToken), "{path}");
        }
        let bearer = format!("bearer {SECRET}");
        assert_eq!(ask("/metrics", Some(&bearer)), Ok(()));
        for wrong in ["Bearer 0123456789abcdee", "Bearer 0123456789abcdef0", "Bearer "] {
            assert_eq!(ask("/metrics", Some(wrong)), Err(Refusal::WrongToken), "{wrong}");
        }
        assert_eq!(ask("/metrics", Some(SECRET)), Err(Refusal::NoToken));
        access.replace_token(Some(Token::parse(&b"another-one-of-16"[..]).unwrap()));
        assert_eq!(ask("/metrics", Some(&bearer)), Err(Refusal::WrongToken));
        assert_eq!(ask("/metrics", Some("Bearer another-one-of-16")), Ok(()));
    }

    #[test]
    fn tls_alone_lets_others_read_and_change_nothing() {
        let access = Access { token: None.into(), is_loopback: false, has_tls: true };
        let host = ("host", "db7.example");
        let ask = |method, path| access.check(&request(method, path, &[host]));
        assert_eq!((ask("GET", "/v1/status"), ask("POST", "/leader")), (Ok(()), Ok(())));
        assert_eq!(ask("POST", "/v1/resign"), Err(Refusal::ReadOnly));
        assert_eq!(ask("PUT", "/v1/score"), Err(Refusal::ReadOnly));
        let own = request("GET", "/", &[host, ("origin", "https://db7.example")]);
        assert_eq!(access.check(&own), Ok(()));
    }

    #[test]
    fn a_token_that_can_be_guessed_or_read_is_refused() {
        let error = |text: &str| format!("{:#}", Token::parse(text.as_bytes()).unwrap_err());
        assert!(error("short").contains("16 to 1024 characters"));
        assert!(error(&"x".repeat(MAX_TOKEN + 1)).contains("16 to 1024 characters"));
        assert!(error("sixteen letters and spaces").contains("without spaces"));
        assert_eq!(Token::parse("0123456789abcdef\n".as_bytes()).unwrap().0, SECRET.as_bytes());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, SECRET).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let error = format!("{:#}", Token::read(&path).unwrap_err());
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        Token::read(&path).unwrap();
    }
}
