//! Secondary indexes of tables: [`Indexes`] creates, renames and drops them in the catalog, reports their progress, and
//! deletes the entries of dropped ones (`admin`). [`IndexThread`] builds the indexes of the shards that this node
//! leads, in the background (`builder`), in steps of [`IndexWork`]. `builds` has the start of each build.
//!
//! Locks: an index changes under `CatalogClient::lock_changes`, as every change of the catalog. The mutex of `Builds`
//! is held for moments.

mod admin;
mod builder;
mod builds;

pub use admin::{IndexProgress, Indexes, NoLeader, Overwrite};
pub use builder::{BuildStep, IndexThread, IndexWork};
