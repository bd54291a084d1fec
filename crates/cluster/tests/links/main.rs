//! Links between nodes: in a seeded simulation of a bad network, and over real sockets.

#![allow(clippy::unwrap_used)]

mod real;
mod simulated;
mod world;
