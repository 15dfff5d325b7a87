//! Connections to the daemon's HTTP interface: TLS where it is set up, and limits on everything.
//!
//! A balancer decides by `/leader`, so that must be answered whatever others do to the port. Two things could
//! keep it from being answered: connections that say nothing, or very slowly, until there are no more to be had;
//! and requests that never end. So a connection has a time for its handshake and for each request's head and
//! body; and when there are as many as there may be, the one that has been in its present state the longest makes
//! room for the next. A genuine request is done within milliseconds, so it is never that one. Streams of
//! events are spared, and are limited by themselves.
//!
//! A limit for each address was rejected: on loopback all have the same, and behind a proxy, too.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use mandate::peer::warn_if_readable;

use super::access::TlsFiles;

/// Far below the 1024 open files that a process usually may have.
const MAX_CONNECTIONS: usize = 256;

/// Streams of events among them: these are spared when room is made, and so must leave some.
const MAX_STREAMS: usize = 64;

/// For the TLS handshake, and for the head of a request to arrive.
const HEAD: Duration = Duration::from_secs(5);

/// For a request's body to arrive and its answer to be made; a member that waits for its disk takes longer.
const REQUEST: Duration = Duration::from_secs(15);

/// A request's head is a few hundred bytes; the rest is room for what proxies add.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The largest body is a value, of 4 KiB at most; one that is longer is to be told so.
const MAX_BODY_BYTES: usize = 16 * 1024;

/// After the system could not give us a connection (too many open files), it is left alone this long.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Where the API listens, and how it speaks.
pub struct Door {
    listener: TcpListener,
    tls: Option<SharedTls>,
}

/// What handshakes are made with, which may be replaced.
#[derive(Clone)]
pub struct SharedTls(Arc<RwLock<TlsAcceptor>>);

impl SharedTls {
    /// Uses this from the next handshake on.
    pub fn replace(&self, acceptor: TlsAcceptor) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Door {
    pub async fn open(api: SocketAddr, tls: Option<&TlsFiles>) -> anyhow::Result<Self> {
        let tls = tls.map(acceptor).transpose()?;
        let tls = tls.map(|acceptor| SharedTls(Arc::new(acceptor.into())));
        let listener = TcpListener::bind(api).await;
        let listener = listener.with_context(|| format!("could not listen on {api} (api)"))?;
        Ok(Door { listener, tls })
    }

    /// Where its certificate can be replaced, if it has one.
    pub fn tls(&self) -> Option<SharedTls> {
        self.tls.clone()
    }

    /// What to type into a browser.
    pub fn url(&self) -> anyhow::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }

    /// Answers with this router, without end.
    pub async fn serve(self, router: Router) {
        let router = router
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .layer(middleware::from_fn(end_in_time));
        let table = Arc::new(Table::default());
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                sleep(PAUSE_AFTER_ERROR).await;
                continue;
            };
            // Small answers, each of them waited for.
            let _ = stream.set_nodelay(true);
            let (tls, router) = (self.tls.as_ref().map(SharedTls::acceptor), router.clone());
            Table::admit(&table, |connection| answer(stream, tls, router, connection));
        }
    }
}

pub fn acceptor(files: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    warn_if_readable(&files.key);
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let open = |path: &std::path::Path| {
        File::open(path)
            .map(BufReader::new)
            .with_context(|| format!("could not read {}", path.display()))
    };
    let chain = CertificateDer::pem_reader_iter(open(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{certificate} is no certificate"))?;
    let private = PrivateKeyDer::from_pem_reader(open(&files.key)?)
        .with_context(|| format!("{key} is no private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .with_context(|| format!("{certificate} and {key} cannot be used for the api"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connection: Connection,
) {
    match tls {
        None => converse(stream, router, connection).await,
        Some(tls) => match timeout(HEAD, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(stream, router, connection).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("the TLS handshake took too long"),
        },
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    connection: Connection,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        connection.asked();
        request.extensions_mut().insert(connection.clone());
        let answered = router.call(request);
        let connection = connection.clone();
        async move {
            let response: Result<Response<Body>, Infallible> = answered.await;
            connection.answered();
            response
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD_BYTES);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn end_in_time(request: Request, next: Next) -> Response {
    let ended = timeout(REQUEST, next.run(request)).await;
    ended.unwrap_or_else(|_| {
        (StatusCode::REQUEST_TIMEOUT, "this took too long; whether it was done is not known\n")
            .into_response()
    })
}

/// The connections there are.
#[derive(Debug, Default)]
struct Table(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    connections: HashMap<u64, Slot>,
    next: u64,
}

#[derive(Debug)]
struct Slot {
    /// When it was accepted, last asked or was last answered.
    since: Instant,
    is_stream: bool,
    task: AbortHandle,
}

impl Table {
    /// Runs a connection; if there are too many, another makes room for it.
    fn admit<F>(table: &Arc<Self>, run: impl FnOnce(Connection) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut open = table.open();
        if open.connections.len() >= MAX_CONNECTIONS {
            open.evict();
        }
        let id = open.next;
        open.next += 1;
        let connection = Connection { id, table: table.clone() };
        let running = run(connection.clone());
        // It cannot end, and so be removed, before it is in the table: that is locked.
        let task = tokio::spawn(async move {
            let _removed_at_end = RemoveOnDrop(connection);
            running.await;
        });
        let slot = Slot { since: Instant::now(), is_stream: false, task: task.abort_handle() };
        open.connections.insert(id, slot);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends the connection that has been in its state the longest.
    fn evict(&mut self) {
        let candidates = self.connections.iter().filter(|(_, slot)| !slot.is_stream);
        let oldest = candidates.min_by_key(|(_, slot)| slot.since).map(|(id, _)| *id);
        if let Some(slot) = oldest.and_then(|id| self.connections.remove(&id)) {
            slot.task.abort();
        }
    }
}

/// A connection, as those who answer requests on it see it.
#[derive(Clone, Debug)]
pub struct Connection {
    id: u64,
    table: Arc<Table>,
}

impl Connection {
    /// Makes it a stream, which is spared when room is made; false if there are too many of them.
    pub fn become_stream(&self) -> bool {
        let mut open = self.table.open();
        let streams = open.connections.values().filter(|slot| slot.is_stream).count();
        let slot = open.connections.get_mut(&self.id).filter(|_| streams < MAX_STREAMS);
        slot.map(|slot| slot.is_stream = true).is_some()
    }

    /// A request has come; whatever was streamed before has ended.
    fn asked(&self) {
        self.note(|slot| {
            slot.since = Instant::now();
            slot.is_stream = false;
        });
    }

    fn answered(&self) {
        self.note(|slot| slot.since = Instant::now());
    }

    fn note(&self, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.table.open().connections.get_mut(&self.id) {
            change(slot);
        }
    }
}

struct RemoveOnDrop(Connection);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.table.open().connections.remove(&self.0.id);
    }
}
