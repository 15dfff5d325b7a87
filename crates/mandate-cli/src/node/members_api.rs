//! The group's list of members: who they are, and changing that while the group runs.
//!
//! | | |
//! | --- | --- |
//! | `GET /v1/members` | the list, as this member knows it, and which of them answer |
//! | `POST /v1/members` | a change; answered once it will not be undone |
//! | `DELETE /v1/members/pN` | removes a member |
//!
//! A change is carried out also if the caller does not wait for it.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mandate::{
    ChangeError, Contact, Error, LeaderRequestError, MemberChange, MemberId, NoChange, RosterId,
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::ToSchema;

use super::api::{Node, stopped};
use super::document::{ListNumber, PeerDocument};

/// How long a change is waited for: less than a request may take, so that the answer can say what is known by then.
const PATIENCE: Duration = Duration::from_millis(13_500);

/// A change of members.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ChangeRequest {
    /// A new member, which votes once it follows.
    Add {
        /// Its id, such as `p4`: above all that members have had.
        member: String,
        /// Where all other members reach it, as `host:port`.
        address: String,
        /// What people call it.
        #[serde(default)]
        name: String,
    },
    /// A new member that takes the place of another once it follows.
    Replace {
        /// Who leaves.
        replaces: String,
        /// The new member's id.
        member: String,
        /// Where all other members reach it, as `host:port`.
        address: String,
        /// What people call it.
        #[serde(default)]
        name: String,
    },
    /// A new member that follows and never votes.
    Observe {
        /// Its id.
        member: String,
        /// Where all other members reach it, as `host:port`.
        address: String,
        /// What people call it.
        #[serde(default)]
        name: String,
    },
    /// A member that learns is to vote now: what the leader does by itself as soon as it can.
    Promote {
        /// Who.
        member: String,
    },
}

/// A change that will not be undone.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ChangedDocument {
    /// The list that a quorum has on disk now.
    pub(crate) list: ListNumber,
    /// To whom the member that was removed handed leadership over first, if it led.
    #[serde(default)]
    pub(crate) handed_over_to: Option<String>,
}

impl ChangeRequest {
    fn change(self) -> Result<MemberChange, String> {
        let id = |text: String| text.parse::<MemberId>().map_err(|error| error.to_string());
        let added = |member, name, address, replaces| {
            let contact = Contact { name, address };
            Ok(MemberChange::Add { member: id(member)?, contact, replaces })
        };
        match self {
            ChangeRequest::Add { member, address, name } => added(member, name, address, None),
            ChangeRequest::Replace { replaces, member, address, name } => {
                added(member, name, address, Some(id(replaces)?))
            }
            ChangeRequest::Observe { member, address, name } => {
                let contact = Contact { name, address };
                Ok(MemberChange::Observe { member: id(member)?, contact })
            }
            ChangeRequest::Promote { member } => Ok(MemberChange::Promote { member: id(member)? }),
        }
    }
}

/// The group's members, as this one knows them: it is among them where the group has a list of members. On a database, on Kafka and under
/// the guarantee overlap, the others.
#[utoipa::path(
    get, path = "/v1/members",
    responses(
        (status = OK, description = "The members", body = Vec<PeerDocument>),
        (status = SERVICE_UNAVAILABLE, description = "The member is stopped, or waits for its disk",
            body = String, content_type = "text/plain"),
    )
)]
pub(super) async fn members(State(node): State<Node>) -> Response {
    let Some(status) = node.current().await else { return stopped() };
    let all = node.member.members().await.unwrap_or_default();
    Json(status.listed(&all)).into_response()
}

/// Changes the group's members. Answered when a quorum has the new list on disk: it will not be undone then.
#[utoipa::path(
    post, path = "/v1/members", request_body = ChangeRequest,
    responses(
        (status = OK, description = "Changed; a new member learns, and votes once it follows", body = ChangedDocument),
        (status = CONFLICT, description = "Why it cannot be; nothing has changed", body = String,
            content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "It makes no sense, and nothing has changed", body = String,
            content_type = "text/plain"),
        (status = GATEWAY_TIMEOUT, description = "It is not known what comes of it: look at the members later", body = String,
            content_type = "text/plain"),
    )
)]
pub(super) async fn change(
    State(node): State<Node>,
    Json(request): Json<ChangeRequest>,
) -> Response {
    match request.change() {
        Ok(change) => {
            let asked = change.clone();
            let changing = async move |node: Node| Ok((node.member.change(asked).await?, None));
            changed(node, change.member(), changing).await
        }
        Err(reason) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{reason}\n")).into_response(),
    }
}

/// Removes a member from the group. If it leads, it hands leadership over first.
#[utoipa::path(
    delete, path = "/v1/members/{member}",
    params(("member" = String, Path, description = "Who, such as `p2`")),
    responses(
        (status = OK, description = "Removed", body = ChangedDocument),
        (status = CONFLICT, description = "Why it cannot be; nothing has changed", body = String,
            content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "That is no member's id", body = String,
            content_type = "text/plain"),
        (status = GATEWAY_TIMEOUT, description = "It is not known what comes of it: look at the members later", body = String,
            content_type = "text/plain"),
    )
)]
pub(super) async fn remove(State(node): State<Node>, Path(member): Path<String>) -> Response {
    match member.parse() {
        Ok(member) => {
            let removing = async move |node: Node| {
                let removed = node.member.remove(member).await?;
                Ok((removed.list, removed.handed_over_to))
            };
            changed(node, member, removing).await
        }
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response(),
    }
}

/// Carries it out, also if the caller does not wait for it.
async fn changed<F>(node: Node, member: MemberId, change: impl FnOnce(Node) -> F) -> Response
where
    F: Future<Output = Result<(RosterId, Option<MemberId>), Error>> + Send + 'static,
{
    let made = tokio::spawn(change(node.clone()));
    match timeout(PATIENCE, made).await {
        Ok(Ok(Ok((list, to)))) => {
            let (list, handed_over_to) = (list.into(), to.map(|to| to.to_string()));
            Json(ChangedDocument { list, handed_over_to }).into_response()
        }
        Ok(Ok(Err(error))) => refused(&node, member, &error),
        Ok(Err(_)) => stopped(),
        Err(_) => unknown(format!("the change of {member} is not settled yet, and goes on")),
    }
}

/// Why the leader has not done what it was asked for, or may have.
pub(super) fn refused(node: &Node, member: MemberId, error: &Error) -> Response {
    let (code, reason) = match error {
        Error::HandedOver { error: reason, .. } => {
            let code = refused(node, member, reason).status();
            (code, error.to_string())
        }
        Error::Request(error) if error.is_unknown() => return unknown(error),
        Error::Request(LeaderRequestError::Change(ChangeError::Refused(reason))) => {
            let code = match reason {
                NoChange::TooLong => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::CONFLICT,
            };
            (code, because(node, member, *reason))
        }
        Error::Request(error) => (StatusCode::CONFLICT, error.to_string()),
        error => (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
    };
    (code, format!("{reason}\n")).into_response()
}

/// Why a change was not made, with what to do.
fn because(node: &Node, member: MemberId, reason: NoChange) -> String {
    match reason {
        NoChange::Unsupported if node.member.sql().is_some() => {
            "on a database there is no list of members: each process that takes part in the election is one".into()
        }
        NoChange::Unsupported if node.member.kafka().is_some() => {
            "on Kafka there is no list of members: each process that joins the consumer group is one".into()
        }
        NoChange::Unsupported => {
            "a group with guarantee = \"overlap\" has no list of members that could be changed while it runs: edit [peers] of \
             all members, and restart them"
                .into()
        }
        NoChange::UsedBefore => {
            let last = node.member.list().map_or(MemberId::new(0), |list| list.last_id());
            format!("{member}: {reason} (p{})", last.get() + 1)
        }
        reason => format!("{member}: {reason}"),
    }
}

/// What came of it is not known.
fn unknown(what: impl std::fmt::Display) -> Response {
    let text =
        format!("{what}. `mandate status` and `mandate member list` show what comes of it\n");
    (StatusCode::GATEWAY_TIMEOUT, text).into_response()
}
