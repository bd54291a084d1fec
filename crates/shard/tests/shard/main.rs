//! Tests of shards over the memory engine and the memory log.

#![allow(clippy::unwrap_used)]

mod bed;
mod copies;
mod history;
mod indexes;
mod power;
mod ranges;
mod refusals;
mod restart;
mod seal;
mod writes;
