//! The daemon's HTTP interface: for people, for programs in any language, for load balancers.
//!
//! Its description (`/openapi.json`, `mandate openapi`) is made from the very functions and types that answer.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router, middleware};
use mandate::{Election, ElectionState, Figures, Mandate, Member, NoTransfer, Score};
use mandate_proto::identity::MemberId;
use serde::{Deserialize, Serialize};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{InfoBuilder, OpenApi, SecurityRequirement};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::{Access, admit};
use super::chronicle::{Chronicle, EventDocument};
use super::description;
use super::document::{About, DiskDocument, ElectionDocument, StatusDocument};
use super::mandate_api::{self, Holders, not_leading};
use super::member::{differing, others};
use super::members_api;
use super::metrics::Metrics;
use super::page;
use super::roles_api;
use super::serve::Connection;
use super::value_api::{self, LeaderQuery};
use crate::ledger::RoleMapDocument;

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Node {
    pub election: Election,
    pub member: Member,
    pub about: Arc<About>,
    pub metrics: Arc<Metrics>,
    pub chronicle: Arc<Chronicle>,
    pub holders: Arc<Holders>,
}

pub(super) fn router(node: Node, access: Arc<Access>) -> Router {
    let (described, _) = described().split_for_parts();
    let router = page::routes().fold(described, |router, (path, file)| router.route(path, file));
    let router = router.fallback(nothing_here).method_not_allowed_fallback(other_method);
    router.layer(middleware::from_fn_with_state(access, admit)).with_state(node)
}

async fn nothing_here() -> Response {
    let reason = "there is nothing at this path: see /openapi.json for what there is\n";
    (StatusCode::NOT_FOUND, reason).into_response()
}

async fn other_method() -> Response {
    let reason = "this path has no such method: see /openapi.json\n";
    (StatusCode::METHOD_NOT_ALLOWED, reason).into_response()
}

/// Everything but the page's files, with its description.
fn described() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(leader))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(status))
        .routes(routes!(members_api::members, members_api::change))
        .routes(routes!(members_api::remove))
        .routes(routes!(elections))
        .routes(routes!(roles_api::roles))
        .routes(routes!(roles_api::role))
        .routes(routes!(events))
        .routes(routes!(score))
        .routes(routes!(value_api::publish))
        .routes(routes!(mandate_api::resign))
        .routes(routes!(mandate_api::mandate))
        .routes(routes!(mandate_api::hold, mandate_api::let_go))
        .routes(routes!(transfer))
        .routes(routes!(openapi_json))
}

/// The description of the interface.
pub(crate) fn openapi() -> OpenApi {
    let (_, mut api) = described().split_for_parts();
    api.info = InfoBuilder::new()
        .title("mandate node")
        .description(Some("What the daemon of a member answers."))
        .version(env!("CARGO_PKG_VERSION"))
        .build();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = api.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let none: [&str; 0] = [];
    // A token where one is set up, else nothing.
    api.security =
        Some(vec![SecurityRequirement::new("token", none), SecurityRequirement::default()]);
    description::complete(&mut api);
    api
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json",
    responses((status = OK, description = "This document", body = serde_json::Value))
)]
async fn openapi_json() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| openapi().to_json().unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// Who leads.
#[derive(Serialize, ToSchema)]
struct LeaderDocument {
    leader: Option<String>,
    term: Option<u64>,
    /// What it has published with that term.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// Whether this member leads, computed now. For load balancers. On request, a redirect to where the leader is.
#[utoipa::path(
    method(get, head, options), path = "/leader", params(LeaderQuery),
    responses(
        (status = OK, description = "This member holds the mandate", body = LeaderDocument),
        (status = SERVICE_UNAVAILABLE, description = "It does not; who does", body = LeaderDocument),
        (status = TEMPORARY_REDIRECT, description = "As asked for with `redirect`: to what the leader has published"),
        (status = CONFLICT, description = "What it has published is no address", body = String, content_type = "text/plain"),
    )
)]
async fn leader(State(node): State<Node>, Query(asked): Query<LeaderQuery>) -> Response {
    // Not asked of the driver: it may be waiting for its disk, and a balancer must get an answer.
    let state = node.election.state().borrow().clone();
    let value = state.value().cloned();
    if let Some(path) = asked.redirect {
        return value_api::redirect(value.as_ref(), &path);
    }
    let (code, leader, term) = match state {
        ElectionState::Leading(mandate) | ElectionState::Jeopardy(mandate) if mandate.check() => {
            (StatusCode::OK, Some(node.about.me), Some(mandate.term()))
        }
        ElectionState::Following { leader, term, .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some(leader), Some(term))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, None, None),
    };
    let leader = leader.map(|leader| leader.to_string());
    let value = value.map(|value| value.to_string()).filter(|_| leader.is_some());
    (code, Json(LeaderDocument { leader, term: term.map(|term| term.get()), value }))
        .into_response()
}

/// Whether the daemon runs.
#[utoipa::path(
    get, path = "/livez",
    responses(
        (status = OK, description = "It does", body = String, content_type = "text/plain"),
        (status = SERVICE_UNAVAILABLE, description = "Its member has ended", body = String,
            content_type = "text/plain"),
    )
)]
async fn live(State(node): State<Node>) -> Response {
    if is_live(&node.election) { "alive\n".into_response() } else { stopped() }
}

/// Whether a member's driver runs: without one, the daemon answers and does nothing.
pub(super) fn is_live(election: &Election) -> bool {
    !matches!(&*election.state().borrow(), ElectionState::Stopped)
}

/// Whether a leader is known and this member can write its state; on a ledger, whether it has its part, be it none, and can do it: 503
/// where another member has another layout.
#[utoipa::path(
    get, path = "/readyz",
    responses(
        (status = OK, description = "One is", body = String, content_type = "text/plain"),
        (status = SERVICE_UNAVAILABLE, description = "None is, or the state cannot be written; which", body = String,
            content_type = "text/plain"),
    )
)]
async fn ready(State(node): State<Node>) -> Response {
    // Not asked of the driver, which may be waiting for its disk.
    if let Some(trouble) = node.election.disk().trouble() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("{trouble}\n")).into_response();
    }
    match node.current().await {
        Some(StatusDocument { role_map: Some(map), .. }) => match map.trouble() {
            None => "ready\n".into_response(),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response(),
        },
        Some(status) if status.leader.is_some() => "ready\n".into_response(),
        Some(status) => {
            let why = status.no_vote.map_or(String::new(), |why| format!("; {why}"));
            (StatusCode::SERVICE_UNAVAILABLE, format!("no leader is known{why}\n")).into_response()
        }
        None => stopped(),
    }
}

/// Figures for Prometheus, on standbys as on the leader.
#[utoipa::path(
    get, path = "/metrics",
    responses(
        (status = OK, description = "The figures", body = String, content_type = "text/plain"),
        (status = SERVICE_UNAVAILABLE, description = "The member is stopped, or waits for its disk",
            body = String, content_type = "text/plain"),
    )
)]
async fn metrics(State(node): State<Node>) -> Response {
    let Some(status) = node.current().await else { return stopped() };
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, node.metrics.text(&status)).into_response()
}

/// What this member knows.
#[utoipa::path(
    get, path = "/v1/status",
    responses(
        (status = OK, description = "What it knows", body = StatusDocument),
        (status = SERVICE_UNAVAILABLE, description = "The member is stopped, or waits for its disk",
            body = String, content_type = "text/plain"),
    )
)]
async fn status(State(node): State<Node>) -> Response {
    node.current().await.map_or_else(stopped, |status| Json(status).into_response())
}

/// The last elections, the latest first, each with who stood and why it went as it did.
#[utoipa::path(
    get, path = "/v1/elections",
    responses((status = OK, description = "The elections", body = Vec<ElectionDocument>))
)]
async fn elections(State(node): State<Node>) -> Json<Vec<ElectionDocument>> {
    Json(node.chronicle.elections())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// Begin with what came after this event; 0 for all that is kept. Without it, with what happens from now
    /// on. A header `Last-Event-ID` goes before it.
    after: Option<u64>,
}

/// What happens, as it happens: server-sent events, the data of each an event as JSON.
#[utoipa::path(
    get, path = "/v1/events", params(After),
    responses(
        (status = OK, description = "A stream", body = EventDocument, content_type = "text/event-stream"),
        (status = SERVICE_UNAVAILABLE, description = "Too many read already", body = String,
            content_type = "text/plain"),
    )
)]
async fn events(
    State(node): State<Node>,
    Extension(connection): Extension<Connection>,
    Query(After { after }): Query<After>,
    headers: HeaderMap,
) -> Response {
    if !connection.become_stream() {
        let reason = "too many read this stream already\n";
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let (missed, news) = node.chronicle.follow(last.or(after));
    let news = BroadcastStream::new(news).map(|event| {
        event.unwrap_or_else(|lagged| {
            let tokio_stream::wrappers::errors::BroadcastStreamRecvError::Lagged(count) = lagged;
            Arc::new(EventDocument::missed(count))
        })
    });
    let shown = tokio_stream::iter(missed).chain(news).map(|event| sent(&event));
    Sse::new(shown).keep_alive(KeepAlive::default()).into_response()
}

fn sent(event: &EventDocument) -> Result<sse::Event, Infallible> {
    let data = serde_json::to_string(event).unwrap_or_default();
    let sent = sse::Event::default().data(data);
    Ok(match event.id {
        Some(id) => sent.id(id.to_string()),
        None => sent,
    })
}

/// What the oracle may want to know of this member; what is left out is unknown from now on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ScoreRequest {
    /// The position of its log.
    history: Option<u64>,
    /// Requests a second that clients send to it.
    #[serde(default)]
    requests: f64,
    /// The application's own figure; more is better.
    application: Option<f64>,
}

/// Tells what the oracle may want to know of this member.
#[utoipa::path(
    put, path = "/v1/score", request_body = ScoreRequest,
    responses(
        (status = NO_CONTENT, description = "Noted"),
        (status = UNPROCESSABLE_ENTITY, description = "It makes no sense", body = String,
            content_type = "text/plain"),
    )
)]
async fn score(State(node): State<Node>, Json(score): Json<ScoreRequest>) -> Response {
    let finite = score.requests.is_finite() && score.application.is_none_or(f64::is_finite);
    if !finite || score.requests < 0.0 {
        let reason = "requests must be zero or more, and all figures finite\n";
        return (StatusCode::UNPROCESSABLE_ENTITY, reason).into_response();
    }
    let ScoreRequest { history, requests, application } = score;
    let application = application.and_then(|one| Score::new(&[one]).ok());
    node.election.set_figures(Figures { history, requests, application });
    StatusCode::NO_CONTENT.into_response()
}

/// To whom.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TransferRequest {
    /// The successor, such as `p2`.
    to: String,
}

/// Has the leader hand leadership over. Among members that elect each other, any of them can be asked; else the leader.
#[utoipa::path(
    post, path = "/v1/transfer", request_body = TransferRequest,
    responses(
        (status = NO_CONTENT, description = "Handed over"),
        (status = GATEWAY_TIMEOUT, description = "It is not known whether it was: no answer came from the leader in time", body = String,
            content_type = "text/plain"),
        (status = CONFLICT, description = "Why not; nothing has changed", body = String,
            content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "That is no member's name", body = String,
            content_type = "text/plain"),
    )
)]
async fn transfer(State(node): State<Node>, Json(request): Json<TransferRequest>) -> Response {
    let to: MemberId = match request.to.parse() {
        Ok(to) => to,
        Err(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response();
        }
    };
    let state = node.election.state().borrow().clone();
    let leader = match &state {
        ElectionState::Following { leader, .. } => Some(*leader),
        state => state.mandate().filter(|mandate| mandate.check()).map(|_| node.about.me),
    };
    if Some(to) == leader {
        let reason = format!("{to} leads already: name another member\n");
        return (StatusCode::CONFLICT, reason).into_response();
    }
    if node.reaches_leader() {
        let asked = node.clone();
        // On its own: it is carried out even if the caller does not wait for it.
        return match tokio::spawn(async move { asked.member.transfer_leader(to).await }).await {
            Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
            Ok(Err(error)) => members_api::refused(&node, to, &error),
            Err(_) => stopped(),
        };
    }
    // On its own, too.
    let transferred = tokio::spawn(async move {
        // A transfer that cannot be is no reason to end anyone's command.
        node.could_transfer(to).await?;
        let _ending = node.holders.end().await;
        node.election.transfer(to).await
    });
    match transferred.await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(NoTransfer::NotLeading)) => {
            let (code, reason) = not_leading(&state);
            (code, format!("{reason}\n")).into_response()
        }
        Ok(Err(reason)) => (StatusCode::CONFLICT, format!("{reason}\n")).into_response(),
        Err(_) => stopped(),
    }
}

pub(super) fn stopped() -> Response {
    let reason = "this member was shut down, or waits for its disk: see its log\n";
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

impl Node {
    /// Whether this member can ask the leader for something, which may be another.
    pub(super) fn reaches_leader(&self) -> bool {
        self.member.peer().is_some() && self.about.has_terms
    }

    /// What can be said against a transfer beforehand.
    async fn could_transfer(&self, to: MemberId) -> Result<(), NoTransfer> {
        if self.member.kafka().is_some() {
            return Err(NoTransfer::Assigned);
        }
        // Of members that elect each other the leader knows.
        let status = self.election.status().await.ok_or(NoTransfer::NotLeading)?;
        if !status.state.mandate().is_some_and(Mandate::check) {
            return Err(NoTransfer::NotLeading);
        }
        if !self.about.has_terms {
            return Err(NoTransfer::Unsupported);
        }
        if !others(&self.member).await.iter().any(|other| other.id == to) {
            return Err(NoTransfer::NotAMember);
        }
        if status.suspected.is_some_and(|suspected| suspected.contains(&to)) {
            return Err(NoTransfer::NoAnswer);
        }
        Ok(())
    }

    /// What this member knows, if its driver gets to answer.
    pub(super) async fn current(&self) -> Option<StatusDocument> {
        let status = self.election.status().await?;
        let others = others(&self.member).await;
        let mut document = self.about.status(&status, &others, self.chronicle.started_ms());
        document.role_map = self.member.kafka().map(RoleMapDocument::of);
        document.differing = differing(&self.member);
        let elections = self.chronicle.elections();
        let present = elections.first().filter(|last| {
            last.partition.is_none()
                && Some(last.term) == document.term
                && Some(&last.leader) == document.leader.as_ref()
        });
        document.since_ms = present.map(|last| last.at_ms);
        document.why = present.map(|last| last.why.clone());
        document.list = self.member.list().map(|list| list.id().into());
        if let Some(peer) = self.member.peer() {
            let health = self.election.disk();
            let mut troubles = peer.links().troubles();
            document
                .troubles
                .extend(health.trouble().into_iter().chain(troubles.remove(&self.about.me)));
            document.disk = Some(DiskDocument::new(&health));
            for other in &mut document.members {
                let found = troubles.iter().find(|(id, _)| id.to_string() == other.id);
                other.trouble = found.map(|(_, reason)| reason.clone());
                let spoken = other.id.parse().ok().and_then(|id| peer.links().spoken(id));
                other.protocol = spoken.as_ref().map(|spoken| spoken.version);
                other.release = spoken.and_then(|spoken| spoken.release);
            }
            document.release = Some(peer.links().release().to_owned());
            document.protocol = Some(peer.links().speaks().newest);
        }
        Some(document)
    }
}
