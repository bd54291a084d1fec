//! What machines say about themselves: the client's processor time, the servers' use of processor,
//! memory and disk, and what the machine is.

pub mod facts;
mod http;
mod listener;
pub mod openmetrics;
pub mod own;
pub mod process;
pub mod watch;
