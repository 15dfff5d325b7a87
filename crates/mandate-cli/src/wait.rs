//! Waiting for what a member needs to begin: a database, a broker, a daemon.
//!
//! What is not there *yet* is tried again, for as long as the user wants: a server may start after its
//! clients. What no time will cure is said at once: a wrong password, a database that does not exist, a bad
//! setting. What is neither known to pass nor known to be final is final: a program that says what is wrong
//! is easier to live with than one that waits for nothing.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::args::duration;
use crate::client::tls_error;
use crate::output::readable;

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// How often the same reason is logged again.
const REMIND: Duration = Duration::from_secs(30);

/// How long a member waits for what it needs.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WaitArgs {
    /// How long to try at most to reach a database, a broker or a daemon that is not there yet; 0s for one attempt. Without
    /// it, for as long as it takes. What no time will cure ends at once.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub wait: Option<Duration>,
}

impl WaitArgs {
    /// Makes attempts until one succeeds, fails for good, or the time is over.
    pub async fn until<T>(
        self,
        mut attempt: impl AsyncFnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        let mut logged: Option<(String, Instant)> = None;
        loop {
            let error = match attempt().await {
                Err(error) if !is_final(&error) => error,
                done => return done,
            };
            let is_over = self.wait.is_some_and(|wait| began.elapsed() + PAUSE > wait);
            if is_over {
                return Err(match self.wait {
                    Some(Duration::ZERO) | None => error,
                    Some(wait) => error.context(format!("not there within {}", readable(wait))),
                });
            }
            let reason = format!("{error:#}");
            if logged.as_ref().is_none_or(|(last, at)| *last != reason || at.elapsed() >= REMIND) {
                tracing::warn!("{reason}. Trying again; --wait bounds how long");
                logged = Some((reason, Instant::now()));
            }
            sleep(PAUSE).await;
        }
    }
}

/// Whether an error stays, however long one waits.
fn is_final(error: &anyhow::Error) -> bool {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<mandate::Error>() {
            return error.is_final();
        }
        if let Some(error) = cause.downcast_ref::<ureq::Error>() {
            let passes = matches!(
                error,
                ureq::Error::Io(_)
                    | ureq::Error::Timeout(_)
                    | ureq::Error::HostNotFound
                    | ureq::Error::ConnectionFailed
            );
            return !passes || tls_error(error).is_some();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn refused() -> anyhow::Result<()> {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        Err(ureq::Error::Io(refused)).context("no daemon answers")
    }

    #[tokio::test]
    async fn what_is_not_there_yet_is_tried_again_and_what_is_wrong_is_said_at_once() {
        let mut attempts = 0;
        let tried = WaitArgs { wait: None }.until(async || {
            attempts += 1;
            if attempts < 5 { refused() } else { Ok(()) }
        });
        tried.await.unwrap();
        assert_eq!(attempts, 5);
        let mut attempts = 0;
        let tried = WaitArgs { wait: None }.until(async || {
            attempts += 1;
            anyhow::Result::<()>::Err(anyhow::anyhow!("no such setting"))
        });
        assert_eq!(tried.await.unwrap_err().to_string(), "no such setting");
        assert_eq!(attempts, 1);
    }

    #[test]
    fn a_tls_error_stays_also_inside_an_io_error() {
        let of_tls = || std::io::Error::other(rustls::Error::EncryptError);
        assert!(is_final(&ureq::Error::Io(of_tls()).into()));
        assert!(!is_final(&refused().unwrap_err()));
    }

    #[tokio::test]
    async fn a_wait_of_zero_is_one_attempt() {
        let mut attempts = 0;
        let tried = WaitArgs { wait: Some(Duration::ZERO) }.until(async || {
            attempts += 1;
            refused()
        });
        assert_eq!(tried.await.unwrap_err().to_string(), "no daemon answers");
        assert_eq!(attempts, 1);
    }
}
