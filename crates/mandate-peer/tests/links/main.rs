//! Links over real sockets on the loopback address, with certificates made for each test.

mod authority;
mod exchange;
mod flood;
mod goodbye;
mod group;
mod hostile;
mod latency;
mod members;
mod process;
mod raw;
mod refusals;
mod relay;
mod releases;
mod resets;
mod restarts;
mod roster;
mod twins;
