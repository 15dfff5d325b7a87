//! New certificates for a running member, and a warning before old ones expire.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mandate_peer::links::{Renewal, RenewalCheck};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// How often files are looked at; at once when asked to.
const LOOK: Duration = Duration::from_secs(2);

/// From when on it is warned, and how often.
const WARN_BEFORE: Duration = Duration::from_secs(30 * 86_400);
const WARN_EVERY: Duration = Duration::from_secs(86_400);

/// Keeps a member's certificates as its files are, for as long as its links last.
pub(super) async fn follow(mut renewal: Renewal, look: Arc<Notify>) {
    let mut was_asked = false;
    let mut warned: Option<Instant> = None;
    loop {
        match renewal.look(was_asked) {
            RenewalCheck::Renewed => {
                warned = None;
                tracing::info!("new certificates are in use, from the next handshake on");
            }
            RenewalCheck::Refused(error) => {
                tracing::error!("new certificates are not used, and the old ones stay: {error}");
            }
            RenewalCheck::Unchanged if was_asked => {
                tracing::info!("the certificates are unchanged")
            }
            RenewalCheck::Unchanged => {}
        }
        let text = renewal.expires().and_then(warning);
        if let Some(text) = text
            && warned.is_none_or(|when| when.elapsed() >= WARN_EVERY)
        {
            warned = Some(Instant::now());
            tracing::warn!("{text}");
        }
        tokio::select! {
            () = renewal.ended() => return,
            asked = timeout(LOOK, look.notified()) => was_asked = asked.is_ok(),
        }
    }
}

/// What to say of a certificate that expires soon.
fn warning(expires: SystemTime) -> Option<String> {
    let advice = "make a new one with `mandate certs --renew`; it is used without a restart";
    match expires.duration_since(SystemTime::now()) {
        Ok(left) if left > WARN_BEFORE => None,
        Ok(left) => {
            let days = left.as_secs() / 86_400;
            let days = if days == 1 { "1 day".into() } else { format!("{days} days") };
            Some(format!("this member's certificate expires in {days}: {advice}"))
        }
        Err(_) => Some(format!("this member's certificate has expired: {advice}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_warned_a_month_before_and_after() {
        let now = SystemTime::now();
        let days = |days: u64| Duration::from_secs(days * 86_400 + 60);
        assert_eq!(warning(now + days(31)), None);
        assert!(warning(now + days(29)).unwrap().contains("in 29 days"));
        assert!(warning(now - days(1)).unwrap().contains("has expired"));
    }
}
