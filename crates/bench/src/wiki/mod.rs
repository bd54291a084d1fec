//! Article rows, as in Terark's report of 2017: rows from a file of tab-separated columns, the queries about them, and a
//! maker of such files from texts on this machine.
//!
//! Source: Terark, "YCSB on Wikipedia", and its `FileWorkload`.

pub mod block_mark;
pub mod columns;
pub mod keys;
pub mod loading;
pub mod maker;
pub mod published;
pub mod reading;
pub mod rows;
pub mod texts;
pub mod xz_mark;
