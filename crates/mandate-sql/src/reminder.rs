//! What an operator is told about trouble that lasts: each reason at once, and then every half minute.
//!
//! Trouble often alternates. A standby takes a connection and refuses the first write, so that a member connects and
//! loses its connection several times a second. A log that remembers only the last line writes two lines a second then;
//! this remembers the last few.

use std::time::{Duration, Instant};

/// How often an operator is told the same.
const REMIND: Duration = Duration::from_secs(30);

/// So many reasons are remembered. More than alternate in practice.
const MAX_REASONS: usize = 8;

/// What was said lately.
#[derive(Debug, Default)]
pub(crate) struct Reminder {
    said: Vec<(Instant, String)>,
}

impl Reminder {
    /// Whether this reason is to be told now. It counts as told then.
    pub(crate) fn is_due(&mut self, reason: &str) -> bool {
        self.is_due_at(reason, Instant::now())
    }

    fn is_due_at(&mut self, reason: &str, now: Instant) -> bool {
        self.said.retain(|(when, _)| now.saturating_duration_since(*when) < REMIND);
        if self.said.iter().any(|(_, said)| said == reason) {
            return false;
        }
        if self.said.len() == MAX_REASONS {
            self.said.remove(0);
        }
        self.said.push((now, reason.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_alternate_are_told_once_each_in_half_a_minute() {
        let (mut reminder, start) = (Reminder::default(), Instant::now());
        let mut told = Vec::new();
        for step in 0..600_u32 {
            let reason = ["read-only", "broke"][step as usize % 2];
            if reminder.is_due_at(reason, start + Duration::from_millis(100) * step) {
                told.push((step, reason));
            }
        }
        assert_eq!(told, [(0, "read-only"), (1, "broke"), (300, "read-only"), (301, "broke")]);
    }

    #[test]
    fn reasons_without_end_take_bounded_room() {
        let (mut reminder, start) = (Reminder::default(), Instant::now());
        for number in 0..1000 {
            assert!(reminder.is_due_at(&format!("reason {number}"), start));
        }
        assert_eq!(reminder.said.len(), MAX_REASONS);
    }
}
