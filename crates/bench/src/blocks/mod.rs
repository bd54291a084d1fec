//! BigchainDB's write loop: blocks of its era, and the queries that insert them.

pub mod block;
pub mod material;
pub mod placement;
pub mod transaction;
pub mod trials;
pub mod units;
