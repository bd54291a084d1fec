//! The commands, one file each: the flags, and the run from connecting to the printed result.

pub mod analytic;
mod arguments;
pub mod baseline;
pub mod blocks;
pub mod explain;
pub mod feeds;
pub mod hop;
pub mod idle;
pub mod report;
pub mod reql;
pub mod sweep;
pub mod units;
pub mod wiki;
pub mod wiki_rows;
pub mod ycsb_load;
pub mod ycsb_properties;
pub mod ycsb_run;
