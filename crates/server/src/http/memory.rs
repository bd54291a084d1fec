//! The metrics of memory: each owner's, the limits, and how often they were reached.

use std::sync::atomic::Ordering::Relaxed;

use ::io::memory::{Owner, freed_bytes};
use engine::EngineStats;
use storage::RowCacheStats;

use super::metrics::Observed;
use super::openmetrics::{Kind, Page};
use super::process::Process;

use Kind::{Counter, Gauge};

/// Figures that other metrics show, too.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub engine: &'a EngineStats,
    pub rows: RowCacheStats,
    pub process: &'a Process,
}

pub(super) fn write(page: &mut Page, measured: Measured<'_>, observed: &Observed) {
    write_owners(page, measured, observed);
    let (accountant, budget) = (&observed.memory, observed.memory.budget());
    let pinned = measured.engine.memory.block_cache_pinned;
    let mut single = |name, kind, help, value: u64| {
        page.single(name, kind, help, value as f64);
    };
    single(
        "rekindle_memory_limit_bytes",
        Gauge,
        "Memory the process may use, --memory-limit.",
        accountant.limit_bytes(),
    );
    single(
        "rekindle_query_memory_bytes_max",
        Gauge,
        "Memory queries, cursors, connections share.",
        budget.limit(),
    );
    single("rekindle_memory_refused", Counter, "Times one of them was refused memory.", budget.refused());
    single(
        "rekindle_cache_bytes_max",
        Gauge,
        "Memory the cache may take.",
        observed.cache_bytes_max.load(Relaxed),
    );
    single(
        "rekindle_cache_bytes_allowed",
        Gauge,
        "Memory the cache may take now: less than the maximum when the process is near its limit.",
        accountant.cache_bytes(),
    );
    single(
        "rekindle_cache_shrinks",
        Counter,
        "Times the cache was shrunk because the process was near its limit.",
        accountant.shrinks(),
    );
    single("rekindle_cache_pinned_bytes", Gauge, "Part of the cache that is never evicted.", pinned);
}

fn write_owners(page: &mut Page, measured: Measured<'_>, observed: &Observed) {
    let Measured { engine, rows, process } = measured;
    let memory = engine.memory;
    let mut owners = vec![
        ("row_cache", rows.bytes),
        ("block_cache", memory.block_cache),
        ("memtables", memory.memtables),
        ("table_readers", memory.table_readers),
        ("compression", memory.compression),
    ];
    let budget = observed.memory.budget();
    owners.extend(Owner::ALL.map(|owner| (owner.name(), budget.reserved_by(owner))));
    owners.push(("freed", freed_bytes()));
    let mut family = page.family("rekindle_memory_bytes", Gauge, "Memory, by owner.");
    for (owner, bytes) in &owners {
        family.sample(&[("owner", owner)], *bytes as f64);
    }
    family.sample(&[("owner", "program")], process.file_bytes);
    let owned = owners.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64 + process.file_bytes;
    page.single(
        "rekindle_memory_unowned_bytes",
        Gauge,
        "Resident memory beyond that of the owners: stacks, buffers of the log and of compactions, and gaps between allocations.",
        (process.resident_bytes - owned).max(0.0),
    );
}
