//! Other processes of the host that act on this member's mandate, such as `mandate run --api`.
//!
//! A mandate that is held elsewhere cannot be computed at the call there: the answer would be old by the
//! time it is used. So a *hold* is a promise for a time: until then this member does not give its term up by
//! its own will. Whoever holds counts from before it asked. Losing the lease needs no promise: no hold
//! lasts longer than it. Resigning, transferring and stopping first end the holds: who asks anew is
//! refused, and when all have let go, or their time is over, leadership moves.
//!
//! | | |
//! | --- | --- |
//! | `GET /v1/mandate` | term, what remains of the lease, who holds it; with `?changed_from=VERSION`, once that is another, or after ten seconds |
//! | `PUT /v1/mandate/holders/NAME` | hold it, or hold it on: for how long; 410 if it is being given up; 409 if it cannot be held |
//! | `DELETE /v1/mandate/holders/NAME` | let go |
//! | `POST /v1/resign` | `{"term": 7}`: only from that term, else 409 |

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mandate_proto::identity::Term;
use mandate_runtime::{Election, Mandate, Promise};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use utoipa::{IntoParams, ToSchema};

use super::api::Node;
use crate::output::ms;
use crate::run::boottime;

/// The longest hold: a resignation may have to wait for one whose process was killed.
const MAX_HOLD: Duration = Duration::from_secs(10);

/// A hold without leases. Whoever does not hear of this member for so long lets go.
const HOLD_WITHOUT_LEASE: Duration = Duration::from_secs(1);

/// Processes that may hold at a time.
const MAX_HOLDERS: usize = 64;

/// How long a question may wait for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Who holds the mandate.
pub(crate) struct Holders {
    /// How long a hold lasts at most.
    of: Duration,
    /// Why nobody can.
    refusal: Option<&'static str>,
    book: Mutex<BTreeMap<String, Hold>>,
    /// How many are giving leadership up: while there are any, nobody new may hold it.
    enders: watch::Sender<u32>,
}

/// Somebody is giving leadership up. When this is dropped, whether that has come about or not, it can be held
/// again by whoever leads then.
pub(crate) struct Ending {
    holders: Arc<Holders>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.holders.enders.send_modify(|enders| *enders -= 1);
    }
}

/// Why it cannot be held.
type Refusal = (StatusCode, &'static str);

const NOT_LEADING: Refusal = (StatusCode::CONFLICT, "this member does not lead");

#[derive(Clone, Copy)]
struct Hold {
    until: Duration,
}

/// What somebody who holds it is told.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct HoldDocument {
    pub(crate) term: u64,
    /// How long from when this was asked.
    pub(crate) hold_ms: f64,
    /// How long at most.
    pub(crate) of_ms: f64,
}

/// The mandate, as others of the host see it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MandateDocument {
    /// Changes with the term, and when it is being given up.
    pub(crate) version: String,
    /// The term in which this member leads.
    pub(crate) term: Option<u64>,
    /// Whether it is being given up.
    pub(crate) ending: bool,
    /// Absent without leases, and on followers.
    pub(crate) remaining_ms: Option<f64>,
    pub(crate) holders: Vec<String>,
}

impl Holders {
    pub(crate) fn new(promise: Promise, refusal: Option<&'static str>) -> Self {
        Holders {
            of: promise.lease().unwrap_or(HOLD_WITHOUT_LEASE).min(MAX_HOLD),
            refusal,
            book: Mutex::default(),
            enders: watch::Sender::new(0),
        }
    }

    fn book(&self) -> MutexGuard<'_, BTreeMap<String, Hold>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a mandate; an error says why not.
    fn hold(&self, name: &str, mandate: &Mandate) -> Result<HoldDocument, Refusal> {
        if let Some(reason) = self.refusal {
            return Err((StatusCode::CONFLICT, reason));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.len() > 64 || !name.chars().all(plain) {
            let reason = "a holder's name has up to 64 letters, digits and hyphens";
            return Err((StatusCode::UNPROCESSABLE_ENTITY, reason));
        }
        let mut book = self.book();
        // Under the lock, so that whoever ends holds sees this one or this one sees that.
        if *self.enders.borrow() > 0 {
            return Err((StatusCode::GONE, "leadership is being given up"));
        }
        let now = boottime();
        book.retain(|_, hold| hold.until > now);
        if book.len() >= MAX_HOLDERS && !book.contains_key(name) {
            return Err((StatusCode::CONFLICT, "too many hold it already"));
        }
        let left = mandate.remaining().unwrap_or(self.of).min(self.of);
        if left.is_zero() {
            return Err(NOT_LEADING);
        }
        // Read after what remains: this end of the promise must not come before the other's.
        let until = boottime() + left;
        book.insert(name.to_owned(), Hold { until });
        Ok(HoldDocument { term: mandate.term().get(), hold_ms: ms(left), of_ms: ms(self.of) })
    }

    /// Ends all holds, of whatever term: returns when everyone has let go or its time is over. Until what it
    /// returns is dropped, nobody holds anything.
    pub(crate) async fn end(self: &Arc<Self>) -> Ending {
        let ending = {
            let _book = self.book();
            self.enders.send_modify(|enders| *enders += 1);
            Ending { holders: self.clone() }
        };
        while self.book().values().any(|hold| hold.until > boottime()) {
            sleep(Duration::from_millis(2)).await;
        }
        ending
    }

    fn document(&self, election: &Election) -> MandateDocument {
        let state = election.state().borrow().clone();
        let held = state.mandate().filter(|mandate| mandate.check());
        let term = held.map(|mandate| mandate.term());
        let ending = term.is_some() && *self.enders.borrow() > 0;
        // Where there are no terms, reigns are told apart by when they began.
        let version = held.map(|held| format!("{}.{}", held.term(), held.reign()));
        let now = boottime();
        let holds = self.book();
        MandateDocument {
            version: version.unwrap_or_else(|| "none".into()) + if ending { "-ending" } else { "" },
            term: term.map(Term::get),
            ending,
            remaining_ms: held.and_then(Mandate::remaining).map(ms),
            holders: holds
                .iter()
                .filter(|(_, it)| it.until > now)
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Seen {
    /// Wait until the version is another, for ten seconds at most.
    changed_from: Option<String>,
}

/// What this member holds, and who acts on it.
#[utoipa::path(
    get, path = "/v1/mandate", params(Seen),
    responses(
        (status = OK, description = "As it is now", body = MandateDocument),
        (status = CONFLICT, description = "There are many", body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn mandate(State(node): State<Node>, Query(seen): Query<Seen>) -> Response {
    if let (Some(_), Some(reason)) = (node.member.on_a_ledger(), node.holders.refusal) {
        return (StatusCode::CONFLICT, format!("{reason}\n")).into_response();
    }
    let mut states = node.election.state();
    let mut ending = node.holders.enders.subscribe();
    let changed = async {
        loop {
            states.mark_unchanged();
            ending.mark_unchanged();
            let document = node.holders.document(&node.election);
            if seen.changed_from.as_ref() != Some(&document.version) {
                return document;
            }
            // A lease that runs out changes it too, and nobody says so.
            let _ = timeout(Duration::from_millis(100), async {
                tokio::select! {
                    _ = states.changed() => {}
                    _ = ending.changed() => {}
                }
            })
            .await;
        }
    };
    let changed = timeout(LONGEST_WAIT, changed).await;
    Json(changed.unwrap_or_else(|_| node.holders.document(&node.election))).into_response()
}

/// Holds the mandate, or holds it on: until then this member does not give its term up by its own will.
#[utoipa::path(
    put, path = "/v1/mandate/holders/{name}",
    params(("name" = String, Path, description = "Who holds it")),
    responses(
        (status = OK, description = "Held, for so long from before this was asked", body = HoldDocument),
        (status = CONFLICT, description = "It cannot be held", body = String, content_type = "text/plain"),
        (status = GONE, description = "It is being given up", body = String, content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "No such name", body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn hold(State(node): State<Node>, Path(name): Path<String>) -> Response {
    let state = node.election.state().borrow().clone();
    let held = match state.mandate() {
        Some(mandate) => node.holders.hold(&name, mandate),
        None => Err(NOT_LEADING),
    };
    match held {
        Ok(document) => Json(document).into_response(),
        Err((code, reason)) => (code, format!("{reason}\n")).into_response(),
    }
}

/// Lets go of the mandate.
#[utoipa::path(
    delete, path = "/v1/mandate/holders/{name}",
    params(("name" = String, Path, description = "Who held it")),
    responses((status = NO_CONTENT, description = "Let go"))
)]
pub(crate) async fn let_go(State(node): State<Node>, Path(name): Path<String>) -> Response {
    node.holders.book().remove(&name);
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resign {
    /// Only from this term.
    term: Option<u64>,
}

/// Has this member give leadership up, when nobody holds the mandate any more, and leave it to the others.
#[utoipa::path(
    post, path = "/v1/resign",
    request_body(content = Option<Resign>, content_type = "application/json"),
    responses(
        (status = NO_CONTENT, description = "Given back"),
        (status = CONFLICT, description = "It does not lead, or in another term", body = String, content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "No such request", body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn resign(State(node): State<Node>, body: Bytes) -> Response {
    let asked = if body.is_empty() { Ok(Resign::default()) } else { serde_json::from_slice(&body) };
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => {
            return (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n")).into_response();
        }
    };
    if let (Some(ledger), None) = (node.member.on_a_ledger(), asked.term) {
        // All or nothing, whichever roles they are.
        let _ending = node.holders.end().await;
        ledger.roles().resign();
        return StatusCode::NO_CONTENT.into_response();
    }
    let led = node.election.state().borrow().mandate().filter(|it| it.check()).cloned();
    let reason = match (led, asked.term) {
        (None, _) => "this member does not lead; ask the leader\n".to_owned(),
        (Some(led), Some(term)) if led.term().get() != term => {
            format!("this member leads in term {}, not in term {term}\n", led.term())
        }
        (Some(led), _) => {
            // On its own: it is carried out also if whoever asked does not wait for it.
            let given_back = tokio::spawn(async move {
                let _ending = node.holders.end().await;
                node.election.give_back(&led).await;
            });
            let _ = given_back.await;
            return StatusCode::NO_CONTENT.into_response();
        }
    };
    (StatusCode::CONFLICT, reason).into_response()
}
