//! The daemon's HTTP interface: for people, for programs in any language, for load balancers.
//!
//! On loopback only. A page in a browser on the same host must not be able to depose a leader, so a
//! request that names another origin is refused.

use std::convert::Infallible;
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
use mandate_runtime::Election;
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

async fn refuse_other_origins(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    match text(header::ORIGIN) {
        Some(origin) if origin != format!("http://{host}") => {
            (StatusCode::FORBIDDEN, "requests from pages of other origins are refused\n")
                .into_response()
        }
        _ => next.run(request).await,
    }
}

/// 200 on the holder of the mandate, computed now; 503 on all others.
async fn leader(State(node): State<Node>, method: Method) -> Response {
    if ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&method) {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let Some(status) = node.current().await else { return stopped() };
    let leads = ["leading", "jeopardy"].contains(&status.state.as_str());
    let code = if leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(json!({ "leader": status.leader, "term": status.term }))).into_response()
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
    (StatusCode::SERVICE_UNAVAILABLE, "this member was shut down\n").into_response()
}

impl Node {
    async fn current(&self) -> Option<StatusDocument> {
        let status = self.election.status().await?;
        Some(self.about.status(&status))
    }
}
