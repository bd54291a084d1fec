//! An ordered, durable sequence of entries for each group; the only write-ahead log of a node.
//!
//! Below `shard`: a shard proposes changes, the log orders them, makes them durable and passes them to the [`Applier`].
//! All groups of a node share one store and one fsync. The log does not interpret entries.
//!
//! - [`Log`] is the contract, [`conformance`] the test suite for every implementation.
//! - [`memory::MemoryLog`] keeps entries in memory, for tests.
//! - [`file::FileLog`] keeps them in segments; docs/formats/log.md. From the outside in: `file/log` and `file/thread`
//!   (threads), `file/runner` (one step), `driver` (all groups, without I/O), `group` (consensus), and `file/store`
//!   (segments) over `record` and `segment` (bytes). `log_sync` runs fsyncs, `page_cache` limits the use of the page cache.
//! - A group has one or several replicas. `group` is one replica of one group, a [`Transport`] carries its messages to the
//!   others (docs/formats/message.md), a [`GroupObserver`] is notified of leaders and members. `tests/fleet` simulates
//!   many replicas, `tests/crashes` crashes of one node.
//! - [`recovery::scan_segment`] reads the bytes of one segment, damaged or not.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod file;
pub mod memory;
#[cfg(any(test, feature = "mutants"))]
pub mod mutant;
pub mod recovery;

mod batch_window;
mod contract;
mod driver;
mod entry_compression;
mod error;
mod group;
mod group_commit;
mod log_base;
mod log_sync;
mod lsn;
mod member;
mod message;
mod outline;
mod page_cache;
mod proposal;
mod record;
mod segment;
mod stats;
mod step;
mod store;
mod tail;

pub use contract::{
    Applier, Done, Entry, GroupObserver, Log, LogBaseDone, Message, Noop, Stall, StallCause, Transport,
};
pub use entry_compression::{EntryCompression, decompress as decompress_entry};
pub use error::{ApplyError, Interruption, LogError, ProposeError, Refusal};
pub use log_base::LogBase;
pub use log_sync::LogSync;
pub use lsn::{Acks, Durability, GroupId, Lsn, Position, Term};
pub use member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId, PeerStatus, Role};
pub use record::{EntryKind, Record};
pub use segment::HeaderError;
pub use stats::{GROUP_COMMIT_BUCKETS, LogStats};
pub use store::{Compacted, Store, StoreError, StoreSize, StoredEntry, StoredGroup, SyncTask};
