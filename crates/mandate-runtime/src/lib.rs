//! Drives Mandate's protocols on tokio.
//!
//! A protocol is a [machine](mandate_proto::machine): it takes inputs and time, and returns effects. One
//! [driver](driver::Driver) is the loop of every engine; a [backend](driver::Backend) carries effects out and waits for what
//! arrives. The backend of the protocols between members is here: it writes what is to be written, sends what is to be
//! sent over a [`Transport`](transport::Transport) when that is on disk, and tells the application.
//! What the application holds is an [`Election`]: a state to watch, [`lead`](Election::lead), resignation
//! and transfer, events with their reasons, and a [`Mandate`] to check.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`election`] | the handle |
//! | [`start`] | what a member starts from |
//! | [`driver`] | the loop of every engine, and what an engine does for it |
//! | [`event`] | what an application is told |
//! | [`protocol`] | which protocol a group speaks |
//! | [`mandate`] | the leader's proof, computed at the call |
//! | [`engine_side`] | the engine's side of the handle: where another engine begins |
//! | [`requests`] | what is asked of the leader by way of any member |
//! | [`resigner`] | gives mandates back, and can do nothing else |
//! | [`clock`] | a clock that counts suspension |
//! | [`disk`] | how its writes go, for those who monitor a member |
//! | [`durable`] | what must not be forgotten, in one small file |
//! | [`transport`] | what carries messages, as the driver sees it |

pub mod clock;
pub mod disk;
pub mod driver;
pub mod durable;
pub mod election;
mod ends;
pub mod engine_side;
pub mod event;
pub mod mandate;
mod peer;
pub mod protocol;
pub mod requests;
pub mod resigner;
pub mod start;
pub mod transport;

pub use election::{ChangeError, Election, ElectionState, LeadError, Observer, Status};
pub use engine_side::EngineSide;
pub use event::Event;
pub use mandate::{Loan, Mandate};
pub use protocol::Protocol;
pub use requests::{LeaderRequestError, LeaderRequestServer};
pub use resigner::Resigner;
pub use start::{Prepared, Setup, Start, StartError};
