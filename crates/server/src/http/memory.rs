//! The metrics of memory: each owner's, the limits, and how often they were reached.

use engine::EngineStats;
use shard::Replicas;

use super::openmetrics::{Kind, Page};
use super::process::Process;
use crate::memory::accountant::Accountant;

use Kind::{Counter, Gauge};

/// Where the figures come from.
#[derive(Clone, Copy)]
pub(super) struct ServerMemory<'a> {
    pub process: &'a Process,
    pub replicas: &'a Replicas,
    pub engine: &'a EngineStats,
    pub accountant: &'a Accountant,
    /// The size of all caches together, as configured.
    pub cache_bytes_max: u64,
}

pub(super) fn write(page: &mut Page, memory: ServerMemory<'_>) {
    write_owners(page, memory);
    let ServerMemory { engine, accountant, cache_bytes_max, .. } = memory;
    let (budget, pinned) = (accountant.budget(), engine.memory.block_cache_pinned);
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
    single("rekindle_cache_bytes_max", Gauge, "Memory the cache may take.", cache_bytes_max);
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

fn write_owners(page: &mut Page, memory: ServerMemory<'_>) {
    let ServerMemory { process, replicas, accountant, .. } = memory;
    let owners = query::memory_owners(replicas, accountant.budget());
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
