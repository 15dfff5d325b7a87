//! Whether the broker can keep what it acknowledges: what every promise rests on.
//!
//! Terms are offsets of the topic, and the marks that tell who led are in `__consumer_offsets`. One copy of either is lost with its disk, and an
//! unclean election gives terms out twice. None of that is refused, because a laboratory has one broker; but it is said.

use std::collections::HashMap;

use rdkafka::admin::ResourceSpecifier;

use super::KafkaConfig;
use super::broker::{Admin, Copies, copies, describe};

/// Where offset commits are kept.
const OFFSETS: &str = "__consumer_offsets";

/// Copies of a topic that is made, if there are brokers for them.
const COPIES: u32 = 3;

/// How many copies to make on so many brokers.
pub(super) fn replicas(brokers: u32) -> u32 {
    brokers.clamp(1, COPIES)
}

/// How many of them have to have a record before it is acknowledged: one may be missing.
pub(super) fn in_sync(replicas: u32) -> u32 {
    if replicas > 2 { 2 } else { 1 }
}

/// Warns of what the topic or the coordinator's own may lose.
pub(super) async fn check(admin: &Admin, config: &KafkaConfig) {
    for topic in [config.topic.as_str(), OFFSETS] {
        let Ok(Some(found)) = copies(config, topic).await else { continue };
        let settings = describe(admin, ResourceSpecifier::Topic(topic)).await.ok().flatten();
        for concern in concerns(topic, found, settings.as_ref()) {
            tracing::warn!("{concern}");
        }
    }
}

fn concerns(
    topic: &str,
    Copies { brokers, replicas }: Copies,
    settings: Option<&HashMap<String, String>>,
) -> Vec<String> {
    let mut concerns = Vec::new();
    let setting = |name| settings.and_then(|settings| settings.get(name)).map(String::as_str);
    // With one broker there is nothing to be had.
    if brokers > 1 && replicas == 1 {
        concerns.push(format!(
            "topic {topic} has one copy on a cluster of {brokers} brokers: if that one is lost, terms begin again. Give it \
             {} with kafka-reassign-partitions",
            self::replicas(brokers)
        ));
    } else if brokers > 2 && setting("min.insync.replicas") == Some("1") {
        concerns.push(format!(
            "topic {topic} has min.insync.replicas=1: what one broker alone has is acknowledged, and lost with it. Set it to 2"
        ));
    }
    if setting("unclean.leader.election.enable") == Some("true") {
        concerns.push(format!(
            "topic {topic} has unclean.leader.election.enable=true: what was acknowledged may be lost, and terms given out \
             twice. Set it to false"
        ));
    }
    concerns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(brokers: u32, replicas: u32, settings: &[(&str, &str)]) -> String {
        let settings: HashMap<_, _> =
            settings.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        concerns("roles", Copies { brokers, replicas }, Some(&settings)).join("; ")
    }

    #[test]
    fn topics_are_made_with_as_many_copies_as_there_are_brokers_and_three_at_most() {
        assert_eq!([0, 1, 2, 3, 9].map(replicas), [1, 1, 2, 3, 3]);
        assert_eq!([1, 2, 3].map(in_sync), [1, 1, 2]);
    }

    #[test]
    fn what_may_be_lost_is_named_with_what_to_do() {
        let sound = [("min.insync.replicas", "2"), ("unclean.leader.election.enable", "false")];
        assert_eq!(of(3, 3, &sound), "");
        assert_eq!(of(1, 1, &[("min.insync.replicas", "1")]), "", "a laboratory");
        let one = of(3, 1, &sound);
        assert!(one.contains("one copy on a cluster of 3 brokers") && one.contains("Give it 3"));
        assert!(of(3, 3, &[("min.insync.replicas", "1")]).contains("min.insync.replicas=1"));
        let unclean = [("unclean.leader.election.enable", "true")];
        assert!(of(1, 1, &unclean).contains("unclean.leader.election.enable=true"));
        assert!(concerns("roles", Copies { brokers: 3, replicas: 1 }, None).len() == 1);
    }
}
