//! A new certificate, key or token for the API of a running daemon: a restart would cost the leader its term.
//!
//! As for the members' own certificates, files are looked at now and then, and at once on SIGHUP. What cannot be used is
//! said, and the old stays.

use std::sync::Arc;
use std::time::Duration;

use mandate::Member;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::access::{Access, AccessFiles};
use super::serve::{SharedTls, acceptor};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Has a member's own certificates read on SIGHUP, for as long as the daemon runs.
pub(super) async fn certificates(member: Member) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        member.reload();
    }
}

/// Keeps token, certificate and key as their files are.
pub(super) async fn follow(files: AccessFiles, access: Arc<Access>, tls: Option<SharedTls>) {
    if !files.has_any() {
        return;
    }
    let mut hangups = signal(SignalKind::hangup()).ok();
    let mut seen = files.contents();
    let mut complained = None;
    loop {
        let hangup = async {
            match &mut hangups {
                Some(hangups) => hangups.recv().await,
                None => std::future::pending().await,
            }
        };
        let hangup_came = timeout(LOOK, hangup).await.is_ok();
        let contents = files.contents();
        if contents == seen && !hangup_came {
            continue;
        }
        match renew(&files, &access, tls.as_ref()) {
            Ok(()) if contents == seen => {
                tracing::info!("the api's token and certificate are unchanged")
            }
            Ok(()) => {
                tracing::info!(
                    "the api uses its new token and certificate, from the next request on"
                );
                (seen, complained) = (contents, None);
            }
            // Files are replaced one after the other: told once, and looked at again.
            Err(error) => {
                let text = format!("{error:#}");
                if complained.as_ref() != Some(&text) || hangup_came {
                    tracing::error!(
                        "the api's new token or certificate is not used, and the old stays: {text}"
                    );
                    complained = Some(text);
                }
            }
        }
    }
}

/// Both, or neither.
fn renew(files: &AccessFiles, access: &Access, tls: Option<&SharedTls>) -> anyhow::Result<()> {
    let token = files.token()?;
    if let (Some(files), Some(tls)) = (&files.tls, tls) {
        tls.replace(acceptor(files)?);
    }
    access.replace_token(token);
    Ok(())
}
