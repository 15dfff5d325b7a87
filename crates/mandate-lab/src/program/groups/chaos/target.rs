//! Where chaos happens: what faults can hit beside the members' processes.

use std::net::SocketAddr;
use std::time::Duration;

use mandate_conformance::judge::HistoryViolation;
use mandate_conformance::subject::EngineUnderTest;
use mandate_proto::identity::{MemberId, Term};

use super::storm::{Kind, Phase, Strike};

/// Partitions that members lead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) partitions: u32,
    /// After this long without a sign of life a member is replaced.
    pub(super) session: Duration,
}

/// What a group runs on: a network and disks, or a database.
pub(super) trait ChaosTarget: EngineUnderTest {
    /// What can go wrong here, and how often of all.
    fn kinds(&self) -> Vec<(Kind, usize)>;

    /// Lets something go wrong, at or near this member; what, for people.
    fn inflict(&self, fault: &Strike, member: MemberId) -> anyhow::Result<String>;

    /// Where a member is found that may be added to the group, if members come and go here.
    fn address(&self, _member: MemberId) -> Option<SocketAddr> {
        None
    }

    /// What a member has on its disk is gone. It does not run.
    fn lose_disk(&self, member: MemberId) -> anyhow::Result<()> {
        anyhow::bail!("{member} has no disk here")
    }

    /// Members that an older program runs.
    fn older(&self) -> Vec<MemberId> {
        Vec::new()
    }

    /// Has this program run a member, from its next start on.
    fn upgrade(&self, _member: MemberId) {}

    /// Everything is as it should be, but for processes of members.
    fn heal(&self) -> anyhow::Result<()>;

    /// For how long there may be no leader at most in a phase whose faults and healing took so long, if anything
    /// is promised of that.
    fn longest_gap(&self, _phase: &Phase, _took: Duration) -> Option<Duration> {
        None
    }

    /// How many disjoint groups the members are of, in turn, each with a leader.
    fn groups(&self) -> u32 {
        1
    }

    /// What is watched besides acts, where members lead many partitions.
    fn watched(&self) -> Option<Watched> {
        None
    }

    /// Looks at what leaders have written here, if they do: the highest term. What must not be goes to
    /// [`violations`](ChaosTarget::violations).
    fn look(&self) -> anyhow::Result<Option<Term>> {
        Ok(None)
    }

    /// What was written here and must not have been, of all that was looked at.
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether a violation is what must be expected of what has happened here.
    fn expects(&self, _violation: &HistoryViolation) -> bool {
        false
    }

    /// What members should have logged since the last call and have not, or should not have and have: given what they did
    /// log since then. Call it when a phase is over.
    fn untold(&self, _logged: &str) -> Option<String> {
        None
    }

    /// How much was written here, of all that was looked at.
    fn writes(&self) -> u64 {
        0
    }
}
