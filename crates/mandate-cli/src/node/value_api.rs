//! The value that the leader has published with its term: how it is published here, and how others are sent to it.
//!
//! | | |
//! | --- | --- |
//! | `GET /leader?redirect` | 307 to the value, if it is an http or https URL, or `host:port`; with `?redirect=/PATH`, to that path there |
//! | `PUT /v1/value` | the body is the value, 4 KiB at most; with `?term=N` only in that term |

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use mandate::{Mandate, NoPublish, Value};
use serde::Deserialize;
use utoipa::IntoParams;

use super::api::Node;

/// How `/leader` is asked.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LeaderQuery {
    /// Answer with a redirect to what the leader has published; to this path there, if it is not empty.
    pub(super) redirect: Option<String>,
}

/// In which term.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OfTerm {
    /// Only in this term; without, in the one that this member holds.
    term: Option<u64>,
}

/// Publishes a value with the term that this member holds.
#[utoipa::path(
    put, path = "/v1/value", params(OfTerm),
    request_body(content = String, content_type = "text/plain", description = "The value: text, 4 KiB at most"),
    responses(
        (status = NO_CONTENT, description = "Published: everyone will see it with the leader, until the term ends"),
        (status = CONFLICT, description = "It does not lead, or not in that term, or its engine has no terms", body = String,
            content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "That is no value; why", body = String,
            content_type = "text/plain"),
    )
)]
pub(super) async fn publish(
    State(node): State<Node>,
    Query(OfTerm { term }): Query<OfTerm>,
    body: Bytes,
) -> Response {
    let value = match Value::from_bytes(&body) {
        Ok(value) => value,
        Err(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response();
        }
    };
    match published(&node, term, value).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(reason) => (StatusCode::CONFLICT, format!("{reason}\n")).into_response(),
    }
}

async fn published(node: &Node, term: Option<u64>, value: Value) -> Result<(), NoPublish> {
    let state = node.election.state().borrow().clone();
    let mandate = state.mandate().filter(|mandate| mandate.check());
    let is_meant = |mandate: &&Mandate| term.is_none_or(|term| mandate.term().get() == term);
    let mandate = mandate.filter(is_meant).ok_or(NoPublish::NotLeading)?;
    node.election.publish_under(mandate, value).await
}

/// Sends the client to where the leader is, by what it has published.
pub(super) fn redirect(value: Option<&Value>, path: &str) -> Response {
    let Some(value) = value else {
        let reason = "no leader is known here, or it has published no value\n";
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    };
    match location(value.as_str(), path) {
        // Who leads may change at any time.
        Ok(place) => {
            let headers = [(header::LOCATION, place), (header::CACHE_CONTROL, "no-store".into())];
            (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
        }
        Err(reason) => (StatusCode::CONFLICT, format!("{reason}\n")).into_response(),
    }
}

/// The URL that a value stands for.
fn location(value: &str, path: &str) -> Result<String, &'static str> {
    let is_url = ["http://", "https://"].iter().any(|scheme| {
        value.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty() && is_plain(rest))
    });
    let base = match is_url {
        true => value.to_owned(),
        false if is_host_and_port(value) => format!("http://{value}"),
        false => {
            return Err("what the leader has published is no http or https URL, nor host:port");
        }
    };
    if path.is_empty() {
        return Ok(base);
    }
    if !path.starts_with('/') || !is_plain(path) {
        return Err("redirect is a path that begins with / and is written as in a URL, or empty");
    }
    if base.contains(['?', '#']) {
        return Err("what the leader has published is a whole URL: ask without a path");
    }
    Ok(format!("{}{path}", base.trim_end_matches('/')))
}

/// Whether it can stand in a header, in a URL.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_graphic())
}

fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || "-._".contains(c) || is_bracketed && "[]:".contains(c)
    };
    !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_hosts_with_a_port_are_places_with_and_without_a_path() {
        let at = |value, path| location(value, path).unwrap();
        assert_eq!(at("http://orders-0:8080", ""), "http://orders-0:8080");
        assert_eq!(at("https://db.example/api/", "/v2?x=1"), "https://db.example/api/v2?x=1");
        assert_eq!(at("10.0.0.7:8080", ""), "http://10.0.0.7:8080");
        assert_eq!(at("[::1]:80", "/a"), "http://[::1]:80/a");
        assert_eq!(at("http://a/?q", ""), "http://a/?q");
    }

    #[test]
    fn nobody_is_sent_anywhere_else() {
        for value in
            ["", "orders-0", "ftp://a:1", "http://", "http://a b", "a:99999", "a/b:80", "{\"a\":1}"]
        {
            assert!(location(value, "").is_err(), "{value}");
        }
        for path in ["evil", "@evil:80", "/a b", "/a\r\nSet-Cookie: x", "//a\n"] {
            assert!(location("http://a", path).is_err(), "{path}");
        }
        assert!(location("http://a/?q", "/b").is_err());
        assert_eq!(location("http://a", "//b").unwrap(), "http://a//b", "the host stays");
    }
}
