//! Other processes of the host that act on this member's mandate, such as `mandate run --api`.
//!
//! A mandate that is held elsewhere cannot be computed at the call there: the answer would be old by the
//! time it is used. So a *hold* is a promise for a time: until then this member does not give its term up by
//! its own will, unless to take a higher one itself while nobody else can lead. The holder counts from before it asked.
//! Losing the lease needs no promise: no hold lasts longer than it. Resigning, transferring and stopping first end the holds: who asks anew is
//! refused, and when all have let go, or their time is over, leadership moves.
//!
//! A hold may name a *role*. One process at a time holds a role: two commands that should exclude each other have one
//! term here, so nothing behind them could tell them apart. Different roles are held side by side, and the one that ends gives
//! leadership back only if nobody else holds it.
//!
//! Holds are in memory. A daemon that was killed does not know of them when it is back. With leases it does not lead before
//! they are over: what its former incarnation promised binds for its lease. Without, it lends nothing for as long as a
//! hold may last.
//!
//! | | |
//! | --- | --- |
//! | `GET /v1/mandate` | term, what remains of the lease, who holds it; with `?changed_from=VERSION`, once that is another, or after ten seconds |
//! | `PUT /v1/mandate/holders/NAME` | `{"role": "writer"}`: hold it, or hold it on: for how long; 410 if it is being given up; 409 if it cannot be held, or another holds the role |
//! | `DELETE /v1/mandate/holders/NAME` | let go |
//! | `POST /v1/resign` | `{"term": 7}`: only from that term, else 409; `"holder": NAME`: let go of that hold first, and resign only if there is no other |

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mandate::{Election, ElectionState, Guarantee, Mandate};
use mandate_proto::identity::Term;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use utoipa::{IntoParams, ToSchema};

use super::api::{Node, stopped};
use super::members_api;
use crate::output::ms;
use crate::run::boottime;

/// The longest hold: a resignation may have to wait for one whose process was killed.
const MAX_HOLD: Duration = Duration::from_secs(10);

/// A hold without leases. A client that does not hear of this member for so long lets go.
const HOLD_WITHOUT_LEASE: Duration = Duration::from_secs(1);

/// Processes that may hold at a time.
const MAX_HOLDERS: usize = 64;

/// How long a question may wait for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The longest name of a role.
const MAX_ROLE_BYTES: usize = 256;

/// Who holds the mandate.
pub(crate) struct Holders {
    /// How long a hold lasts at most.
    of: Duration,
    /// Nothing is held before: a hold of this daemon's former incarnation may not be over.
    not_before: Duration,
    /// Why nobody can.
    refusal: Option<&'static str>,
    book: Mutex<BTreeMap<String, Hold>>,
    /// How many are giving leadership up: while there are any, nobody new may hold it.
    enders: watch::Sender<u32>,
}

/// Somebody is giving leadership up. When this is dropped, whether that has come about or not, it can be held
/// again by the leader of that time.
pub(crate) struct Ending {
    holders: Arc<Holders>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.holders.enders.send_modify(|enders| *enders -= 1);
    }
}

/// Why it cannot be held.
type Refusal = (StatusCode, String);

fn conflict(reason: impl Into<String>) -> Refusal {
    (StatusCode::CONFLICT, reason.into())
}

fn no_request(reason: impl Into<String>) -> Refusal {
    (StatusCode::UNPROCESSABLE_ENTITY, reason.into())
}

/// With who does, where that is known.
pub(crate) fn not_leading(state: &ElectionState) -> Refusal {
    conflict(match state {
        ElectionState::Following { leader, term: Term::NONE, .. } => {
            format!("this member does not lead; {leader} does")
        }
        ElectionState::Following { leader, term, .. } => {
            format!("this member does not lead; {leader} does, in term {term}")
        }
        _ => "this member does not lead, and knows of no leader".into(),
    })
}

#[derive(Clone, Debug)]
struct Hold {
    until: Duration,
    role: Option<String>,
}

impl Hold {
    fn is_out(&self) -> bool {
        self.until > boottime()
    }
}

type Book = BTreeMap<String, Hold>;

/// Who holds it, for people.
fn named(name: &str, hold: &Hold) -> String {
    match &hold.role {
        Some(role) => format!("{name} (role {role})"),
        None => name.to_owned(),
    }
}

/// What somebody asks for who wants to hold it.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldRequest {
    /// Nobody else holds this role at the same time. Without one, nobody is excluded.
    pub role: Option<String>,
}

/// What somebody who holds it is told.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct HoldDocument {
    pub term: u64,
    /// How long from when this was asked.
    pub hold_ms: f64,
    /// How long at most.
    pub of_ms: f64,
}

/// The mandate, as others of the host see it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MandateDocument {
    /// Changes with the term, with who holds which role, and when it is being given up.
    pub version: String,
    /// The term in which this member leads.
    pub term: Option<u64>,
    /// Whether it is being given up.
    pub ending: bool,
    /// Absent without leases, and on followers.
    pub remaining_ms: Option<f64>,
    pub holders: Vec<String>,
    /// The roles that are held, each by one of them.
    #[serde(default)]
    pub roles: Vec<String>,
}

impl Holders {
    pub(crate) fn new(guarantee: Guarantee, refusal: Option<&'static str>) -> Self {
        let not_before = match guarantee.lease() {
            Some(_) => Duration::ZERO,
            None => boottime() + HOLD_WITHOUT_LEASE,
        };
        Holders {
            of: guarantee.lease().unwrap_or(HOLD_WITHOUT_LEASE).min(MAX_HOLD),
            not_before,
            refusal,
            book: Mutex::default(),
            enders: watch::Sender::new(0),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a mandate; an error says why not.
    fn hold(
        &self,
        name: &str,
        role: Option<String>,
        mandate: &Mandate,
    ) -> Result<HoldDocument, Refusal> {
        if let Some(reason) = self.refusal {
            return Err(conflict(reason));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.len() > 64 || !name.chars().all(plain) {
            return Err(no_request("a holder's name has up to 64 letters, digits and hyphens"));
        }
        if role.as_ref().is_some_and(|role| role.len() > MAX_ROLE_BYTES) {
            return Err(no_request(format!("a role's name has up to {MAX_ROLE_BYTES} bytes")));
        }
        let mut book = self.book();
        // Under the lock, so that either the code that ends holds sees this hold, or this hold sees that they ended.
        if *self.enders.borrow() > 0 {
            return Err((StatusCode::GONE, "leadership is being given up".into()));
        }
        book.retain(|_, hold| hold.is_out());
        if book.len() >= MAX_HOLDERS && !book.contains_key(name) {
            return Err(conflict("too many hold it already"));
        }
        let mut others = book.iter().filter(|(other, _)| *other != name);
        if let Some((other, hold)) = others.find(|(_, hold)| role.is_some() && hold.role == role) {
            let role = hold.role.as_deref().unwrap_or_default();
            return Err(conflict(format!(
                "the role {role} is held by {other} on this host already"
            )));
        }
        let now = boottime();
        if now < self.not_before {
            return Err(conflict(
                "this daemon has just started: a command that held its mandate before may not have ended yet",
            ));
        }
        let left = mandate.remaining().unwrap_or(self.of).min(self.of);
        if left.is_zero() {
            return Err(conflict("this member leads no more"));
        }
        // Read after what remains: this end of the promise must not come before the other's.
        let until = boottime() + left;
        book.insert(name.to_owned(), Hold { until, role });
        Ok(HoldDocument { term: mandate.term().get(), hold_ms: ms(left), of_ms: ms(self.of) })
    }

    /// Lets go of a hold. If there is no other, nobody can hold it from here on until what is returned is dropped; else
    /// who holds it.
    fn let_go_last(self: &Arc<Self>, name: &str) -> Result<Ending, String> {
        let mut book = self.book();
        book.remove(name);
        let others = book.iter().filter(|(_, hold)| hold.is_out());
        let others: Vec<_> = others.map(|(name, hold)| named(name, hold)).collect();
        if others.is_empty() { Ok(self.begin_ending(&book)) } else { Err(others.join(", ")) }
    }

    /// From here on nobody new may hold it. Under the lock of the book.
    fn begin_ending(self: &Arc<Self>, _book: &Book) -> Ending {
        self.enders.send_modify(|enders| *enders += 1);
        Ending { holders: self.clone() }
    }

    /// Ends all holds, of whatever term: returns when everyone has let go or its time is over. Until what it
    /// returns is dropped, nobody holds anything.
    pub(crate) async fn end(self: &Arc<Self>) -> Ending {
        let ending = self.begin_ending(&self.book());
        while self.book().values().any(Hold::is_out) {
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
        let book = self.book();
        let out: Vec<_> = book.iter().filter(|(_, hold)| hold.is_out()).collect();
        let mut roles = DefaultHasher::new();
        out.iter().for_each(|(name, hold)| (name, &hold.role).hash(&mut roles));
        let version = version.unwrap_or_else(|| "none".into());
        MandateDocument {
            version: format!(
                "{version}.{:x}{}",
                roles.finish(),
                if ending { "-ending" } else { "" }
            ),
            term: term.map(Term::get),
            ending,
            remaining_ms: held.and_then(Mandate::remaining).map(ms),
            holders: out.iter().map(|(name, _)| (*name).clone()).collect(),
            roles: out.iter().filter_map(|(_, hold)| hold.role.clone()).collect(),
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
    if let (Some(_), Some(reason)) = (node.member.kafka(), node.holders.refusal) {
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
    request_body(content = Option<HoldRequest>, content_type = "application/json"),
    responses(
        (status = OK, description = "Held, for so long from before this was asked", body = HoldDocument),
        (status = CONFLICT, description = "It cannot be held, or another holds the role", body = String, content_type = "text/plain"),
        (status = GONE, description = "It is being given up", body = String, content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "No such name or request", body = String, content_type = "text/plain"),
    )
)]
pub(crate) async fn hold(
    State(node): State<Node>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let state = node.election.state().borrow().clone();
    let held = parsed::<HoldRequest>(&body).and_then(|asked| match state.mandate() {
        Some(mandate) => node.holders.hold(&name, asked.role, mandate),
        None => Err(not_leading(&state)),
    });
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

/// What a body asks for; without one, nothing in particular.
fn parsed<T: Default + DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    match body.is_empty() {
        true => Ok(T::default()),
        false => serde_json::from_slice(body).map_err(|error| no_request(error.to_string())),
    }
}

#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resign {
    /// Only from this term.
    pub term: Option<u64>,
    /// Let go of this hold first, and resign only if nobody else holds the mandate.
    pub holder: Option<String>,
}

/// Has the leader give leadership up, when nobody holds its mandate any more, and leave it to the others. Among members that elect each other,
/// any of them can be asked, unless a term or a hold is named; else the leader.
#[utoipa::path(
    post, path = "/v1/resign",
    request_body(content = Option<Resign>, content_type = "application/json"),
    responses(
        (status = NO_CONTENT, description = "Given back"),
        (status = CONFLICT, description = "It does not lead, or in another term, or others hold the mandate", body = String, content_type = "text/plain"),
        (status = UNPROCESSABLE_ENTITY, description = "No such request", body = String, content_type = "text/plain"),
        (status = GATEWAY_TIMEOUT, description = "It is not known whether it was: no answer came from the leader in time", body = String,
            content_type = "text/plain"),
    )
)]
pub(crate) async fn resign(State(node): State<Node>, body: Bytes) -> Response {
    let asked = match parsed::<Resign>(&body) {
        Ok(asked) => asked,
        Err((code, reason)) => return (code, format!("{reason}\n")).into_response(),
    };
    // Whatever becomes of the rest, this hold is over.
    let last = asked.holder.as_ref().map(|holder| node.holders.let_go_last(holder));
    if let Some(Err(others)) = last {
        let reason = format!("others hold the mandate of this member: {others}\n");
        return (StatusCode::CONFLICT, reason).into_response();
    }
    if let (Some(ledger), None) = (node.member.kafka(), asked.term) {
        // All or nothing, whichever roles they are.
        let _ending = node.holders.end().await;
        ledger.roles().resign();
        return StatusCode::NO_CONTENT.into_response();
    }
    let state = node.election.state().borrow().clone();
    let led = state.mandate().filter(|it| it.check()).cloned();
    let reason = match (led, asked.term) {
        (None, None) if asked.holder.is_none() && node.reaches_leader() => {
            return resign_leader(node).await;
        }
        (None, _) => {
            let (code, reason) = not_leading(&state);
            return (code, format!("{reason}\n")).into_response();
        }
        (Some(led), Some(term)) if led.term().get() != term => {
            format!("this member leads in term {}, not in term {term}\n", led.term())
        }
        (Some(led), _) => {
            // On its own: it is carried out even if the caller does not wait for it.
            let given_back = tokio::spawn(async move {
                let _last = last;
                let _ending = node.holders.end().await;
                node.election.give_back(&led).await;
            });
            let _ = given_back.await;
            return StatusCode::NO_CONTENT.into_response();
        }
    };
    (StatusCode::CONFLICT, reason).into_response()
}

/// Has the leader resign that this member follows.
async fn resign_leader(node: Node) -> Response {
    let asked = node.clone();
    // On its own: it is carried out even if the caller does not wait for it.
    match tokio::spawn(async move { asked.member.resign_leader().await }).await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error)) => members_api::refused(&node, node.about.me, &error),
        Err(_) => stopped(),
    }
}
