//! The daemon's HTTP interface: for people, for programs in any language, for load balancers.
//!
//! On loopback only. A page in a browser on the same host must not be able to depose a leader, so a
//! request that names another origin is refused.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post, put};
use axum::{Json, Router};
use mandate_proto::identity::MemberId;
use mandate_proto::pole::member::Figures;
use mandate_runtime::{Election, ElectionState};
use serde::Deserialize;
use serde_json::json;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use super::document::{About, StatusDocument};
use super::metrics::Metrics;

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) election: Election,
    pub(crate) about: Arc<About>,
    pub(crate) metrics: Arc<Metrics>,
}

pub(crate) fn router(node: Node) -> Router {
    Router::new()
        .route("/leader", any(leader))
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/status", get(status))
        .route("/v1/members", get(members))
        .route("/v1/elections", get(elections))
        .route("/v1/events", get(events))
        .route("/v1/score", put(score))
        .route("/v1/resign", post(resign))
        .route("/v1/transfer", post(transfer))
        .layer(middleware::from_fn(refuse_other_origins))
        .with_state(node)
}

/// Refuses what a page in a browser might send: requests that name another origin, or another host than
/// this one (a name that was made to point here).
async fn refuse_other_origins(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text =
        |name| headers.get(name).map(|value: &header::HeaderValue| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or("localhost");
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    let is_local = name == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let is_own = text(header::ORIGIN).is_none_or(|origin| origin == format!("http://{host}"));
    if is_local && is_own {
        next.run(request).await
    } else {
        let reason = "only requests to a loopback address, and from no page of another origin\n";
        (StatusCode::FORBIDDEN, reason).into_response()
    }
}

/// 200 on the holder of the mandate, computed now; 503 on all others.
async fn leader(State(node): State<Node>, method: Method) -> Response {
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&method) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    // Not asked of the driver: it may be waiting for its disk, and a balancer must get an answer.
    let state = node.election.state().borrow().clone();
    let (code, leader, term) = match state {
        ElectionState::Leading(mandate) | ElectionState::Jeopardy(mandate) if mandate.check() => {
            (StatusCode::OK, Some(node.about.me), Some(mandate.term()))
        }
        ElectionState::Following { leader, term } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some(leader), Some(term))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, None, None),
    };
    let leader = leader.map(|leader| leader.to_string());
    (code, Json(json!({ "leader": leader, "term": term.map(|term| term.get()) }))).into_response()
}

async fn ready(State(node): State<Node>) -> Response {
    match node.current().await {
        Some(status) if status.leader.is_some() => "ready\n".into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "no leader is known\n").into_response(),
        None => stopped(),
    }
}

async fn status(State(node): State<Node>) -> Response {
    node.current().await.map_or_else(stopped, |status| Json(status).into_response())
}

async fn members(State(node): State<Node>) -> Response {
    node.current().await.map_or_else(stopped, |status| Json(status.members).into_response())
}

async fn elections(State(node): State<Node>) -> Response {
    let records = node.election.records();
    let documents: Vec<_> = records.iter().map(|record| node.about.election(record)).collect();
    Json(documents).into_response()
}

async fn events(
    State(node): State<Node>,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let told = BroadcastStream::new(node.election.events());
    let shown = told.map(|event| {
        let text = match event {
            Ok(event) => super::event_text(&event),
            Err(missed) => format!("{missed}: this reader is too slow"),
        };
        Ok(sse::Event::default().data(text))
    });
    Sse::new(shown).keep_alive(KeepAlive::default())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Score {
    history: Option<u64>,
    #[serde(default)]
    requests: f64,
    application: Option<f64>,
}

async fn score(State(node): State<Node>, Json(score): Json<Score>) -> Response {
    let finite = score.requests.is_finite() && score.application.is_none_or(f64::is_finite);
    if !finite || score.requests < 0.0 {
        let reason = "requests must be zero or more, and all figures finite\n";
        return (StatusCode::UNPROCESSABLE_ENTITY, reason).into_response();
    }
    let Score { history, requests, application } = score;
    node.election.set_figures(Figures { history, requests, application });
    StatusCode::NO_CONTENT.into_response()
}

async fn resign(State(node): State<Node>) -> Response {
    let before = node.current().await;
    if !before.is_some_and(|status| ["leading", "jeopardy"].contains(&status.state.as_str())) {
        return (StatusCode::CONFLICT, "this member does not lead; ask the leader\n")
            .into_response();
    }
    node.election.resign().await;
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    to: String,
}

async fn transfer(State(node): State<Node>, Json(request): Json<Transfer>) -> Response {
    let to: MemberId = match request.to.parse() {
        Ok(to) => to,
        Err(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response();
        }
    };
    match node.election.transfer(to).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(reason) => (StatusCode::CONFLICT, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(node): State<Node>) -> Response {
    let Some(status) = node.current().await else { return stopped() };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, node.metrics.text(&status)).into_response()
}

fn stopped() -> Response {
    let reason = "this member was shut down, or waits for its disk: see its log\n";
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

impl Node {
    async fn current(&self) -> Option<StatusDocument> {
        let status = self.election.status().await?;
        Some(self.about.status(&status))
    }
}
