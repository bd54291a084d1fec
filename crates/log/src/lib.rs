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
//!   `file/store` (segments) over `record` and `segment` (bytes); `hardener` makes them durable, `cached` says how
//!   much of them stays in the page cache.
//! - A group has one replica or several: `group/` is one replica of one group, [`Mail`] takes its letters
//!   to the others (docs/formats/letter.md), [`Watch`] is told who leads. `file/fleet` simulates many.
//! - [`recovery::scan_segment`] reads the bytes of one segment, whatever they are.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod file;
pub mod memory;
#[cfg(any(test, feature = "mutants"))]
pub mod mutant;
pub mod recovery;

mod cached;
mod company;
mod contract;
mod driver;
mod error;
mod gather;
mod group;
mod hardener;
mod letter;
mod lsn;
mod member;
mod origin;
mod outline;
mod proposal;
mod record;
mod segment;
mod stats;
mod store;
mod tail;
mod turn;

pub use contract::{Applier, Done, Entry, Letter, Log, Mail, Nobody, OriginDone, Stall, StallCause, Watch};
pub use error::{ApplyError, Doubt, LogError, ProposeError, Refusal};
pub use hardener::Hardener;
pub use lsn::{Acks, Durability, GroupId, Lsn, Position, Term};
pub use member::{Birth, GroupStatus, MemberChange, Members, PeerId, PeerStatus, Role};
pub use origin::Origin;
pub use record::{EntryKind, Record};
pub use segment::HeaderError;
pub use stats::{GROUP_COMMIT_BUCKETS, LogStats};
pub use store::{Forgotten, Store, StoreError, StoreSize, StoredEntry, StoredGroup, SyncTask};
