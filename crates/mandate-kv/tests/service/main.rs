//! The key-value service as real processes on loopback, under every fault.

mod cluster;
mod crashes;
mod disks;
mod figures;
mod histories;
mod hostile;
mod moves;
mod quorum;
