//! The result of one run as JSON: the contract of `docs/formats/bench-result.md`, member by member.
//!
//! Every measuring command writes it, and the report reads it. No logic here.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::units_result::UnitsTest;

/// The value of `format` in every result.
pub const FORMAT: &str = "rekindle-bench-result";
/// The value of `format_version` in results written by this version.
pub const FORMAT_VERSION: u32 = 1;

/// The result file of one run (`docs/formats/bench-result.md`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Unique, safe as a file name.
    pub id: String,
    /// `ycsb-load`, `ycsb-run`, `analytic`, `blocks`, `reql`, `hop`, `idle`, `feeds`, `wiki`, `baseline-redis`, `baseline-echo`.
    pub kind: String,
    /// Title.
    pub name: String,
    /// The value of `--label`.
    pub label: String,
    /// The command line, without passwords.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// The published series for comparison.
    pub published: Option<Published>,
    /// Decimal u64.
    pub seed: String,
    /// All settings in effect.
    pub settings: Map<String, Value>,
    /// Remarks that are needed to read the numbers.
    pub notes: Vec<String>,
    /// How operations were sent.
    #[serde(rename = "loop")]
    pub pacing: Pacing,
    /// How long the parts took.
    pub time: Times,
    /// Work done per second.
    pub throughput: Throughput,
    /// One entry per kind of operation.
    pub operations: Vec<OperationResult>,
    /// Most frequent first.
    pub errors: Vec<ErrorTally>,
    /// One point per second.
    pub series: Series,
    /// Variation over the seconds; null for a run of less than three.
    #[serde(default)]
    pub stability: Option<Stability>,
    /// The additions of `bench units`; null for all other runs.
    #[serde(default)]
    pub units: Option<UnitsTest>,
    /// Figures of `bench feeds` and `bench wiki` that have no other member; empty for all other runs.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// The timings of a repeated query.
    pub runs: Vec<TimedRun>,
    /// Checked answers.
    pub checks: Vec<CheckOutcome>,
    /// How responses were checked.
    pub verification: Verification,
    /// Resources used by the client.
    pub client: ClientUse,
    /// Resources used by each server.
    pub servers: Vec<ServerUse>,
    /// Log counters, summed over all servers.
    pub log: Option<LogUse>,
    /// Resources divided by work.
    pub cost: Cost,
    /// The same client against a server that only echoes.
    pub echo: Option<EchoBaseline>,
    /// The client's machine.
    pub machine: Machine,
    /// Versions of client and server.
    pub versions: Versions,
    /// Reasons not to take the numbers at face value.
    pub alarms: Vec<Alarm>,
}

/// A published series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// `rethinkdb-2.1.5` or `bigchaindb-0.0.1`.
    pub report: String,
    /// The workload of that report.
    pub workload: String,
    /// Number of servers in this run.
    pub servers: usize,
}

/// How operations were sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pacing {
    /// `closed` or `open`.
    pub kind: String,
    /// Connections to all servers together.
    pub connections: usize,
    /// Operations in flight per connection.
    pub pipeline: usize,
    /// Threads that drove them.
    pub client_threads: usize,
    /// Arrival rate of an open loop.
    pub target_per_second: Option<f64>,
    /// `constant` or `poisson`.
    pub arrivals: Option<String>,
    /// Arrivals of the measured part.
    pub arrivals_total: Option<u64>,
    /// Arrivals that were never sent: the queue was full, or they were still in it at the end.
    pub arrivals_skipped: Option<u64>,
    /// Longest queue.
    pub waiting_max: Option<u64>,
}

/// Durations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// The warm-up before the measured part.
    pub warmup_seconds: f64,
    /// From the end of the warm-up to the last response.
    pub measured_seconds: f64,
    /// The part of it after the last operation was sent.
    pub drain_seconds: f64,
}

/// Work done per second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Throughput {
    /// Successful operations of the measured part.
    pub operations: u64,
    /// The same, per second.
    pub operations_per_second: f64,
    /// The same in other units.
    pub units: Vec<UnitRate>,
}

/// Work in one unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnitRate {
    /// `documents`, `bytes`, `blocks`, `transactions`.
    pub name: String,
    /// In the measured part.
    pub total: u64,
    /// Per second of the measured part.
    pub per_second: f64,
}

/// One kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperationResult {
    /// `READ`, `UPDATE` …
    pub name: String,
    /// Successful ones.
    pub ok: u64,
    /// Failed ones.
    pub failed: u64,
    /// Successful ones per measured second.
    pub per_second: f64,
    /// From sending to the response.
    pub service: Latency,
    /// From the intended start to the response; open loop only.
    pub intended: Option<Latency>,
    /// From sending to the response, of failed operations.
    pub failed_service: Option<Latency>,
    /// Server processor time, if only this kind ran while it was measured.
    #[serde(default)]
    pub server_cpu_us_per_operation: Option<f64>,
}

/// A distribution of latencies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Operations in it.
    pub count: u64,
    /// Shortest.
    pub min_us: Option<f64>,
    pub mean_us: Option<f64>,
    /// Standard deviation.
    pub stddev_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 95th percentile.
    pub p95_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// 99.99th percentile.
    pub p9999_us: Option<f64>,
    /// Longest.
    pub max_us: Option<f64>,
    /// `[percentile, µs, operations at or below]`, ascending.
    pub curve: Vec<(f64, f64, u64)>,
    /// HdrHistogram V2, deflated, base64, in nanoseconds.
    pub hdr: Option<String>,
}

/// Failed operations of one kind and cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorTally {
    /// Name of the operation.
    pub operation: String,
    /// The class, see the format page.
    pub kind: String,
    /// How many.
    pub count: u64,
    pub first_message: String,
}

/// One point per second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Series {
    /// Always 1.
    pub interval_seconds: f64,
    /// Ascending by second.
    pub points: Vec<Point>,
}

/// Variation during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stability {
    /// Standard deviation of the operations per second, divided by their mean.
    pub variation: f64,
    /// The worst second, divided by the mean.
    pub lowest_share: f64,
    /// The last third of the run divided by the first; null if the first had no operations.
    pub last_by_first: Option<f64>,
}

/// One second of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// 0 is the first measured second; negative ones are warm-up.
    pub second: i64,
    /// Successful operations answered in it.
    pub ok: u64,
    /// Failed ones.
    pub failed: u64,
    /// Arrivals dropped in it.
    pub skipped: u64,
    /// Arrivals waiting at its end; open loop only.
    pub waiting: Option<u64>,
    /// Operations in flight at its end.
    pub in_flight: u64,
    /// Processor time, as a share of one core.
    pub client_cpu_share: Option<f64>,
    /// Processor time of all servers together, as a share of one core.
    pub server_cpu_share: Option<f64>,
    /// Resident size of all servers together.
    pub server_memory_bytes: Option<u64>,
    /// Increase within the second.
    pub log_appends: Option<u64>,
    /// Increase within the second.
    pub log_fsyncs: Option<u64>,
    /// Increase within the second.
    pub server_written_bytes: Option<u64>,
    /// Latencies by kind of operation.
    pub operations: Vec<PointLatency>,
}

/// Latencies of one kind of operation in one second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PointLatency {
    /// Name of the operation.
    pub name: String,
    /// Successful ones.
    pub ok: u64,
    /// Median service time.
    pub p50_us: f64,
    /// 95th percentile of service time.
    pub p95_us: f64,
    /// 99th percentile of service time.
    pub p99_us: f64,
    /// Longest service time.
    pub max_us: f64,
    /// Median from the intended start.
    pub intended_p50_us: Option<f64>,
    /// 99th percentile from the intended start.
    pub intended_p99_us: Option<f64>,
    /// Longest from the intended start.
    pub intended_max_us: Option<f64>,
}

/// One timing of a repeated query.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimedRun {
    /// From sending the query to reading its response.
    pub ms: f64,
    /// Server processor time in the meantime.
    pub server_cpu_ms: Option<f64>,
    /// The number that the query returned.
    pub answer: f64,
}

/// A figure, with its bar if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    /// Null if it could not be measured.
    pub value: Option<f64>,
    /// Empty for a ratio or a count.
    pub unit: String,
    /// The highest allowed value.
    pub bar: Option<f64>,
    /// Whether the value is within its bar; null without a bar or a value.
    pub ok: Option<bool>,
}

/// A checked answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckOutcome {
    /// The checked quantity.
    pub name: String,
    pub expected: f64,
    /// The actual value.
    pub found: f64,
    /// Whether the check passed.
    pub ok: bool,
    /// The origin of `expected`.
    pub source: String,
}

/// How responses were checked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Responses of which only the type was checked.
    pub checked_by_type: u64,
    /// Responses that were parsed and compared.
    pub parsed: u64,
    /// Wrong ones among these.
    pub wrong: u64,
    pub first_wrong: Option<String>,
    /// Outcome of `dataintegrity`.
    pub integrity: Option<Integrity>,
}

/// Outcome of YCSB's `dataintegrity`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Integrity {
    /// Values as expected.
    pub ok: u64,
    /// Other values.
    pub unexpected_state: u64,
    /// No row.
    pub error: u64,
}

/// Resources used by the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientUse {
    /// Processor time.
    pub cpu_seconds: f64,
    /// The part in user mode.
    pub user_seconds: f64,
    /// The part in the kernel.
    pub system_seconds: f64,
    /// Threads that drove connections.
    pub threads: usize,
    /// Processor time of the busiest thread, as a share of one core.
    pub busiest_thread_share: f64,
    /// Share of the time in which its threads were ready and had no core.
    #[serde(default)]
    pub waiting_share: Option<f64>,
    /// Highest resident size.
    pub peak_memory_bytes: u64,
    /// Bytes of queries.
    pub sent_bytes: u64,
    /// Bytes of responses.
    pub received_bytes: u64,
}

/// Resources used by a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ServerUse {
    /// Host and driver port.
    pub address: String,
    /// `proc`, `metrics` or `none`.
    pub source: String,
    /// Process id on this machine.
    pub pid: Option<u32>,
    /// Processors of its machine, if it is this machine.
    pub cores: Option<usize>,
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Processor time, as a share of all its processors.
    pub cpu_share: Option<f64>,
    /// Highest resident size since its start.
    pub peak_memory_bytes: Option<u64>,
    /// Resident size at the end.
    pub memory_bytes: Option<u64>,
    /// Bytes written to disk.
    pub written_bytes: Option<u64>,
    /// Bytes read from disk.
    pub read_bytes: Option<u64>,
    /// Entries appended to the log.
    pub log_appends: Option<u64>,
    /// Syncs of the log.
    pub log_fsyncs: Option<u64>,
}

/// Log counters, summed over all servers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LogUse {
    /// At the start of the measured part.
    pub appends_before: u64,
    /// At its end.
    pub appends_after: u64,
    /// At its start.
    pub fsyncs_before: u64,
    /// At its end.
    pub fsyncs_after: u64,
    /// Writes acknowledged to the client in the meantime.
    pub acknowledged_writes: u64,
    /// Null when there was no sync.
    pub acknowledged_writes_per_fsync: Option<f64>,
}

/// Resources divided by work.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Server processor time.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Client processor time.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Operations per second of server processor time.
    pub operations_per_server_cpu_second: Option<f64>,
    /// Documents per second of server processor time.
    pub documents_per_server_cpu_second: Option<f64>,
    /// Bytes written to disk.
    pub written_bytes_per_operation: Option<f64>,
}

/// The same client against a server that only echoes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EchoBaseline {
    /// The client's ceiling.
    pub operations_per_second: f64,
    /// The cost of the system calls alone for a server.
    pub server_cpu_us_per_operation: f64,
    /// The cost of the system calls alone for the client.
    pub client_cpu_us_per_operation: f64,
    /// Bytes of a query frame.
    pub request_bytes: usize,
    /// Bytes of a response frame.
    pub response_bytes: usize,
}

/// The hardware and the system of the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu_model: String,
    /// Processors this program may use.
    pub cores: usize,
    /// Installed memory.
    pub memory_bytes: u64,
    /// Name and release.
    pub kernel: String,
    /// Distribution.
    pub os: String,
    /// Whether all servers run on it.
    pub server_is_local: bool,
}

/// Versions of client and server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Versions {
    /// Version of the benchmark.
    pub bench: String,
    /// Of the server, from its handshake.
    pub server: Option<String>,
    /// Name of the first server.
    pub server_name: Option<String>,
    /// Id of the first server.
    pub server_id: Option<String>,
}

/// A reason not to take the numbers at face value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// The kind, see the format page.
    pub kind: String,
    pub message: String,
}
