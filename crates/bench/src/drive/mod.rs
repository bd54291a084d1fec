//! Drives many connections from a few threads: each thread owns its connections, waits for all of
//! them with one epoll, and pays two system calls per operation.
//!
//! `session` starts and ends a run, `worker` is one thread, `connection` one socket, `arrivals` the
//! clock of an open loop, `workload` what is asked and how answers are judged.

pub mod arrivals;
pub mod clock;
mod connection;
pub mod session;
mod worker;
pub mod workload;
