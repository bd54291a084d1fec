//! The catalog: databases, tables, servers and users, replicated to every server as the table of group zero.
//!
//! [`Catalog`] is one immutable version of it. [`CatalogView`] holds the version that this node shows; `node` replaces it
//! whenever the log has applied rows of the catalog. [`CatalogClient`] changes the catalog from any node: a change is worked
//! out on the version shown here and committed by the leader of group zero if nothing changed in between.

mod accounts;
pub(crate) mod change;
mod client;
pub(crate) mod display_names;
mod draft;
mod handles;
mod identity;
mod leader;
pub(crate) mod placement;
mod replica;
pub(crate) mod row;
mod schema;
mod servers;
mod shard_placer;
mod snapshot;
mod view;

pub use accounts::Accounts;
pub(crate) use client::CatalogClient;
pub(crate) use draft::Draft;
pub(crate) use handles::Handles;
pub use identity::Identity;
pub use replica::CatalogReplica;
pub use schema::{Schema, TableOptions};
pub use servers::Servers;
pub(crate) use servers::{VOTERS_MAX, fill_voters};
pub(crate) use shard_placer::ShardPlacer;
pub use shard_placer::ShardsWanted;
pub(crate) use snapshot::table_by_id;
pub use snapshot::{Catalog, Database};
pub(crate) use view::CatalogView;
pub use view::CatalogWatcher;
