//! Copies of a replica's rows, sent and received. Decision 0032.
//!
//! A replica whose rows are invalid, or too old for its leader's log, gets all rows from the leader. The leader sends
//! them in chunks from one snapshot, at the pace of the receiver. Rows that the receiver has already, from an
//! interrupted copy or from before, are compared by digests and kept.
//!
//! [`Copies`] (`service`) does both sides: `begin` receives a copy on a separate thread; `serve_begin` and `serve_next`
//! are the leader's. `progress` has the state of copies ([`CopyProgress`]), the chunk sizes ([`CopyChunking`]) and the
//! rate limit.
//!
//! [`DamageRepair`] lets a replica with damaged rows get a copy.
//!
//! Locks: the mutexes in `CopyState` are held for moments. Rows of a replica are read and written inside its gate
//! (`LocalReplicas::with_gate`), because the same keys may belong to another group after a reshard.

mod attempts;
mod damage_repair;
mod damaged_shard;
mod progress;
mod service;

pub(crate) use damage_repair::DamageRepair;
pub use progress::{CopyChunking, CopyProgress};
pub use service::Copies;
