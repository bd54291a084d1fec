//! Which server holds what, and how to reach it: the node, its catalog of databases and tables, and one handle for each
//! shard, local or remote.
//!
//! The crate is divided into rooms; each uses only those above it in this list:
//!
//! - `locks`: the order of the locks.
//! - `config`: databases, tables, shards, servers and users as the catalog describes them, as plain values.
//! - `error`: the errors of administrative changes and of opening a node.
//! - `events`: events of the log and of the links, which wait for the node's event loop; wakes threads that wait for a change
//!   of state.
//! - `rpc`: requests and responses between servers, and [`Peers`], through which they are sent.
//! - [`link`]: the connection between each two servers.
//! - `routing`: which replica leads each shard, and which replicas are open on this node.
//! - `catalog`: the catalog as this node shows it, and `CatalogClient`, through which any node changes it.
//! - `copy`: copies of a replica's rows, given and received.
//! - `index`: creating, dropping and building secondary indexes.
//! - `feeds`: follows the histories of groups, wherever their replicas are, for the changefeeds of this node.
//! - `membership`: brings the members of groups to those in the catalog, one change at a time.
//! - `reshard`: splits, merges and moves shards.
//! - `repair`: emergency repair, and the removal of servers.
//! - `node`: opens and closes replicas, runs the event loop, and answers requests of other servers.
#![forbid(unsafe_code)]

mod catalog;
mod config;
mod copy;
mod error;
mod events;
mod feeds;
mod index;
pub mod link;
mod locks;
mod membership;
mod node;
mod repair;
mod reshard;
mod routing;
mod rpc;

pub use catalog::placement::{Load, PlacementGoal, ShardPlaces, load, place, places_of};
pub use catalog::{
    Accounts, Catalog, CatalogReplica, CatalogWatcher, Database, DesiredShards, Identity, Schema, Servers,
    StoredCatalog, StoredShard, TableOptions,
};
pub use config::{
    DbConfig, DbId, Grant, GroupId, IndexConfig, PasswordChange, PeerId, Permissions, ReplicaConfig,
    SavedQuery, Scope, SealedShard, ServerConfig, ServerId, ShardConfig, ShardHistory, TableCompression,
    TableConfig, TableIndexes, Temporary, User, WriteAcks, durability_name,
};
pub use copy::{Copies, CopyChunking, CopyProgress};
pub use error::{AdminError, IndexName, OpenError, PlacementError, RepairNeeded};
pub use events::{EventQueue, Notifier};
pub use feeds::{
    FeedEnd, FeedEvent, FeedPosition, FeedStart, Feeds, FeedsStats, InitialRows, Interest, RowValues,
    Subscriber, Subscription, ValuesOf, WantedValues,
};
pub use index::{BuildStep, IndexProgress, IndexThread, IndexWork, Indexes, NoLeader, Overwrite};
pub use membership::{Connectivity, StallMonitor};
pub use node::{
    CatalogOutage, Core, Inbound, JoinOptions, Node, NodeOptions, Readiness, ReplicaState, ShardState,
    TableStates, UNASSIGNED_PEER, Wiring, join, readiness,
};
pub use repair::{Repair, RepairMode, RepairScope, Repaired, ServerRemoval};
pub use reshard::{Resharder, TableChange};
pub use routing::{KnownLeader, LeaderLookup, Leadership, ReplicaTransport, Route, ShardHandle, TableHandle};
pub use rpc::{OnResponse, PeerTransport, Peers, Responder, RpcClient, RpcError, RpcHandler, RpcServer};
pub use shard::{ChangedRow, CopyRangeSizes, HistoryPosition, HistoryRows};
