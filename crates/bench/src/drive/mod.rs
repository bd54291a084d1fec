//! Drives many connections from a few threads. Each thread owns its connections, waits for all of them with one epoll,
//! and makes two system calls per operation.
//!
//! `session` starts and ends a run, `worker` is one thread, `connection` one socket, `arrivals` the schedule of an open
//! loop, `workload` the operations and the checks of their responses.

pub mod arrivals;
pub mod clock;
pub(crate) mod connection;
pub mod session;
mod worker;
pub mod workload;
