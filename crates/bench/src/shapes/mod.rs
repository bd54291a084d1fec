//! The query shapes of `bench reql`, typical of applications.
//!
//! `shape` defines the queries and the expected responses, `table` creates the tables, `workload` sends the queries over
//! many connections, `quiescence` waits until the servers have no background work.

pub mod quiescence;
pub mod shape;
pub mod table;
pub mod workload;
