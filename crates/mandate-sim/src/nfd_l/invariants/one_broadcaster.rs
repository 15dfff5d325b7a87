//! One broadcaster (section 3.1): in steady state the group sends N-1 messages an interval.

use core::time::Duration;

/// The name under which it is reported.
pub(crate) const NAME: &str = "one broadcaster";

/// Checks how many messages a group of `size` sent in `elapsed`, which must be the leader's
/// alone: one more or less at the edges.
pub(crate) fn check(
    messages: u64,
    size: usize,
    interval: Duration,
    elapsed: Duration,
) -> Result<(), String> {
    let beats = elapsed.as_secs_f64() / interval.as_secs_f64();
    let each = size as u64 - 1;
    // Clocks may be a tenth of a per cent off, and wake-ups a little late.
    let least = (beats * 0.99 - 1.0).floor() as u64 * each;
    let most = (beats * 1.01 + 1.0).ceil() as u64 * each;
    if (least..=most).contains(&messages) && messages.is_multiple_of(each) {
        return Ok(());
    }
    Err(format!("{messages} messages in {beats:.1} intervals, not about {each} in each"))
}
