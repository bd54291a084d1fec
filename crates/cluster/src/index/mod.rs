//! Secondary indexes of tables: changed in the catalog by [`Indexes`], built beside everything else by [`IndexThread`].

mod admin;
mod builder;
mod builds;

pub use admin::{IndexProgress, Indexes, NoLeader, Overwrite};
pub use builder::{BuildStep, IndexThread, IndexWork};
