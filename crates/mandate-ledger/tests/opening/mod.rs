//! A Kafka that may have just started, or be busy, opened.

use std::time::{Duration, Instant};

use mandate_ledger::kafka::{KafkaConfig, KafkaLedger};

/// For what hangs.
const BOUND: Duration = Duration::from_secs(120);

/// Asks again until a broker answers in time and knows itself.
pub(crate) async fn open(config: KafkaConfig) -> KafkaLedger {
    let began = Instant::now();
    loop {
        match KafkaLedger::open(config.clone()).await {
            Ok(ledger) => return ledger,
            Err(error) => assert!(began.elapsed() < BOUND, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
