//! What a ledger must offer.

use std::future::Future;

use mandate_proto::identity::Incarnation;
use mandate_proto::neli::{Grants, Input, LedgerPlan, LedgerRequest, RequestId};

/// Partitions that are assigned to the members of a group.
pub trait Ledger {
    /// A member's side of it.
    type Member: LedgerClient;

    /// What it gives its members: read from it, never assumed.
    fn grants(&self) -> Grants;

    /// A member's side, for a process with this incarnation that goes by this plan. It is in no group before it asks to join.
    fn member(
        &self,
        incarnation: Incarnation,
        plan: &LedgerPlan,
    ) -> Result<Self::Member, LedgerError>;
}

/// A member's side of a ledger: what a [machine](mandate_proto::neli::Member) asks for goes in, and what it
/// is to be told comes out.
pub trait LedgerClient: Send + 'static {
    /// Asks for something. Never blocks; what becomes of it comes by [`next`](LedgerClient::next).
    fn ask(&mut self, request: LedgerRequest);

    /// Nobody waits for this request any more.
    fn abandon(&mut self, id: RequestId);

    /// The next thing that the machine is to be told. Dropping the future loses nothing. An error is
    /// fatal: nothing more comes.
    fn next(&mut self) -> impl Future<Output = Result<Input, LedgerError>> + Send;

    /// Ends, in good order if the ledger answers. The caller may stop waiting.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Why a ledger cannot be used. What can pass by itself is no error here, but an outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// A name that the ledger does not take.
    #[error(
        "{0:?} is no name for a topic: up to 249 letters, digits, dots, hyphens and underscores, and not . or .."
    )]
    Topic(String),
    /// A session that the broker does not grant.
    #[error(
        "the broker grants sessions from {shortest_ms} ms to {longest_ms} ms, not {wanted_ms} ms: ask for one of those, or \
         change group.min.session.timeout.ms or group.max.session.timeout.ms on the broker"
    )]
    Session {
        /// What was asked for.
        wanted_ms: u64,
        /// `group.min.session.timeout.ms`.
        shortest_ms: u64,
        /// `group.max.session.timeout.ms`.
        longest_ms: u64,
    },
    /// The same, of a broker that does not tell its limits.
    #[error(
        "the broker does not grant sessions of {wanted_ms} ms: ask for one within its group.min.session.timeout.ms and \
         group.max.session.timeout.ms (6 s will do on a broker that nobody has tuned), or change those"
    )]
    SessionRefused {
        /// What was asked for.
        wanted_ms: u64,
    },
    /// What nothing can be promised without, and the broker does not tell.
    #[error(
        "the broker does not tell its {0}, and decides it alone: allow DescribeConfigs on the cluster, or use the classic \
         protocol"
    )]
    Untold(&'static str),
    /// A setting that the engine decides.
    #[error("{0} is decided by the engine, and cannot be set")]
    Owned(String),
    /// A way to prove who one is for which nothing here can get a token.
    #[error(
        "sasl.mechanism=OAUTHBEARER needs a token, and this program cannot get one: it has no OpenID Connect, no AWS IAM and \
         no Microsoft Entra. Use SASL with PLAIN or SCRAM, or client certificates"
    )]
    NoToken,
    /// A setting that the client does not know or take.
    #[error("the client does not take a setting: {0}")]
    Setting(String),
    /// There is no such topic, and it was not asked to be made.
    #[error("there is no topic {0}: create it, or let it be created")]
    NoTopic(String),
    /// A topic of another size.
    #[error(
        "topic {topic} has {found} partitions, not {wanted}: the number is fixed for the life of a group"
    )]
    Partitions {
        /// The topic's name.
        topic: String,
        /// What there is.
        found: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// A topic with a setting on which nothing can rest.
    #[error("topic {topic} has {setting}={found}, and needs {wanted}")]
    TopicSetting {
        /// The topic's name.
        topic: String,
        /// The setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// The broker could not be asked.
    #[error("could not {what}: {reason}")]
    Broker {
        /// What was tried.
        what: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// No broker answers: it may not be there yet.
    #[error("could not reach the broker: {reason}")]
    Unreachable {
        /// What went wrong.
        reason: String,
    },
    /// Another process has taken this member's static name.
    #[error(
        "another process has joined the group as {0} (group.instance.id), and replaces this one for good: give each process a \
         name of its own"
    )]
    Replaced(String),
    /// The client gave up for good.
    #[error("the client has failed for good: {0}")]
    Fatal(String),
}

impl LedgerError {
    /// Whether it stays, however long one waits and tries again.
    pub fn is_final(&self) -> bool {
        !matches!(self, LedgerError::Unreachable { .. })
    }
}
