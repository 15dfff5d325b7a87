//! How well a member watches its leader: what is wanted, the plan in force, what was measured. The same for
//! the API, the metrics and `mandate qos measure`.

use mandate_proto::detector::configurator::Bounds;
use mandate_proto::detector::quality::{Detection, Watched};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::output::ms;

/// Wanted, planned, measured.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QualityDocument {
    /// The leader that is watched; none while this member leads itself, or nobody does.
    pub member: Option<String>,
    /// What the configuration asks for; none if the interval is fixed.
    pub wanted: Option<WantedDocument>,
    /// Why that cannot be had on the link as it is, if it cannot.
    pub unachievable: Option<String>,
    /// What is in force.
    pub plan: Option<InForceDocument>,
    pub measured: MeasuredDocument,
}

/// The bounds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WantedDocument {
    /// A crash is noticed within this time (T_D).
    pub detect_ms: f64,
    /// Mistakes are at least so far apart, on average (T_MR).
    pub mistake_every_s: f64,
    /// And last at most so long, on average (T_M).
    pub mistake_lasts_ms: f64,
}

/// Interval and margin.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct InForceDocument {
    /// Time between heartbeats (eta).
    pub interval_ms: f64,
    /// How much later than expected a heartbeat may be (alpha).
    pub margin_ms: f64,
}

/// What was measured, of the link and of the detector.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MeasuredDocument {
    /// Heartbeats that should have arrived on the present link.
    pub heartbeats: Option<u64>,
    /// Share of heartbeats that did not arrive.
    pub loss: Option<f64>,
    /// Standard deviation of the delay.
    pub delay_sd_ms: Option<f64>,
    /// How long leaders were watched since the start.
    pub watched_s: f64,
    /// How often a leader that was up was suspected.
    pub mistakes: u64,
    /// Mean time between mistakes (T_MR); none without a mistake.
    pub mistake_every_s: Option<f64>,
    /// Mean duration of a mistake (T_M).
    pub mistake_lasts_ms: Option<f64>,
    /// How many crashes were noticed.
    pub detections: u64,
    /// From the last sign of life to the suspicion, on average (T_D).
    pub detection_mean_ms: Option<f64>,
    /// The longest.
    pub detection_max_ms: Option<f64>,
}

impl QualityDocument {
    pub fn new(detection: &Detection) -> Self {
        let service = &detection.service;
        let link = detection.watched.and_then(|watched| watched.link);
        QualityDocument {
            member: detection.watched.map(|watched| watched.leader.to_string()),
            wanted: detection.wanted.as_ref().map(WantedDocument::new),
            unachievable: detection.unachievable.map(|reason| reason.to_string()),
            plan: detection.watched.as_ref().map(InForceDocument::new),
            measured: MeasuredDocument {
                heartbeats: link.map(|link| link.expected),
                loss: link.map(|link| link.loss),
                delay_sd_ms: link.map(|link| link.variance.sqrt() * 1000.0),
                watched_s: service.watched.as_secs_f64(),
                mistakes: service.mistakes.count,
                mistake_every_s: service.mistake_every().map(|every| every.as_secs_f64()),
                mistake_lasts_ms: service.mistakes.mean().map(ms),
                detections: service.detections.count,
                detection_mean_ms: service.detections.mean().map(ms),
                detection_max_ms: (service.detections.count > 0)
                    .then(|| ms(service.detections.longest)),
            },
        }
    }

    /// What Prometheus is told: name, what it is, value.
    pub fn figures(&self) -> Vec<(&'static str, &'static str, f64)> {
        let (wanted, plan, measured) = (self.wanted.as_ref(), self.plan.as_ref(), &self.measured);
        let figures = [
            (
                "mandate_qos_wanted_detection_seconds",
                "A crash of the leader is to be noticed within this time (T_D).",
                wanted.map(|wanted| wanted.detect_ms / 1000.0),
            ),
            (
                "mandate_qos_wanted_mistake_recurrence_seconds",
                "Mistakes are to be at least so far apart, on average (T_MR).",
                wanted.map(|wanted| wanted.mistake_every_s),
            ),
            (
                "mandate_qos_wanted_mistake_duration_seconds",
                "Mistakes are to last at most so long, on average (T_M).",
                wanted.map(|wanted| wanted.mistake_lasts_ms / 1000.0),
            ),
            (
                "mandate_qos_interval_seconds",
                "Time between heartbeats of the leader (eta).",
                plan.map(|plan| plan.interval_ms / 1000.0),
            ),
            (
                "mandate_qos_margin_seconds",
                "How much later than expected a heartbeat may be (alpha).",
                plan.map(|plan| plan.margin_ms / 1000.0),
            ),
            ("mandate_qos_loss_ratio", "Share of heartbeats that did not arrive.", measured.loss),
            (
                "mandate_qos_delay_deviation_seconds",
                "Standard deviation of the delay of heartbeats.",
                measured.delay_sd_ms.map(|ms| ms / 1000.0),
            ),
            (
                "mandate_qos_watched_seconds",
                "How long leaders were watched.",
                Some(measured.watched_s),
            ),
            (
                "mandate_qos_mistakes",
                "How often a leader that was up was suspected.",
                Some(measured.mistakes as f64),
            ),
            (
                "mandate_qos_mistake_recurrence_seconds",
                "Mean time between mistakes (T_MR).",
                measured.mistake_every_s,
            ),
            (
                "mandate_qos_mistake_duration_seconds",
                "Mean duration of a mistake (T_M).",
                measured.mistake_lasts_ms.map(|ms| ms / 1000.0),
            ),
            (
                "mandate_qos_detections",
                "How many crashes of a leader were noticed.",
                Some(measured.detections as f64),
            ),
            (
                "mandate_qos_detection_seconds",
                "Longest time from the last sign of life of a leader that crashed to its suspicion (T_D).",
                measured.detection_max_ms.map(|ms| ms / 1000.0),
            ),
        ];
        figures.into_iter().filter_map(|(name, help, value)| Some((name, help, value?))).collect()
    }
}

impl WantedDocument {
    fn new(bounds: &Bounds) -> Self {
        WantedDocument {
            detect_ms: ms(bounds.detect()),
            mistake_every_s: bounds.mistake_every().as_secs_f64(),
            mistake_lasts_ms: ms(bounds.mistake_lasts()),
        }
    }
}

impl InForceDocument {
    fn new(watched: &Watched) -> Self {
        InForceDocument { interval_ms: ms(watched.interval), margin_ms: ms(watched.margin) }
    }
}
