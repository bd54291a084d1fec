//! Shards over the memory engine and the memory log.

mod bed;
mod ranges;
mod refusals;
mod restart;
mod writes;
