//! How many partitions the topic has by now.
//!
//! The number is fixed as long as a group exists, and nobody enforces that: a topic can be expanded, or deleted and made anew by another
//! program with a size of its own. Which roles a partition stands for rests on the number, so it is compared at every look at the group's marks
//! and from time to time. (A topic that was made anew with the same size shows by its offsets, which begin again. Its id would
//! tell at once; the client library does not hand it out.)

use std::time::Duration;

use mandate_proto::neli::Input;
use rdkafka::consumer::Consumer;

use super::context::{Context, Happened};

/// Between two looks while nothing happens: an operator who has expanded a topic should read of it soon, and it is one small request.
pub(super) const EVERY: Duration = Duration::from_secs(10);

/// The bound on a look that nobody waits for, except a member that ends meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Looks, and tells the member; 0 if there is no such topic, `None` if the broker does not say.
pub(super) fn look(
    consumer: &impl Consumer<Context>,
    topic: &str,
    patience: Duration,
) -> Option<u32> {
    let metadata = consumer.fetch_metadata(Some(topic), patience).ok()?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let partitions = found.map_or(0, |found| found.partitions().len() as u32);
    consumer.context().push(Happened::Tell(Input::Sized { partitions }));
    Some(partitions)
}
