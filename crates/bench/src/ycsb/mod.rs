//! YCSB's core workload against the tables and queries of its RethinkDB binding.
//!
//! Generators, hashing, constants and names are YCSB's own, so that its workload files mean here
//! what they mean there.

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
