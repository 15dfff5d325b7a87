//! Roles of a group on a ledger: which this member leads.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use mandate::roles::role_named;

use super::api::Node;
use crate::ledger::{RoleDocument, RoleMapDocument};

const ONE_ROLE: &str = "this member's group has one role, and /leader says who leads it\n";

/// Every role, and whether this member leads it now. What others lead, it does not know.
#[utoipa::path(
    get, path = "/v1/roles",
    responses(
        (status = OK, description = "The roles", body = Vec<RoleDocument>),
        (status = CONFLICT, description = "The engine has one role", body = String, content_type = "text/plain"),
    )
)]
pub(super) async fn roles(State(node): State<Node>) -> Response {
    match node.member.kafka() {
        Some(member) => Json(RoleMapDocument::of(member).by_role()).into_response(),
        None => (StatusCode::CONFLICT, ONE_ROLE).into_response(),
    }
}

/// Whether this member leads a role, computed now. For load balancers: 200 only if it does.
#[utoipa::path(
    get, path = "/v1/roles/{role}",
    params(("role" = String, Path, description = "Its number, or a key whose hash slot it is")),
    responses(
        (status = OK, description = "This member leads it", body = RoleDocument),
        (status = SERVICE_UNAVAILABLE, description = "It does not", body = RoleDocument),
        (status = NOT_FOUND, description = "There is no such role", body = String, content_type = "text/plain"),
        (status = CONFLICT, description = "The engine has one role", body = String, content_type = "text/plain"),
    )
)]
pub(super) async fn role(State(node): State<Node>, Path(name): Path<String>) -> Response {
    let Some(member) = node.member.kafka() else {
        return (StatusCode::CONFLICT, ONE_ROLE).into_response();
    };
    match role_named(&name, member.roles().layout().roles()) {
        Ok(role) => {
            let document = RoleDocument::of(member.roles(), role);
            let code =
                if document.leads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (code, Json(document)).into_response()
        }
        Err(error) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
    }
}
