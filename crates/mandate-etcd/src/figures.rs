//! What a sidecar tells the election about its member.
//!
//! Of etcd's own figures only some are what they seem: `etcd_mvcc_put_total` and the proposals count what the whole
//! cluster did, and `etcd_network_peer_round_trip_time_seconds` drifts towards twice the round trip. So requests are
//! counted where clients come in (`grpc_server_handled_total`), and round trips are measured by the sidecars.

use std::collections::VecDeque;
use std::time::Duration;

use mandate_proto::time::Instant;

/// Calls that wait for the leader whatever the client asked for. A read waits for it only if it is to be linearizable,
/// which the counters do not tell.
const WRITES: [&str; 3] = ["Put", "Txn", "DeleteRange"];

/// Writes that clients have sent to this member and that were done, since it was started.
pub fn writes(metrics: &str) -> u64 {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix("grpc_server_handled_total{"));
    let counted = lines.filter_map(|line| {
        let (labels, value) = line.split_once('}')?;
        let is_write =
            WRITES.iter().any(|call| labels.contains(&format!("grpc_method=\"{call}\"")));
        let is_done = labels.contains("grpc_code=\"OK\"");
        (is_write && is_done).then(|| value.trim().parse::<f64>().ok())?
    });
    counted.sum::<f64>() as u64
}

/// How often something happens, by a counter that is looked at now and then.
#[derive(Clone, Debug)]
pub struct Rate {
    window: Duration,
    seen: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Over the last so long.
    pub fn over(window: Duration) -> Self {
        Rate { window, seen: VecDeque::new() }
    }

    /// The counter stood at this. One that went back was started anew with its server.
    pub fn saw(&mut self, now: Instant, count: u64) {
        if self.seen.back().is_some_and(|(_, before)| *before > count) {
            self.seen.clear();
        }
        self.seen.push_back((now, count));
        // One look from before the window stays, so that the window is covered whole.
        while self.seen.get(1).is_some_and(|(at, _)| now - *at >= self.window) {
            self.seen.pop_front();
        }
    }

    /// Times a second; 0 until there were two looks.
    pub fn per_second(&self) -> f64 {
        match (self.seen.front(), self.seen.back()) {
            (Some((first, from)), Some((last, to))) if last > first => {
                (to - from) as f64 / (*last - *first).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    #[test]
    fn writes_of_clients_that_were_done_are_counted_and_nothing_else() {
        let metrics = r#"
# TYPE grpc_server_handled_total counter
grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1.25e+06
grpc_server_handled_total{grpc_code="OK",grpc_method="Txn",grpc_service="etcdserverpb.KV",grpc_type="unary"} 7
grpc_server_handled_total{grpc_code="Unavailable",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 99
grpc_server_handled_total{grpc_code="OK",grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 99
grpc_server_started_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 99
etcd_mvcc_put_total 99
"#;
        assert_eq!(writes(metrics), 1_250_007);
        assert_eq!(writes("grpc_server_handled_total{grpc_code=\"OK\""), 0, "cut off");
    }

    #[test]
    fn a_rate_is_of_the_last_while() {
        let mut rate = Rate::over(Duration::from_secs(10));
        assert_eq!(rate.per_second(), 0.0);
        for second in 0..=20 {
            rate.saw(at(second), second * 50);
        }
        assert_eq!(rate.per_second(), 50.0);
        for second in 21..=40 {
            rate.saw(at(second), 1000);
        }
        assert_eq!(rate.per_second(), 0.0, "nothing in the last ten seconds");
    }

    #[test]
    fn a_counter_that_went_back_begins_anew() {
        let mut rate = Rate::over(Duration::from_secs(10));
        rate.saw(at(0), 5000);
        rate.saw(at(1), 5100);
        rate.saw(at(2), 3);
        assert_eq!(rate.per_second(), 0.0);
        rate.saw(at(3), 13);
        assert_eq!(rate.per_second(), 10.0);
    }
}
