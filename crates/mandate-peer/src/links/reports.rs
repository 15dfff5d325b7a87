//! Each refusal is told once: a member with an expired certificate comes again every two seconds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::limits::{MAX_REPORTED, MAX_REPORTS_PER_WINDOW, REPORT_AGAIN, REPORT_WINDOW};

/// What was told last about each address.
#[derive(Default)]
pub(crate) struct Reports(Mutex<Told>);

#[derive(Default)]
struct Told {
    reasons: BTreeMap<SocketAddr, (String, Instant)>,
    window: Option<Instant>,
    in_window: u32,
}

impl Reports {
    /// Whether this is news. At most so many are in a while, whoever comes from however many ports.
    pub(crate) fn is_news(&self, address: SocketAddr, reason: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = told.reasons.get(&address).filter(|(last, _)| last == reason);
        if last.is_some_and(|(_, when)| now.duration_since(*when) < REPORT_AGAIN) {
            return false;
        }
        if told.window.is_none_or(|start| now.duration_since(start) >= REPORT_WINDOW) {
            (told.window, told.in_window) = (Some(now), 0);
        }
        if told.in_window >= MAX_REPORTS_PER_WINDOW {
            return false;
        }
        told.in_window += 1;
        if told.reasons.len() >= MAX_REPORTED && !told.reasons.contains_key(&address) {
            told.reasons.pop_first();
        }
        told.reasons.insert(address, (reason.to_owned(), now));
        true
    }

    /// A link with this address came up: a later refusal is news again.
    pub(crate) fn forget(&self, address: SocketAddr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).reasons.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_reason_is_told_once_until_it_changes_or_the_link_comes_up() {
        let (reports, now) = (Reports::default(), Instant::now());
        assert!(reports.is_news(address(1), "expired", now));
        assert!(!reports.is_news(address(1), "expired", now));
        assert!(reports.is_news(address(2), "expired", now));
        assert!(reports.is_news(address(1), "version", now));
        reports.forget(address(1));
        assert!(reports.is_news(address(1), "version", now));
        assert!(reports.is_news(address(1), "version", now + REPORT_AGAIN), "it goes on");
    }

    #[test]
    fn strangers_on_many_ports_neither_fill_the_log_nor_the_memory() {
        let (reports, mut now) = (Reports::default(), Instant::now());
        let told = (1..5000).filter(|port| reports.is_news(address(*port), "foreign", now)).count();
        assert_eq!(told, MAX_REPORTS_PER_WINDOW as usize);
        for port in 5000..20_000 {
            now += REPORT_WINDOW;
            assert!(reports.is_news(address(port), "foreign", now));
        }
        assert!(reports.0.lock().unwrap().reasons.len() <= MAX_REPORTED);
    }
}
