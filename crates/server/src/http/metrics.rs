//! All metrics of a node on one page, read from the components that count them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use cluster::Node;
use cluster::link::Links;
use engine::{CompressionStats, EngineStats, WrittenStats};
use log::{Log, LogStats};
use query::NamedTableSizes;
use shard::Replicas;
use storage::RowCacheStats;

use super::memory::ServerMemory;
use super::openmetrics::{Kind, Page};
use super::process::Process;
use super::{feeds, links, memory};
use crate::counters::{Counters, LatencySum};
use crate::memory::accountant::Accountant;
use crate::service::QueryKind;

use Kind::{Counter, Gauge};

/// Where the metrics are read from.
pub struct Sources {
    started: Instant,
    observed: OnceLock<Observed>,
}

/// The components that are measured once the node is open.
pub struct Observed {
    /// The counters of the workers.
    pub counters: Vec<Arc<Counters>>,
    /// The stored rows and their cache.
    pub replicas: Arc<Replicas>,
    /// The log of all shards.
    pub log: Arc<dyn Log>,
    /// The links to other servers.
    pub links: Links,
    /// The size of all caches together.
    pub cache_bytes_max: Arc<AtomicU64>,
    /// The memory of the process, and the budget of queries, cursors and connections.
    pub memory: Arc<Accountant>,
    /// The node, until it stops.
    pub node: Weak<Node>,
    /// The service that runs queries, until it stops.
    pub queries: Weak<query::Service>,
}

impl Sources {
    /// Shows only metrics of the process.
    #[must_use]
    pub fn new() -> Sources {
        Sources { started: Instant::now(), observed: OnceLock::new() }
    }

    /// From now on also shows the metrics of an open node. Only the first call has an effect.
    pub fn observe(&self, observed: Observed) {
        drop(self.observed.set(observed));
    }

    /// The components, once the node is open.
    pub(super) fn observed(&self) -> Option<&Observed> {
        self.observed.get()
    }

    pub fn page(&self) -> String {
        let mut page = Page::default();
        let version = env!("CARGO_PKG_VERSION");
        page.family("rekindle_build", Gauge, "Version of the program.").sample(&[("version", version)], 1.0);
        page.single(
            "rekindle_uptime_seconds",
            Gauge,
            "Time since the start.",
            self.started.elapsed().as_secs_f64(),
        );
        let process = Process::now();
        write_process(&mut page, &process);
        if let Some(observed) = self.observed.get() {
            write_queries(&mut page, &observed.counters);
            write_connections(&mut page, &observed.counters);
            write_log(&mut page, &observed.log.stats());
            let engine = observed.replicas.engine().stats();
            let rows = observed.replicas.store().row_cache_stats();
            let memory = ServerMemory {
                process: &process,
                replicas: &observed.replicas,
                engine: &engine,
                accountant: &observed.memory,
                cache_bytes_max: observed.cache_bytes_max.load(Relaxed),
            };
            memory::write(&mut page, memory);
            write_row_cache(&mut page, rows);
            write_levels(&mut page, &engine);
            write_compression(&mut page, engine.compression);
            write_written(&mut page, engine.written, observed.log.stats().append_bytes);
            if let Some(node) = observed.node.upgrade() {
                feeds::write(&mut page, &node.feeds().stats());
            }
            if let Some(queries) = observed.queries.upgrade() {
                let from_disk = queries.counters().from_disk.load(Relaxed) as f64;
                page.single(
                    "rekindle_queries_from_disk",
                    Counter,
                    "Point queries handed to a thread that may wait for the disk.",
                    from_disk,
                );
                feeds::write_queues(&mut page, queries.feed_counters());
                write_tables(&mut page, &query::table_sizes(&queries));
            }
            links::write(&mut page, &observed.links.stats());
        }
        page.finish()
    }
}

impl Default for Sources {
    fn default() -> Self {
        Sources::new()
    }
}

fn write_process(page: &mut Page, process: &Process) {
    page.single("process_cpu_seconds", Counter, "Processor time, user and system.", process.cpu_seconds);
    page.single("process_resident_memory_bytes", Gauge, "Memory in use.", process.resident_bytes);
    page.single(
        "process_resident_memory_max_bytes",
        Gauge,
        "Most memory ever in use.",
        process.resident_bytes_max,
    );
    page.single("process_written_bytes", Counter, "Bytes written to disk.", process.written_bytes);
    page.single("process_read_bytes", Counter, "Bytes read from disk.", process.read_bytes);
    page.single("process_threads", Gauge, "Threads.", process.threads);
}

fn write_queries(page: &mut Page, counters: &[Arc<Counters>]) {
    let sums: Vec<(&str, LatencySum)> =
        QueryKind::ALL.iter().map(|kind| (kind.name(), sum(counters, *kind))).collect();
    let mut family = page.family("rekindle_queries", Counter, "Queries answered, by kind.");
    for (kind, sum) in &sums {
        family.sample(&[("kind", kind)], sum.count() as f64);
    }
    let mut family =
        page.histograms("rekindle_query_duration_seconds", "Time from a query's last byte to its response.");
    for (kind, sum) in &sums {
        family.histogram(&[("kind", kind)], sum.bounds(), sum.total_nanos as f64 / 1e9);
    }
    let failures = counters.iter().map(|one| one.failures.load(Relaxed)).sum::<u64>();
    page.single("rekindle_query_failures", Counter, "Queries answered with an error.", failures as f64);
    let running = counters.iter().map(|one| one.running.load(Relaxed)).sum::<i64>();
    page.single(
        "rekindle_queries_running",
        Gauge,
        "Queries that are running, or whose write waits for the log.",
        running as f64,
    );
}

/// The latencies of one kind of query, of all workers.
pub(super) fn sum(counters: &[Arc<Counters>], kind: QueryKind) -> LatencySum {
    let mut sum = LatencySum::default();
    for one in counters {
        one.latency(kind).add_to(&mut sum);
    }
    sum
}

fn write_connections(page: &mut Page, counters: &[Arc<Counters>]) {
    let open = counters.iter().map(|one| one.connections.load(Relaxed)).sum::<i64>();
    page.single("rekindle_connections", Gauge, "Open driver connections.", open as f64);
    let total = |read: fn(&Counters) -> u64| counters.iter().map(|one| read(one)).sum::<u64>() as f64;
    let accepted = total(|one| one.accepted.load(Relaxed));
    page.single("rekindle_connections_accepted", Counter, "Accepted driver connections.", accepted);
    let refused = total(|one| one.refused.load(Relaxed));
    page.single(
        "rekindle_connections_refused",
        Counter,
        "Driver connections whose handshake failed.",
        refused,
    );
    let received = total(|one| one.bytes_in.load(Relaxed));
    page.single("rekindle_received_bytes", Counter, "Bytes from drivers.", received);
    let sent = total(|one| one.bytes_out.load(Relaxed));
    page.single("rekindle_sent_bytes", Counter, "Bytes to drivers.", sent);
}

fn write_log(page: &mut Page, log: &LogStats) {
    page.single("rekindle_log_appends", Counter, "Entries appended to the log.", log.appends as f64);
    page.single("rekindle_log_append_bytes", Counter, "Bytes appended to the log.", log.append_bytes as f64);
    page.single("rekindle_log_writes", Counter, "Calls that appended them.", log.writes as f64);
    page.single("rekindle_log_fsyncs", Counter, "Calls of fsync.", log.fsyncs as f64);
    page.single("rekindle_log_fsync_seconds", Counter, "Time spent in fsync.", log.fsync_us as f64 / 1e6);
    page.family("rekindle_log_acknowledged", Counter, "Writes acknowledged, by durability.")
        .sample(&[("durability", "hard")], log.acks_hard as f64)
        .sample(&[("durability", "soft")], log.acks_soft as f64);
    let last = log.group_commit.len() - 1;
    let bound = |i: usize| if i == last { f64::INFINITY } else { (1u64 << i) as f64 };
    let buckets = log.group_commit.iter().enumerate().map(|(i, count)| (bound(i), *count));
    page.histograms("rekindle_log_group_commit_entries", "Entries that one fsync made durable.").histogram(
        &[],
        buckets,
        log.group_commit_entries as f64,
    );
    page.single(
        "rekindle_log_elected",
        Counter,
        "Elections that replicas here have won.",
        log.elected as f64,
    );
    page.single(
        "rekindle_log_deposed",
        Counter,
        "Times that a replica here ceased to lead.",
        log.deposed as f64,
    );
    page.single(
        "rekindle_log_rows_ahead",
        Counter,
        "Shards with rows newer than their log when they were opened: the disk lost writes that it had confirmed.",
        log.rows_ahead as f64,
    );
    page.single("rekindle_log_segments", Gauge, "Segments on disk.", log.segments as f64);
    page.single("rekindle_log_disk_bytes", Gauge, "Bytes of the log on disk.", log.disk_bytes as f64);
    page.single("rekindle_log_groups", Gauge, "Shards whose log is open.", log.groups as f64);
}

fn write_row_cache(page: &mut Page, rows: RowCacheStats) {
    page.family("rekindle_row_cache_reads", Counter, "Point reads, by whether the row was in the cache.")
        .sample(&[("found", "yes")], rows.hits as f64)
        .sample(&[("found", "no")], rows.misses as f64);
    page.single("rekindle_row_cache_rows", Gauge, "Rows in the cache.", rows.rows as f64);
}

fn write_tables(page: &mut Page, tables: &[NamedTableSizes]) {
    let mut family =
        page.family("rekindle_table_bytes", Gauge, "Estimated sizes of the tables on this server.");
    for table in tables {
        let (db, name) = (&*table.db, &*table.table);
        family
            .sample(&[("db", db), ("table", name), ("form", "logical")], table.logical_bytes)
            .sample(&[("db", db), ("table", name), ("form", "disk")], table.disk_bytes);
    }
}

fn write_written(page: &mut Page, engine: WrittenStats, log: u64) {
    page.family("rekindle_written_bytes", Counter, "Bytes written to disk, by reason.")
        .sample(&[("reason", "log")], log as f64)
        .sample(&[("reason", "flush")], engine.flush as f64)
        .sample(&[("reason", "compaction")], engine.compaction as f64)
        .sample(&[("reason", "large_values")], engine.large_values as f64);
}

fn write_compression(page: &mut Page, compression: CompressionStats) {
    page.single(
        "rekindle_compression_rows",
        Counter,
        "Rows that were compressed when they were written.",
        compression.rows as f64,
    );
    page.family("rekindle_compression_bytes", Counter, "Bytes of these rows, before and as they are stored.")
        .sample(&[("form", "plain")], compression.row_bytes as f64)
        .sample(&[("form", "stored")], compression.stored_bytes as f64);
    page.single(
        "rekindle_compression_settled_rows",
        Counter,
        "Rows that were compressed again after they had settled.",
        compression.settled_rows as f64,
    );
    page.family(
        "rekindle_compression_settled_bytes",
        Counter,
        "Bytes of these rows on disk, before and afterwards.",
    )
    .sample(&[("form", "before")], compression.settled_bytes_before as f64)
    .sample(&[("form", "after")], compression.settled_bytes_after as f64);
    page.family(
        "rekindle_compression_dictionaries",
        Counter,
        "Trained dictionaries, by whether they are used.",
    )
    .sample(&[("used", "yes")], compression.dictionaries as f64)
    .sample(&[("used", "no")], compression.trainings.saturating_sub(compression.dictionaries) as f64);
}

fn write_levels(page: &mut Page, engine: &EngineStats) {
    let levels: Vec<(String, f64, f64)> = engine
        .levels
        .iter()
        .enumerate()
        .map(|(i, level)| (i.to_string(), level.files as f64, level.bytes as f64))
        .collect();
    let mut family = page.family("rekindle_engine_level_files", Gauge, "Files of each level of the tree.");
    for (level, files, _) in &levels {
        family.sample(&[("level", level)], *files);
    }
    let mut family = page.family("rekindle_engine_level_bytes", Gauge, "Bytes of each level of the tree.");
    for (level, _, bytes) in &levels {
        family.sample(&[("level", level)], *bytes);
    }
    page.single(
        "rekindle_engine_disk_bytes",
        Gauge,
        "Bytes of rows and indexes on disk.",
        engine.disk_bytes() as f64,
    );
    page.single("rekindle_engine_keys", Gauge, "Estimated number of entries.", engine.keys_estimate as f64);
    let pending = engine.compaction_pending_bytes as f64;
    page.single(
        "rekindle_engine_compaction_pending_bytes",
        Gauge,
        "Bytes that compaction has to rewrite.",
        pending,
    );
    page.single(
        "rekindle_engine_background_running",
        Gauge,
        "Running flushes and compactions.",
        engine.background_running as f64,
    );
    let stalled = f64::from(u8::from(engine.writes_stalled));
    page.single("rekindle_engine_writes_stalled", Gauge, "1 while writes wait for compaction.", stalled);
    page.single("rekindle_engine_snapshots", Gauge, "Open snapshots.", engine.snapshots as f64);
}
