//! Shards over the memory engine and the memory log.

mod bed;
mod power;
mod ranges;
mod refusals;
mod restart;
mod writes;
