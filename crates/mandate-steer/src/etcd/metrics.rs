//! Client requests, from an etcd member's metrics.
//!
//! Of etcd's own figures only some are what they seem: `etcd_mvcc_put_total` and the proposals count what the whole
//! cluster did, and `etcd_network_peer_round_trip_time_seconds` drifts towards twice the round trip. So requests are
//! counted where clients come in (`grpc_server_handled_total`), and round trips are measured by the sidecars.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
