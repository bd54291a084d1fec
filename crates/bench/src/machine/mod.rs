//! Facts and counters of machines: the client's processor time, the servers' use of processor, memory and disk, and a
//! description of the machine. [`cgroup`] makes nodes equally fast; [`guarded_process`] and [`cleanup`] clean up at the end.

pub mod batch_scheduling;
pub mod cgroup;
pub mod cleanup;
pub mod facts;
pub mod guarded_process;
pub mod host_cpu;
mod http;
mod listener;
pub mod memory_group;
pub mod openmetrics;
pub mod own_process;
pub mod page_cache;
pub mod process;
pub mod random_reads;
pub mod watch;
