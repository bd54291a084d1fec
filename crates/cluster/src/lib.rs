//! Who holds what, and how to reach it: the node, its catalog of databases and tables,
//! and one handle for a shard wherever it lives.
//!
//! The catalog is itself a table, the one of group zero, written through the same log as
//! every other row; each node keeps an immutable copy of it in memory.
#![forbid(unsafe_code)]

mod accounts;
mod added;
mod admin;
mod answer;
mod answering;
mod ask;
mod catalog;
mod catalog_repair;
mod catalog_replica;
mod catalog_row;
mod change;
mod config;
mod copies;
mod copy;
mod copy_piece;
mod cuts;
mod division;
mod ends;
mod error;
#[cfg(test)]
mod fixture;
mod forced;
mod given_up;
mod handle;
mod hosted;
mod hosting;
mod identity;
mod incarnation;
mod index_config;
mod index_work;
mod indexes;
mod join;
mod keeper;
mod last_word;
mod layout;
mod leaders;
mod leavings;
mod lineage;
pub mod link;
mod majority;
mod most_complete;
mod network;
mod news;
mod node;
mod pending;
mod placement;
mod plan;
mod post;
mod reach;
mod readers;
mod rebalance;
mod removal;
mod repair;
mod replaced;
mod request;
mod resigning;
mod router;
mod sealing;
mod serve;
mod servers;
mod sights;
mod stalls;
mod starts;
mod state;
mod step;
mod succession;
mod tend;
mod users;
mod wire_field;
mod words;

pub use added::Added;
pub use admin::{ShardsWanted, TableChange, TableOptions};
pub use ask::{OnResponse, Responder, RpcClient, RpcError, RpcHandler};
pub use catalog::{Catalog, Database};
pub use catalog_replica::CatalogReplica;
pub use config::{
    DbConfig, DbId, GroupId, PeerId, ReplicaConfig, SealedShard, ServerConfig, ServerId, ShardConfig,
    ShardHistory, TableConfig, WriteAcks, durability_name,
};
pub use copies::{CopyChunking, CopyProgress};
pub use error::{AdminError, IndexName, OpenError, RepairNeeded};
pub use handle::{KnownLeader, Route, ShardHandle};
pub use identity::Identity;
pub use index_config::{IndexConfig, TableIndexes};
pub use index_work::{BuildStep, IndexThread, IndexWork};
pub use indexes::{IndexProgress, NoLeader, Overwrite};
pub use join::{JoinOptions, join};
pub use network::{Inbound, UNASSIGNED_PEER};
pub use news::Notifier;
pub use node::{CatalogWatcher, Core, Node, NodeOptions};
pub use placement::{Load, PlacementError, ShardPlaces, Wanted, load, place, places_of};
pub use post::{PeerTransport, Post};
pub use repair::{RepairMode, RepairScope, Repaired};
pub use router::TableHandle;
pub use serve::RpcServer;
pub use shard::CopyRangeSizes;
pub use state::{CatalogOutage, Readiness, ReplicaState, ShardState, readiness};
pub use users::{Grant, PasswordChange, Permissions, Scope, User};
