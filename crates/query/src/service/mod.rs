//! The service: what all queries of a node share. It has the node, the thread pools, the list of running queries, and
//! facts about the server.

mod client;
mod feed_counters;
mod feed_garbage;
mod feed_polling;
mod jobs;
mod memory_owners;
mod metrics_history;
mod rate_meter;
mod recent_log;
mod row_lengths;
mod served_cursors;
mod slow_queries;
mod system_watches;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cluster::{Node, ServerId};
use datum::PrimaryKey;
use datum::{Object, Text};
use io::memory::Budget;
use parking_lot::Mutex;

use self::jobs::Jobs;
use self::rate_meter::{RateMeter, TableRateMeters};
use self::row_lengths::RowLengths;
use self::served_cursors::ServedCursors;
use self::slow_queries::SlowQueries;
use self::system_watches::{SystemWatches, WatchedTable};
use crate::http::HttpClient;
use crate::routing::{Failover, ReadBatches, RemoteCalls, SharedLeaderLookup};
use crate::script::Scripts;
use crate::thread_pool::{Readers, ThreadPool};

pub use client::Client;
pub use feed_counters::{FeedCounters, FeedKind};
pub(crate) use feed_garbage::FeedGarbage;
pub(crate) use feed_polling::FeedPolling;
pub(crate) use jobs::{Job, JobEntry};
pub use memory_owners::memory_owners;
pub use metrics_history::{MetricsHistory, MetricsSample};
pub use recent_log::{LogLevel, LogLine, RecentLog};
pub(crate) use served_cursors::ServedCursor;
pub(crate) use slow_queries::SlowQuery;
pub(crate) use system_watches::{SystemTableRows, SystemWatcher};

/// Threads for requests of other nodes: most of them wait for the log or for scan threads.
const REQUEST_THREADS: usize = 8;
/// Threads for point queries that must be evaluated in full after all, which is rare.
const SLOW_PATH_THREADS: usize = 4;

/// Makes the stored record of a password: (password, rounds) to (record, password is not empty).
pub type PasswordMaker = Arc<dyn Fn(&str, Option<u32>) -> (Object, bool) + Send + Sync>;

/// The parts of a service.
pub struct ServiceOptions {
    /// The node whose tables are queried.
    pub node: Arc<Node>,
    /// Makes password records for the table `users`.
    pub passwords: PasswordMaker,
    /// What `server_status` and `server_config` show.
    pub facts: ServerFacts,
    /// How many threads scan tables; one per core is right.
    pub scan_threads: usize,
    /// Sends the requests of `http`; `None` when this server may send none.
    pub http_client: Option<Arc<dyn HttpClient>>,
    /// Runs scripts of `js`; `None` when scripts are not allowed.
    pub scripts: Option<Arc<dyn Scripts>>,
    /// The budget for memory that requests of other nodes use.
    pub memory: Arc<Budget>,
}

/// Facts about the process, as the system tables show them.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// The machine's name.
    pub hostname: Text,
    /// The port for drivers.
    pub reql_port: u16,
    /// The port for other nodes.
    pub cluster_port: u16,
    pub http_port: Option<u16>,
    /// The addresses that this server advertises.
    pub canonical_addresses: Vec<(Text, u16)>,
    /// The command line.
    pub argv: Vec<Text>,
    /// The process id.
    pub pid: u32,
    /// The present size of the cache in bytes.
    pub cache_bytes: Arc<AtomicU64>,
    /// How many megabytes the caches may have, where that is known.
    pub cache_mb_range: Option<std::ops::RangeInclusive<u64>>,
    /// Name and version of the program.
    pub version: Text,
    /// When the process started, since 1970.
    pub started_unix: Duration,
    /// The last log lines of this server.
    pub logs: RecentLog,
    /// The figures of this server in the last 24 hours.
    pub metrics: MetricsHistory,
    /// Returns a description of a problem with the memory of the process, if there is one.
    pub memory_trouble: Option<fn() -> Option<String>>,
}

/// Counters of the query engine since the process started, for the metrics page and `stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries started, on the fast path too.
    pub queries: AtomicU64,
    pub rows_read: AtomicU64,
    pub rows_written: AtomicU64,
    /// Point queries, also those of other servers, that were handed to a thread that may wait for the disk.
    pub from_disk: AtomicU64,
    /// Open connections of drivers; the server updates it.
    pub connections: AtomicU64,
}

/// Runs queries against one node.
pub struct Service {
    node: Arc<Node>,
    pub(crate) passwords: PasswordMaker,
    pub(crate) facts: ServerFacts,
    pub(crate) pool: ThreadPool,
    /// Run requests of other nodes.
    pub(crate) request_threads: ThreadPool,
    /// Evaluate point queries that the fast path could not finish.
    pub(crate) slow_path: ThreadPool,
    /// Run point queries whose rows are on disk.
    pub(crate) readers: Readers,
    /// Point queries that wait for leaders.
    pub(crate) leader_lookup: Arc<SharedLeaderLookup>,
    pub(crate) jobs: Jobs,
    /// The slowest queries of the last hour.
    pub(crate) slow_queries: SlowQueries,
    /// Calls to other nodes.
    pub(crate) remote_calls: Arc<RemoteCalls>,
    /// Point reads that are sent to other nodes together.
    pub(crate) read_batches: ReadBatches,
    /// Pending calls to servers that may hang.
    pub(crate) failover: Arc<Failover>,
    /// Cursors that other nodes have open here.
    pub(crate) cursors: ServedCursors,
    pub(crate) http_client: Option<Arc<dyn HttpClient>>,
    pub(crate) scripts: Option<Arc<dyn Scripts>>,
    /// The budget for requests of other nodes; this node's own queries use the accounts of their connections.
    pub(crate) memory: Arc<Budget>,
    /// The rows of `rethinkdb._debug_scratch`, which are lost when the process ends.
    pub(crate) scratch: Mutex<BTreeMap<PrimaryKey, Object>>,
    /// The last rows of other servers in `server_status`.
    pub(crate) statuses: Mutex<BTreeMap<ServerId, Object>>,
    /// Feeds of system tables.
    system_watches: Arc<SystemWatches>,
    counters: Counters,
    pub(crate) feed_counters: Arc<FeedCounters>,
    pub(crate) feed_garbage: Arc<FeedGarbage>,
    /// Queries, rows read and rows written per second.
    pub(crate) rates: RateMeter<3>,
    /// Rows of each table read and written here per second.
    pub(crate) table_rates: TableRateMeters,
    /// How long the rows of each table are.
    pub(crate) row_lengths: RowLengths,
}

impl Service {
    /// A service for `options.node`; starts the scan threads.
    #[must_use]
    pub fn new(options: ServiceOptions) -> Arc<Service> {
        let first = options.node.random().next_u64();
        let start = options.node.clock().now();
        let leader_lookup = SharedLeaderLookup::new(options.node.clone());
        let remote_calls = Arc::new(RemoteCalls::new(first));
        Arc::new(Service {
            failover: Failover::new(options.node.clone(), remote_calls.clone()),
            node: options.node,
            request_threads: ThreadPool::new("request", REQUEST_THREADS),
            slow_path: ThreadPool::new("slow-path", SLOW_PATH_THREADS),
            readers: Readers::new(options.memory.clone()),
            leader_lookup,
            remote_calls,
            read_batches: ReadBatches::default(),
            cursors: ServedCursors::default(),
            passwords: options.passwords,
            facts: options.facts,
            pool: ThreadPool::new("scan", options.scan_threads),
            jobs: Jobs::default(),
            slow_queries: SlowQueries::default(),
            http_client: options.http_client,
            scripts: options.scripts,
            memory: options.memory,
            scratch: Mutex::new(BTreeMap::new()),
            statuses: Mutex::new(BTreeMap::new()),
            system_watches: Arc::default(),
            counters: Counters::default(),
            feed_counters: Arc::default(),
            feed_garbage: Arc::default(),
            rates: RateMeter::new(start),
            table_rates: TableRateMeters::new(start),
            row_lengths: RowLengths::default(),
        })
    }

    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Carries out what point queries have started since the last call, together: sends requests to other nodes
    /// ([`cluster::RpcClient::flush`]) and appends writes to the log ([`log::Log::drive`]). The disk may hold it up now
    /// and then.
    pub fn flush(&self) {
        self.flush_requests();
        self.node.log().drive();
    }

    /// Sends the requests to other nodes.
    pub(crate) fn flush_requests(&self) {
        self.read_batches.flush(&self.remote_calls);
        self.remote_calls.flush();
    }

    /// Calls `watcher` with the rows of a system table, until it is dropped. Fails if no thread can be started.
    pub(crate) fn watch_system_table(
        &self,
        table: WatchedTable,
        watcher: &Arc<impl SystemWatcher + 'static>,
    ) -> std::io::Result<()> {
        self.system_watches.add(&self.node, table, watcher)
    }

    /// Calls to other nodes.
    #[must_use]
    pub fn remote_calls(&self) -> &RemoteCalls {
        &self.remote_calls
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[must_use]
    pub fn feed_counters(&self) -> &FeedCounters {
        &self.feed_counters
    }
}
