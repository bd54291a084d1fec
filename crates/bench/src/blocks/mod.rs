//! BigchainDB's write load: blocks of its first versions, and the queries that insert them.

pub mod block;
pub mod material;
pub mod placement;
pub mod published_tests;
pub mod transaction;
pub mod units;
