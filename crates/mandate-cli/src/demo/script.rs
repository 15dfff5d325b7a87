//! The demo without anyone at the keys: what befalls the group, in order.
//!
//! Every scene waits for what it is to show, with a bound, so that the script also is a test: if the group did not
//! do what it should, the demo fails.

use std::time::Duration;

use anyhow::Context;
use mandate_proto::identity::MemberId;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::controller::{Act, Order, Scene};

/// The longest that a group may take to settle, on a host that is busy with other things.
const BOUND: Duration = Duration::from_secs(60);

/// Scenes, and so pauses, in the script.
const SCENES: u32 = 8;

struct Script {
    scene: watch::Receiver<Scene>,
    orders: mpsc::Sender<Order>,
    /// Between the beginnings of two scenes, at least.
    beat: Duration,
    next: Instant,
}

/// Plays the script; it takes about that long, or longer if the group does.
pub(super) async fn play(
    scene: watch::Receiver<Scene>,
    orders: mpsc::Sender<Order>,
    length: Duration,
) -> anyhow::Result<()> {
    let beat = length / SCENES;
    let mut script = Script { scene, orders, beat, next: Instant::now() + beat };
    for fault in [Act::Kill, Act::CutOff, Act::Pause] {
        let leader = script.settled().await?;
        script.order(leader, fault).await?;
        script.led_by("another leads", |next| next != leader).await?;
        script.rest().await;
        script.order(leader, Act::Revive).await?;
    }
    let leader = script.settled().await?;
    let (busy, figures) = {
        let scene = script.scene.borrow();
        let follower = scene.members.iter().rev().find(|member| member.id != leader);
        let follower = follower.context("there is more than one member")?;
        (follower.id, follower.figures)
    };
    script.order(busy, Act::busy(figures)).await?;
    script.led_by("the leader has moved to where the requests are", |next| next == busy).await?;
    script.rest().await;
    Ok(())
}

impl Script {
    /// Waits until all follow one leader, and it is time for the next scene; who leads.
    async fn settled(&mut self) -> anyhow::Result<MemberId> {
        self.rest().await;
        let all_follow = |scene: &Scene| {
            let follows = |leader: &Option<String>| leader.is_some() && *leader == scene.leader;
            scene.leader.is_some() && scene.members.iter().all(|member| follows(&member.leader))
        };
        let settled = timeout(BOUND, self.scene.wait_for(all_follow)).await;
        let scene =
            settled.with_context(|| format!("not within {BOUND:?}: all follow one leader"))??;
        let leader = scene.leader.as_ref().context("all follow one")?;
        Ok(leader.parse()?)
    }

    async fn led_by(
        &mut self,
        what: &str,
        is_wanted: impl Fn(MemberId) -> bool,
    ) -> anyhow::Result<()> {
        let is_so = |scene: &Scene| {
            let leader = scene.leader.as_ref().and_then(|leader| leader.parse().ok());
            leader.is_some_and(&is_wanted)
        };
        let led = timeout(BOUND, self.scene.wait_for(is_so)).await;
        led.with_context(|| format!("not within {BOUND:?}: {what}"))??;
        Ok(())
    }

    async fn order(&mut self, member: MemberId, act: Act) -> anyhow::Result<()> {
        self.orders.send(Order { member, act }).await.context("the demo has ended")
    }

    /// Waits for the next beat: something to look at needs time.
    async fn rest(&mut self) {
        sleep_until(self.next).await;
        self.next = Instant::now() + self.beat;
    }
}
