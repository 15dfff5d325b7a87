//! The live page: plain files of `web/`, part of the program.
//!
//! No build step, no framework, nothing from elsewhere: what the page may load and where it may connect is this
//! daemon alone, and the browser is told so.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};

/// What browsers are told with every answer.
pub const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    // No page elsewhere may show an answer as a picture or run it as a script.
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// A file, where it is found and what it is.
type WebFile = (&'static str, &'static str, &'static str);

macro_rules! web {
    ($path:literal, $name:literal, $kind:literal) => {
        ($path, $kind, include_str!(concat!("../../web/", $name)))
    };
}

const HTML: WebFile = web!("/", "index.html", "text/html; charset=utf-8");

/// What both pages use.
pub const SHARED: [WebFile; 3] = [
    web!("/page.css", "page.css", "text/css; charset=utf-8"),
    web!("/dom.js", "dom.js", "text/javascript; charset=utf-8"),
    web!("/icon.svg", "icon.svg", "image/svg+xml"),
];

const SCRIPTS: [WebFile; 3] = [
    web!("/page.js", "page.js", "text/javascript; charset=utf-8"),
    web!("/feed.js", "feed.js", "text/javascript; charset=utf-8"),
    web!("/view.js", "view.js", "text/javascript; charset=utf-8"),
];

/// The demo's page.
pub const DEMO: [WebFile; 2] = [
    web!("/", "demo.html", "text/html; charset=utf-8"),
    web!("/demo.js", "demo.js", "text/javascript; charset=utf-8"),
];

fn files() -> impl Iterator<Item = WebFile> {
    [HTML].into_iter().chain(SHARED).chain(SCRIPTS)
}

/// Whether this is a file of a page: they say nothing of the group, and need no token.
pub fn is_file(path: &str) -> bool {
    files().any(|(own, ..)| own == path)
}

/// A route for each file of the daemon's page.
pub fn routes<S: Clone + Send + Sync + 'static>()
-> impl Iterator<Item = (&'static str, MethodRouter<S>)> {
    files().map(route)
}

/// The route of a file.
pub fn route<S: Clone + Send + Sync + 'static>(
    (path, kind, content): WebFile,
) -> (&'static str, MethodRouter<S>) {
    (path, get(async move || ([(CONTENT_TYPE, kind)], content).into_response()))
}
