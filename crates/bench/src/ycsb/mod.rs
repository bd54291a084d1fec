//! YCSB's core workload against the tables and queries of its RethinkDB binding.
//!
//! Generators, hashing, constants and names come from YCSB, so that its workload files have the same meaning here.

pub mod acknowledged;
pub mod chooser;
pub mod keys;
pub mod lengths;
pub mod loading;
pub mod operations;
pub mod properties;
pub mod queries;
pub mod settings;
pub mod summary;
pub mod table;
pub mod values;
pub mod zipfian;
