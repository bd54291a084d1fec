//! Who holds what, and how to reach it: the node, its catalog of databases and tables,
//! and one handle for a shard wherever it lives.
//!
//! The catalog is itself a table, the one of group zero, written through the same log as
//! every other row; each node keeps an immutable copy of it in memory.
#![forbid(unsafe_code)]

mod accounts;
mod admin;
mod ask;
mod catalog;
mod catalog_row;
mod config;
mod error;
mod handle;
mod identity;
mod index_work;
mod indexes;
pub mod link;
mod news;
mod node;
mod placement;
mod router;
mod users;

pub use admin::{TableChange, TableOptions};
pub use ask::{Answered, Ask, AskError, Reply, Serve};
pub use catalog::{Catalog, Database};
pub use config::{DbConfig, DbId, GroupId, ServerId, ShardConfig, TableConfig, WriteAcks, durability_name};
pub use error::{AdminError, IndexName, OpenError};
pub use handle::ShardHandle;
pub use identity::Identity;
pub use index_work::{IndexThread, IndexWork, Worked};
pub use indexes::{IndexConfig, IndexProgress, Overwrite, TableIndexes};
pub use node::{Node, NodeOptions};
pub use router::TableHandle;
pub use users::{Grant, PasswordChange, Permissions, Scope, User};
