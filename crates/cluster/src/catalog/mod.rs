//! The catalog: databases, tables, servers and users, replicated to every server as the table of group zero.
//!
//! - [`Catalog`] (`snapshot`): one immutable version of the catalog.
//! - [`CatalogView`] (`view`): the version that this node shows. `node` replaces it whenever the log has applied rows
//!   of the catalog. Its lock, a leaf, is held for the moment in which a version is replaced, and while a thread checks
//!   whether the version that it waits for is shown.
//! - [`CatalogClient`] (`client`, `leader`, `change`): reads and changes the catalog from any node. A change is
//!   computed on the version shown here, and the leader of group zero commits it if that is still the current version.
//!   Its lock has the rank `CatalogChange` in `locks`, the first one, and allows one change at a time on this node.
//! - [`Draft`] and `row`: the rows that a change writes, and their stored form.
//! - [`Schema`], [`Accounts`], [`Servers`]: changes to databases and tables, to users, and to servers.
//! - [`ShardPlacer`] and `placement`: choose the servers of a table's shards.
//! - [`CatalogReplica`], [`Identity`]: this server's replica of the catalog, and its identity on disk.
//! - [`Handles`]: the handles that the owners of later rooms are built from.
//! - [`StoredCatalog`]: the rows of the catalog without a running node.
//! - `display_names`: names of groups and servers for log lines and errors.

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
mod stored;
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
pub use shard_placer::DesiredShards;
pub(crate) use shard_placer::ShardPlacer;
pub(crate) use snapshot::table_by_id;
pub use snapshot::{Catalog, Database};
pub use stored::{StoredCatalog, StoredShard};
pub(crate) use view::CatalogView;
pub use view::CatalogWatcher;
