//! What is asked of a member of etcd, over its JSON gateway (etcd 3.4 and later).
//!
//! The gateway is served where clients are served, and takes what they take: TLS with a certificate, a name and a
//! password. Every call has a deadline: a member that is stopped keeps its connections open and never answers.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use ureq::http::{Response, header};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use url::Url;

use crate::system::ServerId;

/// Metrics of a member are some hundred kilobytes.
const MAX_ANSWER: u64 = 8 << 20;

/// A member's number, as etcd's own tools write it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtcdId(pub u64);

impl fmt::Display for EtcdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for EtcdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<EtcdId> for ServerId {
    fn from(id: EtcdId) -> Self {
        ServerId::new(id.to_string())
    }
}

impl TryFrom<&ServerId> for EtcdId {
    type Error = std::num::ParseIntError;

    fn try_from(server: &ServerId) -> Result<Self, Self::Error> {
        u64::from_str_radix(server.as_str(), 16).map(EtcdId)
    }
}

/// How members of a cluster are spoken to.
#[derive(Clone, Default)]
pub struct EtcdAccess {
    /// The authority of their certificates.
    pub ca: Option<PathBuf>,
    /// A certificate and its key, if they want one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// A user and its password, if they want one.
    pub user: Option<(String, String)>,
}

impl fmt::Debug for EtcdAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("Access").field("ca", &self.ca).field("user", &user).finish_non_exhaustive()
    }
}

/// Why a member could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// An address that is none.
    #[error("`{0}` is no address of etcd: write http://HOST:2379 or https://HOST:2379")]
    Address(String),
    /// A file for TLS.
    #[error("{path}: {reason}")]
    File {
        /// The file's path.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// https without an authority.
    #[error("{0} speaks https: name the authority of its certificate (--etcd-ca FILE)")]
    NoAuthority(String),
    /// Nobody answered.
    #[error("{url} does not answer: {reason}")]
    Silent {
        /// The server's URL.
        url: String,
        /// What happened.
        reason: String,
    },
    /// It refused.
    #[error("{url} refuses {call}: {reason}")]
    Refused {
        /// The server's URL.
        url: String,
        /// What it was asked.
        call: &'static str,
        /// What it said.
        reason: String,
    },
    /// An answer that is none.
    #[error("{url} does not answer as etcd does: {reason}")]
    Strange {
        /// The server's URL.
        url: String,
        /// What is strange.
        reason: String,
    },
}

/// Where a member is in the log, and whom it takes for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Who answered.
    pub member: EtcdId,
    /// Whom it takes for the leader, if anyone.
    pub leader: Option<EtcdId>,
    /// Raft's term.
    pub term: u64,
    /// The last entry that is committed, as it knows.
    pub index: u64,
    /// The last entry that it has applied.
    pub applied: u64,
    /// It is not voting yet.
    pub is_learner: bool,
    /// What it complains of: alarms (no space, corruption) of *all* members of the cluster, and that there is no leader.
    pub errors: Vec<String>,
}

impl MemberStatus {
    /// What this member complains of that concerns itself. Every member tells the alarms of all, each with the number of
    /// the member that raised it; an alarm without one is nobody's in particular. That there is no leader is no fault of
    /// this member.
    pub fn troubles(&self) -> impl Iterator<Item = &str> {
        let is_own = |error: &&str| match error.contains("alarm:") {
            true => alarmed(error) == Some(self.member),
            false => !error.contains("no leader"),
        };
        self.errors.iter().map(String::as_str).filter(is_own)
    }
}

/// Who has raised an alarm, as etcd writes it: `memberID:10276657743932975437 alarm:NOSPACE`.
fn alarmed(error: &str) -> Option<EtcdId> {
    let (_, rest) = error.split_once("memberID:")?;
    let digits = rest.trim_start().split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok().map(EtcdId)
}

/// A member, as the cluster lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdMember {
    /// Its number.
    pub id: EtcdId,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where clients find it.
    pub client_urls: Vec<String>,
    /// It is not voting yet.
    pub is_learner: bool,
}

/// A member of etcd that can be asked. Calls block.
#[derive(Clone)]
pub struct Endpoint {
    agent: ureq::Agent,
    url: String,
    user: Option<(String, String)>,
    token: Arc<Mutex<Option<String>>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// A member at this address, for example `http://127.0.0.1:2379`.
    pub fn new(url: &str, access: &EtcdAccess) -> Result<Self, EtcdError> {
        let wrong = || EtcdError::Address(url.to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        let host = parsed.host_str().ok_or_else(wrong)?;
        let is_https = match parsed.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let has_more = !matches!(parsed.path(), "" | "/") || parsed.query().is_some();
        if has_more || !parsed.username().is_empty() {
            return Err(wrong());
        }
        let port = parsed.port().unwrap_or(2379);
        let url = format!("{}://{host}:{port}", parsed.scheme());
        let mut config = ureq::Agent::config_builder()
            // A cluster is not behind a proxy, and its password is for nobody else.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false);
        if is_https {
            config = config.tls_config(tls(&url, access)?);
        }
        let (agent, user) = (config.build().into(), access.user.clone());
        Ok(Endpoint { agent, url, user, token: Arc::default() })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where it is in the log, and whom it takes for the leader.
    pub fn position(&self, within: Duration) -> Result<MemberStatus, EtcdError> {
        let status: Status = self.call("status", "/v3/maintenance/status", &json!({}), within)?;
        let member = EtcdId(status.header.member_id);
        let leader = (status.leader != 0).then_some(EtcdId(status.leader));
        Ok(MemberStatus {
            member,
            leader,
            term: status.raft_term,
            index: status.raft_index,
            applied: status.raft_applied_index,
            is_learner: status.is_learner,
            errors: status.errors,
        })
    }

    /// Who is in the cluster.
    pub fn members(&self, within: Duration) -> Result<Vec<EtcdMember>, EtcdError> {
        let list: List =
            self.call("the list of members", "/v3/cluster/member/list", &json!({}), within)?;
        let member = |member: Listed| EtcdMember {
            id: EtcdId(member.id),
            name: member.name,
            client_urls: member.client_urls,
            is_learner: member.is_learner,
        };
        Ok(list.members.into_iter().map(member).collect())
    }

    /// Hands leadership over. Only the leader can. When this returns, the other leads; if it fails, nobody knows: etcd
    /// does not look whether the other is alive.
    pub fn move_leader(&self, to: EtcdId, within: Duration) -> Result<(), EtcdError> {
        let body = json!({ "targetID": to.0.to_string() });
        let path = "/v3/maintenance/transfer-leadership";
        self.ask("to move its leadership", path, &body, within).map(|_| ())
    }

    /// Writes a key.
    pub fn put(&self, key: &str, value: &[u8], within: Duration) -> Result<(), EtcdError> {
        let body = json!({ "key": BASE64.encode(key), "value": BASE64.encode(value) });
        self.ask("a write", "/v3/kv/put", &body, within).map(|_| ())
    }

    /// The roles of the user that calls are made as; `None` if they are made without one.
    pub fn roles(&self, within: Duration) -> Result<Option<Vec<String>>, EtcdError> {
        let Some((name, _)) = &self.user else { return Ok(None) };
        let path = "/v3/auth/user/get";
        let roles: Roles =
            self.call("the roles of a user", path, &json!({ "name": name }), within)?;
        Ok(Some(roles.roles))
    }

    /// The keys that begin so, with their values, as this member has them.
    pub fn keys(&self, prefix: &str, within: Duration) -> Result<Vec<(String, String)>, EtcdError> {
        let mut body = range(prefix);
        body["serializable"] = json!(true);
        let found: Found = self.call("a read", "/v3/kv/range", &body, within)?;
        let text = |encoded: &str| {
            let bytes = BASE64.decode(encoded).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(found.kvs.iter().map(|pair| (text(&pair.key), text(&pair.value))).collect())
    }

    /// Writes a key that is gone after a while.
    pub fn put_for(
        &self,
        key: &str,
        value: &str,
        lasts: Duration,
        within: Duration,
    ) -> Result<(), EtcdError> {
        let body = json!({ "TTL": lasts.as_secs().max(1).to_string() });
        let lease: Lease = self.call("a lease", "/v3/lease/grant", &body, within)?;
        let body = json!({
            "key": BASE64.encode(key), "value": BASE64.encode(value), "lease": lease.id.to_string(),
        });
        self.ask("a write", "/v3/kv/put", &body, within).map(|_| ())
    }

    /// Removes the keys that begin so.
    pub fn remove(&self, prefix: &str, within: Duration) -> Result<(), EtcdError> {
        self.ask("a removal", "/v3/kv/deleterange", &range(prefix), within).map(|_| ())
    }

    /// Any call that the gateway has; `call` is what errors call it.
    pub fn ask(
        &self,
        call: &'static str,
        path: &str,
        body: &Value,
        within: Duration,
    ) -> Result<Value, EtcdError> {
        self.call(call, path, body, within)
    }

    /// Its metrics, in Prometheus' text format.
    pub fn metrics(&self, within: Duration) -> Result<String, EtcdError> {
        let request = self.agent.get(format!("{}/metrics", self.url));
        let response = request.config().timeout_global(Some(within)).build().call();
        let (code, text) = self.text(response)?;
        if code != 200 {
            let reason = format!("its metrics came with {code}");
            return Err(EtcdError::Strange { url: self.url.clone(), reason });
        }
        Ok(text)
    }

    fn call<T: DeserializeOwned>(
        &self,
        call: &'static str,
        path: &str,
        body: &Value,
        within: Duration,
    ) -> Result<T, EtcdError> {
        let mut token = self.token(within)?;
        let (mut code, mut text) = self.post(path, body, token.as_deref(), within)?;
        if code == 401 && token.is_some() {
            // Tokens run out, and a server that was restarted knows none.
            *self.remembered() = None;
            token = self.token(within)?;
            (code, text) = self.post(path, body, token.as_deref(), within)?;
        }
        if code != 200 {
            let reason = complaint(&text);
            return Err(EtcdError::Refused { url: self.url.clone(), call, reason });
        }
        serde_json::from_str(&text).map_err(|error| EtcdError::Strange {
            url: self.url.clone(),
            reason: format!("asked for {call}: {error}"),
        })
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What calls are authorised by, if a user was named.
    fn token(&self, within: Duration) -> Result<Option<String>, EtcdError> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        if let Some(token) = self.remembered().clone() {
            return Ok(Some(token));
        }
        let body = json!({ "name": name, "password": password });
        let (code, text) = self.post("/v3/auth/authenticate", &body, None, within)?;
        let token = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|answer| answer["token"].as_str().map(str::to_owned));
        match (code, token) {
            (200, Some(token)) => {
                *self.remembered() = Some(token.clone());
                Ok(Some(token))
            }
            _ => Err(EtcdError::Refused {
                url: self.url.clone(),
                call: "this user and password",
                reason: complaint(&text),
            }),
        }
    }

    fn post(
        &self,
        path: &str,
        body: &Value,
        token: Option<&str>,
        within: Duration,
    ) -> Result<(u16, String), EtcdError> {
        let request = self.agent.post(format!("{}{path}", self.url));
        let mut request = request.config().timeout_global(Some(within)).build();
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        self.text(request.send_json(body))
    }

    fn text(
        &self,
        response: Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<(u16, String), EtcdError> {
        let silent = |error: ureq::Error| EtcdError::Silent {
            url: self.url.clone(),
            reason: error.to_string(),
        };
        let mut response = response.map_err(silent)?;
        let code = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
        Ok((code, body.map_err(silent)?))
    }
}

/// All keys that begin so. None of ours ends with the highest byte.
fn range(prefix: &str) -> Value {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(end) })
}

/// What an error's text says.
fn complaint(text: &str) -> String {
    let told = serde_json::from_str::<Value>(text).ok();
    let told = told.as_ref().and_then(|told| told["message"].as_str().or(told["error"].as_str()));
    told.unwrap_or(text).trim().chars().take(300).collect()
}

/// Trusts what this authority has signed, and nothing else.
fn tls(url: &str, access: &EtcdAccess) -> Result<TlsConfig, EtcdError> {
    let ca = access.ca.as_ref().ok_or_else(|| EtcdError::NoAuthority(url.to_owned()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates(ca)?))
        .unversioned_rustls_crypto_provider(provider);
    if let Some((chain, key)) = &access.certificate {
        let certificate = ClientCert::new_with_certs(&certificates(chain)?, private_key(key)?);
        config = config.client_cert(Some(certificate));
    }
    Ok(config.build())
}

fn wrong(path: &std::path::Path, reason: impl fmt::Display) -> EtcdError {
    EtcdError::File { path: path.display().to_string(), reason: reason.to_string() }
}

fn certificates(path: &PathBuf) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let pem = fs::read(path).map_err(|error| wrong(path, error))?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| wrong(path, error))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(wrong(path, "holds no certificate in PEM"));
    }
    Ok(found)
}

fn private_key(path: &PathBuf) -> Result<PrivateKey<'static>, EtcdError> {
    let pem = fs::read(path).map_err(|error| wrong(path, error))?;
    PrivateKey::from_pem(&pem).map_err(|error| wrong(path, error))
}

/// JSON has no room for 64 bits: etcd writes such numbers as text, and leaves zeros out.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(u64),
    }
    match Either::deserialize(from)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[derive(Deserialize)]
struct Status {
    header: Header,
    #[serde(default, deserialize_with = "number")]
    leader: u64,
    #[serde(default, rename = "raftIndex", deserialize_with = "number")]
    raft_index: u64,
    #[serde(default, rename = "raftTerm", deserialize_with = "number")]
    raft_term: u64,
    #[serde(default, rename = "raftAppliedIndex", deserialize_with = "number")]
    raft_applied_index: u64,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
    #[serde(default)]
    errors: Vec<String>,
}

#[derive(Deserialize)]
struct Roles {
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    kvs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Lease {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "number")]
    member_id: u64,
}

#[derive(Deserialize)]
struct List {
    members: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "clientURLs")]
    client_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    is_learner: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_port() {
        let url = |text| Endpoint::new(text, &EtcdAccess::default()).map(|it| it.url().to_owned());
        assert_eq!(url("http://127.0.0.1:2379").unwrap(), "http://127.0.0.1:2379");
        assert_eq!(url("http://etcd-1.example").unwrap(), "http://etcd-1.example:2379");
        for text in ["", "127.0.0.1:2379", "etcd://a", "http://a/v3", "http://root:secret@a"] {
            assert!(matches!(url(text), Err(EtcdError::Address(_))), "{text}");
        }
        let error = url("https://a:1").unwrap_err().to_string();
        assert!(error.contains("--etcd-ca"), "{error}");
    }

    #[test]
    fn an_alarm_is_the_trouble_of_whoever_raised_it() {
        let position = |member: u64, errors: &[&str]| MemberStatus {
            member: EtcdId(member),
            leader: None,
            term: 1,
            index: 1,
            applied: 1,
            is_learner: false,
            errors: errors.iter().map(ToString::to_string).collect(),
        };
        // As 3.4 and as later ones write it.
        let alarms = ["memberID:10276657743932975437 alarm:NOSPACE ", "memberID:7  alarm:CORRUPT"];
        assert_eq!(position(10_276_657_743_932_975_437, &alarms).troubles().count(), 1);
        assert_eq!(position(7, &alarms).troubles().collect::<Vec<_>>(), [alarms[1]]);
        assert_eq!(position(8, &alarms).troubles().count(), 0);
        let others = ["alarm:NOSPACE", "etcdserver: no leader", "memberID:70 alarm:NOSPACE"];
        assert_eq!(position(7, &others).troubles().count(), 0);
        assert_eq!(position(7, &["etcdserver: something else"]).troubles().count(), 1);
    }

    #[test]
    fn numbers_come_as_text_and_zeros_not_at_all() {
        let status = r#"{"header":{"cluster_id":"14841639068965178418","member_id":"10276657743932975437",
            "raft_term":"2"},"version":"3.4.23","dbSize":"20480","raftTerm":"2"}"#;
        let status: Status = serde_json::from_str(status).unwrap();
        assert_eq!((status.header.member_id, status.leader), (10_276_657_743_932_975_437, 0));
        assert_eq!((status.raft_term, status.raft_index), (2, 0));
    }

    #[test]
    fn what_etcd_complains_of_is_told() {
        let text =
            r#"{"error":"etcdserver: not leader","code":9,"message":"etcdserver: not leader"}"#;
        assert_eq!(complaint(text), "etcdserver: not leader");
        assert_eq!(complaint("404 page not found\n"), "404 page not found");
    }
}
