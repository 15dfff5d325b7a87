//! How commands reach a daemon: its address, the token that it may want, the authority that it may be proved by.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::config::ConfigBuilder;
use ureq::http::{Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::typestate::{AgentScope, WithBody};

use crate::node::access::read_token;

/// A daemon that does not answer for so long is not there.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than the daemon lets anyone hold its mandate.
const ORDER_PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, clap::Args)]
pub struct ApiArgs {
    /// The `api` address of the daemon; http:// or https:// may stand before it.
    #[arg(long, env = "MANDATE_API", default_value = "127.0.0.1:8101", value_name = "HOST:PORT")]
    api: Address,
    /// The file with its token, if it wants one.
    #[arg(long, env = "MANDATE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The authority of its certificate: speaks https, unless the address begins with http://.
    #[arg(long, env = "MANDATE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Where a daemon is.
#[derive(Clone, Debug)]
struct Address {
    /// Whether it begins so; `None` if it does not say.
    is_https: Option<bool>,
    /// Host and port.
    place: String,
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_https, place) = match text.split_once("://") {
            None => (None, text),
            Some(("http", place)) => (Some(false), place),
            Some(("https", place)) => (Some(true), place),
            Some(_) => return Err("write host:port, or https://host:port"),
        };
        let place = place.trim_end_matches('/');
        let (host, port) = place.rsplit_once(':').ok_or("the port is missing: write host:port")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) || port.parse::<u16>().is_err() {
            return Err("write host:port, or https://host:port");
        }
        Ok(Address { is_https, place: place.into() })
    }
}

/// A daemon to ask.
pub struct DaemonClient {
    agent: ureq::Agent,
    base: String,
    authorization: Option<String>,
}

impl DaemonClient {
    pub fn new(args: &ApiArgs) -> anyhow::Result<Self> {
        let Address { is_https, place } = &args.api;
        // Somebody who names an authority does not want the token to travel in the clear.
        let is_https = is_https.unwrap_or(args.ca.is_some());
        let scheme = if is_https { "https" } else { "http" };
        let mut config = agent_config();
        if is_https {
            let ca = args
                .ca
                .as_ref()
                .context("https needs --ca with the authority of the certificate")?;
            config = config.tls_config(trust(ca)?);
        }
        let token = args.token_file.as_deref().map(read_token).transpose()?;
        Ok(DaemonClient {
            agent: config.build().into(),
            base: format!("{scheme}://{place}"),
            authorization: token.map(|token| format!("Bearer {token}")),
        })
    }

    /// A daemon on this host, that wants nothing.
    pub fn on_loopback(api: SocketAddr) -> Self {
        let config = agent_config().build();
        DaemonClient { agent: config.into(), base: format!("http://{api}"), authorization: None }
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        document(&self.page(path)?)
    }

    /// An answer as it is.
    pub fn page(&self, path: &str) -> anyhow::Result<String> {
        self.answer(self.ask(path, Some(PATIENCE)))
    }

    /// Orders may have to wait until commands beside the daemon have ended.
    pub fn post(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(self.agent.post(format!("{}{path}", self.base)), body, ORDER_PATIENCE)?;
        Ok(())
    }

    /// The same for an order that is answered with what came of it.
    pub fn post_for<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        document(&self.send(
            self.agent.post(format!("{}{path}", self.base)),
            body,
            ORDER_PATIENCE,
        )?)
    }

    /// The same for an order to delete something.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let request = self.agent.delete(format!("{}{path}", self.base));
        let request = request.config().timeout_global(Some(ORDER_PATIENCE));
        let request = request.timeout_recv_response(Some(ORDER_PATIENCE)).build();
        document(&self.answer(self.authorized(request).call())?)
    }

    pub fn put(&self, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
        self.send(self.agent.put(format!("{}{path}", self.base)), body, PATIENCE)?;
        Ok(())
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<WithBody>,
        body: &impl Serialize,
        patience: Duration,
    ) -> anyhow::Result<String> {
        let request = request.config().timeout_global(Some(patience));
        let request = request.timeout_recv_response(Some(patience)).build();
        self.answer(self.authorized(request).send_json(body))
    }

    /// The code and text of an answer, within a bound.
    pub fn exchange(
        &self,
        patience: Duration,
        method: &str,
        path: &str,
        body: String,
    ) -> anyhow::Result<(u16, String)> {
        let url = format!("{}{path}", self.base);
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = self.agent.configure_request(request.body(body)?);
        let request = request.timeout_global(Some(patience)).timeout_recv_response(Some(patience));
        let mut response = self.agent.run(request.build())?;
        let text = response.body_mut().read_to_string()?;
        Ok((response.status().as_u16(), text))
    }

    /// The lines of an answer that does not end.
    pub fn lines(
        &self,
        path: &str,
    ) -> anyhow::Result<impl Iterator<Item = std::io::Result<String>>> {
        let response = self.ask(path, None).map_err(|error| self.unreached(error))?;
        if !response.status().is_success() {
            self.answer(Ok(response))?;
            anyhow::bail!("the answer is not that of a mandate daemon");
        }
        Ok(BufReader::new(response.into_body().into_reader()).lines())
    }

    fn ask(
        &self,
        path: &str,
        patience: Option<Duration>,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        let request = self.agent.get(format!("{}{path}", self.base));
        self.authorized(request.config().timeout_global(patience).build()).call()
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header(header::AUTHORIZATION, authorization),
            None => request,
        }
    }

    /// The text of an answer, or what it complains of.
    fn answer(
        &self,
        response: Result<Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<String> {
        let mut response = response.map_err(|error| self.unreached(error))?;
        let text = response.body_mut().read_to_string().context("the daemon has gone")?;
        let hint = match response.status().as_u16() {
            401 => "; give the token with --token-file",
            _ => "",
        };
        anyhow::ensure!(response.status().is_success(), "{}{hint}", text.trim_end());
        Ok(text)
    }

    /// Why there is no answer. Something that answers in another way is not absent.
    pub fn unreached(&self, error: ureq::Error) -> anyhow::Error {
        let what = match &error {
            error if tls_error(error).is_some() => tls_error(error).map(tls_failure),
            ureq::Error::Protocol(_) => Some(
                "it does not speak HTTP. If it speaks https, write https:// before the address, and give --ca".into(),
            ),
            _ => None,
        };
        match what {
            Some(what) => anyhow::anyhow!("something answers at {}, but {what}", self.base),
            None => anyhow::Error::new(error).context(self.absent()),
        }
    }

    /// What to say if nobody answers.
    fn absent(&self) -> String {
        format!(
            "no daemon answers at {}: is `mandate node` running, and is that its `api` address? Give another with --api",
            self.base.trim_start_matches("http://")
        )
    }
}

fn document<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context("the answer is not that of a mandate daemon")
}

/// The TLS error that a request failed with, if it was one. An error of the handshake comes inside an I/O error.
pub fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Why a TLS handshake with a daemon failed, and what to do.
fn tls_failure(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error};
    let text = error.to_string();
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by the authority that --ca names: give the one that signed it".into()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is for another name ({text}): ask for it by a name that is in it"),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("its certificate has expired ({text}): renew it"),
        Error::InvalidCertificate(_) if text.contains("CaUsedAsEndEntity") => {
            "its certificate is that of an authority, which no server may show: issue one for the server. (`openssl req \
             -x509` makes an authority's, unless told `-addext basicConstraints=critical,CA:FALSE`)"
                .into()
        }
        Error::InvalidMessage(_) => {
            "it does not speak TLS: write http:// before the address, or leave --ca out".into()
        }
        _ => format!("TLS fails: {text}"),
    }
}

fn agent_config() -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        // A daemon is not behind a proxy, and its token is for nobody else.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
}

/// Trusts what this authority has signed, and nothing else.
fn trust(ca: &std::path::Path) -> anyhow::Result<TlsConfig> {
    let shown = ca.display();
    let pem = fs::read(ca).with_context(|| format!("could not read {shown}"))?;
    let mut authorities: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(authority) =
            item.with_context(|| format!("{shown} is no PEM"))?
        {
            authorities.push(authority);
        }
    }
    anyhow::ensure!(!authorities.is_empty(), "{shown} holds no certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&authorities))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_with_or_without_its_scheme() {
        let shown = |text: &str| text.parse::<Address>().map(|it| (it.is_https, it.place));
        assert_eq!(shown("127.0.0.1:8101"), Ok((None, "127.0.0.1:8101".into())));
        assert_eq!(shown("https://db7.example:1/"), Ok((Some(true), "db7.example:1".into())));
        assert_eq!(shown("http://[::1]:80"), Ok((Some(false), "[::1]:80".into())));
        for wrong in ["", "host", "host:", ":80", "ftp://a:1", "a/b:1", "a:1/x", "u@h:1", "h:99999"]
        {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
