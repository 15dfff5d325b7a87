//! An oracle of the application's own: a whole score, most important component first, instead of one number.
//!
//! The group's oracle says where it counts. `application, application, latency/10ms` has two components of it decide before the latency
//! does; all members have the same line. A member whose application has not said as many components is no candidate yet.

use std::time::Duration;

use mandate_proto::oracle::{Measure, Oracle, View};
use mandate_proto::score::Score;
use tokio::time::{MissedTickBehavior, interval};

use crate::error::Error;
use crate::member::{Member, WeakMember};

/// Scores a member by what it has measured and what the application knows of it.
pub trait Scorer: Send + 'static {
    /// This member's score now, bigger is better; `None` while that is not known.
    fn score(&mut self, view: &View) -> Option<Score>;
}

impl<F: FnMut(&View) -> Option<Score> + Send + 'static> Scorer for F {
    fn score(&mut self, view: &View) -> Option<Score> {
        self(view)
    }
}

impl Member {
    /// Has the application score this member from now on, so often. Log position and request rate stay as they were told.
    ///
    /// ```no_run
    /// # async fn example(member: mandate::Member) -> Result<(), mandate::Error> {
    /// use mandate::{Score, View};
    /// // With `oracle = "application, application"`: healthy members first, of those the one with more memory.
    /// member.score_by(std::time::Duration::from_secs(1), |_: &View| Score::new(&[1.0, 64.0]).ok())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn score_by(&self, every: Duration, scorer: impl Scorer) -> Result<(), Error> {
        let asks = |oracle: &Oracle| {
            oracle.terms().iter().any(|term| term.measure == Measure::Application)
        };
        match self.oracle() {
            Some(oracle) if asks(oracle) => {
                tokio::spawn(keep_scoring(self.downgrade(), every, scorer));
                Ok(())
            }
            oracle => Err(Error::NotAsked(oracle.map(ToString::to_string))),
        }
    }
}

async fn keep_scoring(member: WeakMember, every: Duration, mut scorer: impl Scorer) {
    let mut ticks = interval(every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(member) = member.upgrade() else { return };
        let Some(status) = member.election().status().await else { continue };
        // Engines without a view have no oracle, and none is scored there.
        let Some(view) = status.view else { continue };
        member.election().set_score(scorer.score(&view));
    }
}
