//! The memory of a server by owner, for the metrics page and `stats`.

use io::memory::{Budget, Owner, freed_bytes};
use shard::Replicas;

/// The owners of memory that is counted, with their bytes.
#[must_use]
pub fn memory_owners(replicas: &Replicas, budget: &Budget) -> Vec<(&'static str, u64)> {
    let engine = replicas.engine().memory();
    let mut owners = vec![
        ("row_cache", replicas.store().row_cache_stats().bytes),
        ("block_cache", engine.block_cache),
        ("memtables", engine.memtables),
        ("table_readers", engine.table_readers),
        ("compression", engine.compression),
    ];
    owners.extend(Owner::ALL.map(|owner| (owner.name(), budget.reserved_by(owner))));
    owners.push(("freed", freed_bytes()));
    owners
}
