//! Links between nodes: in a seeded simulation of a bad network, and over real sockets.

mod real;
mod simulated;
mod world;
