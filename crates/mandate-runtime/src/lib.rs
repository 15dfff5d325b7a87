//! Drives Mandate's protocols on tokio.
//!
//! A protocol is a [machine](mandate_proto::machine): it takes inputs and time, and returns effects. The
//! driver here is its loop with one sleep: it writes what is to be written and waits until that is on
//! disk, sends what is to be sent over a [`Transport`](transport::Transport), and tells the application.
//! What the application holds is an [`Election`]: a state to watch, [`lead`](Election::lead), resignation
//! and transfer, events with their reasons, and a [`Mandate`] to check.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`election`] | the handle |
//! | [`event`] | what an application is told |
//! | [`protocol`] | which protocol a group speaks |
//! | [`mandate`] | the leader's proof, computed at the call |
//! | [`office`] | the engine's side of the handle: where another engine begins |
//! | [`resigner`] | gives mandates back, and can do nothing else |
//! | [`clock`] | a clock that counts suspension |
//! | [`disk`] | how its writes go, for whoever watches over a member |
//! | [`durable`] | what must not be forgotten, in one small file |
//! | [`transport`] | what carries messages, as the driver sees it |

pub mod clock;
pub mod disk;
mod driver;
pub mod durable;
pub mod election;
pub mod event;
pub mod mandate;
pub mod office;
pub mod protocol;
pub mod resigner;
mod seat;
pub mod transport;

pub use election::{
    Election, ElectionState, LeadError, Observer, Prepared, Setup, Start, StartError, Status,
};
pub use event::Event;
pub use mandate::{Loan, Mandate};
pub use office::Office;
pub use protocol::{Promise, Protocol};
pub use resigner::Resigner;
