//! The demo's page: who leads, how everyone is, and buttons that inject faults.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use mandate_proto::identity::MemberId;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};

use super::controller::{Act, Order, Scene};
use crate::node::access::{Access, admit};
use crate::node::page;

#[derive(Clone)]
struct DemoPage {
    scene: watch::Receiver<Scene>,
    orders: mpsc::Sender<Order>,
}

pub(super) fn router(scene: watch::Receiver<Scene>, orders: mpsc::Sender<Order>) -> Router {
    let router = Router::new().route("/v1/scene", get(shown)).route("/v1/order", post(order));
    let files = page::DEMO.into_iter().chain(page::SHARED).map(page::route);
    files
        .fold(router, |router, (path, file)| router.route(path, file))
        .layer(middleware::from_fn_with_state(Arc::new(Access::loopback()), admit))
        .with_state(DemoPage { scene, orders })
}

async fn shown(State(playbill): State<DemoPage>) -> Json<Scene> {
    Json(playbill.scene.borrow().clone())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderRequest {
    member: String,
    act: Act,
}

async fn order(State(playbill): State<DemoPage>, Json(request): Json<OrderRequest>) -> Response {
    let scene = playbill.scene.borrow().clone();
    let member = request.member.parse::<MemberId>().ok();
    let member = member.filter(|id| scene.members.iter().any(|member| member.id == *id));
    let Some(member) = member else {
        return (StatusCode::UNPROCESSABLE_ENTITY, "no member is called so\n").into_response();
    };
    if let Act::Score(figures) = request.act
        && !(0.0..=1e9).contains(&figures.requests)
    {
        return (StatusCode::UNPROCESSABLE_ENTITY, "requests are from 0 to a billion\n")
            .into_response();
    }
    match playbill.orders.try_send(Order { member, act: request.act }) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too much at once\n").into_response(),
    }
}
