//! An ordered, durable sequence of entries for each group; the only write-ahead log of a node.
//!
//! Stands under `shard`: a shard proposes what changed, the log orders it, makes it durable and
//! hands it to the [`Applier`]. All groups of a node share one store and one fsync. Never knows
//! what an entry means.
//!
//! - [`Log`] is the contract, [`conformance`] the suite every implementation runs.
//! - [`memory::MemoryLog`] keeps entries in memory, for tests.
//! - [`file::FileLog`] keeps them in segments; docs/formats/log.md. From the outside in: `file/log`
//!   (threads), `file/runner` (one turn), `driver` (all groups, pure), `group` (consensus), and
//!   `file/store` (segments) over `record` and `segment` (bytes); `log_sync` makes them durable, `cached` says how
//!   much of them stays in the page cache.
//! - A group has one replica or several: `group/` is one replica of one group, [`Transport`] takes its messages
//!   to the others (docs/formats/message.md), [`GroupObserver`] is told who leads. `file/fleet` simulates many.
//! - [`recovery::scan_segment`] reads the bytes of one segment, whatever they are.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod file;
pub mod memory;
#[cfg(any(test, feature = "mutants"))]
pub mod mutant;
pub mod recovery;

mod batch_window;
mod cached;
mod contract;
mod driver;
mod error;
mod group;
mod group_commit;
mod log_base;
mod log_sync;
mod lsn;
mod member;
mod message;
mod outline;
mod proposal;
mod record;
mod segment;
mod stats;
mod store;
mod tail;
mod turn;

pub use contract::{
    Applier, Done, Entry, GroupObserver, Log, LogBaseDone, Message, Noop, Stall, StallCause, Transport,
};
pub use error::{ApplyError, Interruption, LogError, ProposeError, Refusal};
pub use log_base::LogBase;
pub use log_sync::LogSync;
pub use lsn::{Acks, Durability, GroupId, Lsn, Position, Term};
pub use member::{GroupStatus, InitialConfig, MemberChange, Members, PeerId, PeerStatus, Role};
pub use record::{EntryKind, Record};
pub use segment::HeaderError;
pub use stats::{GROUP_COMMIT_BUCKETS, LogStats};
pub use store::{Compacted, Store, StoreError, StoreSize, StoredEntry, StoredGroup, SyncTask};
