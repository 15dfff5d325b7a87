//! A program that has installed a recorder has a member's figures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mandate::MemberId;
use mandate::sql::Config;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Keeps counters and gauges by name and labels.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Kept {
    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    fn read(&self, name: &str) -> Option<u64> {
        Some(self.0.lock().unwrap().get(name)?.load(Ordering::SeqCst))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_has_a_members_figures() {
    let kept = Kept::default();
    metrics::set_global_recorder(kept.clone()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("m.db").display());
    // A lease that is not lost because a thread or a write waits for a second or two.
    let config = Config::new(MemberId::new(0), Duration::from_secs(3)).unwrap();
    let member = mandate::sql::join(&url, "billing").config(config).await.unwrap();
    let mandate = member.election().led().await.unwrap();
    let of = |name: &str| format!("{name} group=billing member={}", member.id());
    let until = async |what: &str, holds: &dyn Fn() -> bool| {
        for _ in 0..24_000 {
            if holds() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {what}: {:?}", kept.0.lock().unwrap());
    };
    // Gauges keep the bits of a float.
    let gauge = |name: &str| kept.read(&of(name)).map(f64::from_bits);
    until("it leads", &|| gauge("mandate_is_leader") == Some(1.0)).await;
    let term = mandate.term().get() as f64;
    until("its term is told", &|| gauge("mandate_term") == Some(term)).await;
    let became = format!("{} to=leading", of("mandate_transitions_total"));
    until("the change is counted", &|| kept.read(&became) == Some(1)).await;
    until("renewals are counted", &|| kept.read(&of("mandate_renewals_total")) > Some(0)).await;
    assert!(gauge("mandate_lease_remaining_seconds") > Some(0.0));
    member.shutdown().await;
    until("it does not lead", &|| gauge("mandate_is_leader") == Some(0.0)).await;
}
