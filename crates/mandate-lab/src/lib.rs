//! Experiments: the papers' evaluations, reproduced, with what was measured beside what they say.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`load`] | clients beside servers, and what they saw |
//! | [`nfd_l`] | the evaluation of NFD-L (quality of service of a leader election) |
//! | [`picture`] | results as diagrams, SVG and PNG |
//! | [`pole`] | the evaluation of POLE (leaders by application scores), on a replicated service |
//! | [`local_group`] | elections among the servers of a topology, in virtual time |
//! | [`rivals`] | what people elect leaders with today, put under the same faults and measured like ours |
//! | [`wan`] | a wide-area network on one machine, for real processes |

pub mod load;
pub mod local_group;
pub mod nfd_l;
pub mod picture;
pub mod pole;
pub mod rivals;
pub mod wan;
