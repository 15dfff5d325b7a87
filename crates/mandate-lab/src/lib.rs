//! Experiments: the papers' evaluations, reproduced, with what was measured beside what they say.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`arrivals`] | traces of heartbeats: files, recording from simulated links, replay |
//! | [`load`] | clients beside servers, and what they saw |
//! | [`nfd_l`] | the evaluation of NFD-L (quality of service of a leader election) |
//! | [`picture`] | results as diagrams, SVG and PNG |
//! | [`pole`] | the evaluation of POLE (leaders by application scores), on a replicated service |
//! | [`rehearsal`] | elections among the servers of a topology, in virtual time |
//! | [`relay`] | relays between real processes on one host, to cut and slow their ways |
//! | [`rivals`] | what people elect leaders with today, struck and measured like ours |
//! | [`topology`] | where servers are and how far apart |
//! | [`wan`] | a wide-area network on one machine, for real processes |

pub mod arrivals;
pub mod load;
pub mod nfd_l;
pub mod picture;
pub mod pole;
pub mod rehearsal;
pub mod relay;
pub mod rivals;
pub mod topology;
pub mod wan;
