//! Experiments: the papers' evaluations, reproduced, with what was measured beside what they say.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`arrivals`] | traces of heartbeats: files, recording from simulated links, replay |
//! | [`nfd_l`] | the evaluation of NFD-L (quality of service of a leader election) |
//! | [`rehearsal`] | elections among the servers of a topology, in virtual time |
//! | [`relay`] | relays between real processes on one host, to cut and slow their ways |
//! | [`rivals`] | what people elect leaders with today, struck and measured like ours |
//! | [`topology`] | where servers are and how far apart |
//! | [`wan`] | a wide-area network on one machine, for real processes |

pub mod arrivals;
pub mod nfd_l;
pub mod rehearsal;
pub mod relay;
pub mod rivals;
pub mod topology;
pub mod wan;
