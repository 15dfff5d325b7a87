//! POLE: election by application scores (Becker, Junqueira, Serafini 2011).
//!
//! What is here is the *selection* of a leader (Algorithm 1): members that have lost their leader
//! exchange scores and settle on the best. Detection of the loss is
//! [`detector`](crate::detector)'s, scores are [`oracle`](crate::oracle)'s.

pub mod selection;
