//! What drivers say to each other. The service carries it, over whatever it speaks itself.

use std::error::Error;
use std::future::Future;

use mandate_proto::identity::MemberId;
use serde::{Deserialize, Serialize};

use crate::direction::Report;

/// What the winner of an election asks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The term of the mandate under which it is asked: a lower one than any heard before is refused.
    pub term: u64,
    /// What is asked.
    pub order: Order,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// How far are you? Raft is led, or is not, as far as the asker knows.
    Report {
        /// Whether it is.
        led: bool,
    },
    /// Hold no lease for the former leader any more, unless it is `to`, which is to be elected.
    Release {
        /// The member that is to be elected.
        to: MemberId,
    },
    /// Have yourself elected.
    Elect,
    /// Hold writes, bring the successor up to date, and lead no more.
    StandAside {
        /// The successor.
        to: MemberId,
    },
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// How far the member is.
    Report(Report),
    /// It is done.
    Done,
    /// It is not, and nothing has changed.
    Refused(Refusal),
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The member's own election does not name the asker as the leader of that term: it has not heard of it yet, or it
    /// never will.
    NotElected,
    /// A later mandate is known.
    Superseded {
        /// Its term.
        term: u64,
    },
    /// There is nothing to stand aside from.
    NotLeading,
    /// Writes that had begun did not end in time, or the successor did not get up to date.
    Busy,
    /// That is no member, or the member itself.
    NoSuchMember,
    /// Raft does not run any more.
    Stopped,
}

/// Carries requests between the drivers of a service's members.
///
/// It may lose them or fail, and need not keep their order. It should answer or fail within seconds; the driver
/// does not wait longer than its configuration says. The receiving side hands a request to
/// [`RaftDriver::answer`](crate::RaftDriver::answer), with the member that sent it. It must know who that is: the connection is
/// authenticated (TLS with certificates, for instance). A stranger that could pass for a member could have leaders
/// elected and deposed.
pub trait Messenger: Send + Sync + 'static {
    /// Asks a member.
    fn ask(
        &self,
        to: MemberId,
        request: Request,
    ) -> impl Future<Output = Result<Answer, Box<dyn Error + Send + Sync>>> + Send;
}
