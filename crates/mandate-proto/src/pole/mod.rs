//! POLE: election by application scores (Becker, Junqueira, Serafini 2011).
//!
//! Two steps, each a machine of its own: [`selection`] (Algorithm 1), in which members that have
//! lost their leader exchange scores and settle on the best; and [`installation`], which the paper
//! leaves to the replicated service: promises of a quorum turn the one selected into a leader with
//! a term that nobody else holds and, where wanted, a lease. Detection of the loss is
//! [`detector`](crate::detector)'s, scores are [`oracle`](crate::oracle)'s. [`member`] joins them: it
//! is what a process runs.

pub mod installation;
pub mod member;
pub mod selection;
