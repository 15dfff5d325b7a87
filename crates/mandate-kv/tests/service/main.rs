//! The key-value service as real processes on loopback, struck in every way.

mod cluster;
mod crashes;
mod disks;
mod figures;
mod histories;
mod hostile;
mod moves;
mod quorum;
