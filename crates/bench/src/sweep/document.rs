//! One sweep as JSON: the contract of `docs/formats/bench-sweep.md`, member by member. No logic here.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::usl::Fit;
use crate::result::{Alarm, Latency, Machine};

/// The value of `format` in every sweep.
pub const FORMAT: &str = "rekindle-bench-sweep";
/// The value of `format_version` in sweeps written by this version.
pub const FORMAT_VERSION: u32 = 1;

/// The result file of a sweep: every workload at every size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SweepResult {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Unique, safe as a file name.
    pub id: String,
    /// The value of `--label`.
    pub label: String,
    /// The command line, without passwords.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// The measured server.
    pub target: Target,
    /// The limits of the nodes.
    pub quota: QuotaUse,
    /// All settings in effect.
    pub settings: Map<String, Value>,
    /// The client's machine.
    pub machine: Machine,
    /// One per workload.
    pub series: Vec<Series>,
    /// The project's goals, as far as the measured sizes allow a verdict.
    pub bars: Vec<Bar>,
    /// Remarks that are needed to read the numbers.
    pub notes: Vec<String>,
    /// Reasons not to take the numbers at face value, each listed once.
    pub alarms: Vec<Alarm>,
}

/// The measured server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// The program that was started; null for given clusters.
    pub binary: Option<String>,
    /// Version from its handshake.
    pub version: Option<String>,
}

/// The limits of the nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaUse {
    /// `cgroup-v1`, `cgroup-v2` or `none`.
    pub kind: String,
    /// Share of one core for each node.
    pub core_share: Option<f64>,
    /// Processor time per period.
    pub quota_us: Option<u64>,
    pub period_us: Option<u64>,
    /// Why there are no limits.
    pub why_none: Option<String>,
    /// `batch` if client and nodes did not preempt each other; absent in sweeps of earlier versions.
    #[serde(default)]
    pub scheduling: Option<String>,
    /// Why they did, although nodes had equal shares.
    #[serde(default)]
    pub why_not_batch: Option<String>,
}

/// One workload at every size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// `a`, `c-sync`, `c-outdated`, `analytic`: the names of the published series.
    pub workload: String,
    /// Title.
    pub name: String,
    /// The unit of `per_second`.
    pub unit: String,
    /// The size that speed-up refers to.
    pub base_nodes: Option<usize>,
    /// Ascending by nodes.
    pub points: Vec<Point>,
    /// The law fitted to the measured points.
    pub fit: Fit,
    /// The law fitted to the published figures of all published sizes.
    pub published_fit: Fit,
}

/// One workload at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Servers of the cluster.
    pub nodes: usize,
    /// Shards of the table.
    pub shards: u32,
    /// The number of replicas of each shard.
    pub replicas: u32,
    /// `id` of the run: the median of several rounds, for an even number the slower of the two in the middle.
    pub run: String,
    /// Work per second.
    pub per_second: f64,
    /// Work per second of each round up to the last successful one, in order, with null for failed rounds; empty in
    /// sweeps of earlier versions without rounds.
    #[serde(default)]
    pub rounds: Vec<Option<f64>>,
    /// Relative to the base; null below it.
    pub speed_up: Option<f64>,
    /// Speed-up divided by the growth in nodes.
    pub efficiency: Option<f64>,
    /// The published figure at this size.
    pub published: Option<PublishedPoint>,
    /// By kind of operation; full curves, without histogram.
    pub latency: Vec<NamedLatency>,
    /// Processor time of all servers per operation.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Processor time of the client per operation.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Bytes that all servers wrote to disk per operation.
    pub written_bytes_per_operation: Option<f64>,
    /// Bytes between the servers per operation, warm-up included.
    pub link_bytes_per_operation: Option<f64>,
    pub by_node: Vec<NodeUse>,
    /// The busiest client thread, as a share of one core.
    pub client_busiest_thread_share: f64,
    /// Share of the time in which client threads waited for a core.
    pub client_waiting_share: Option<f64>,
    /// Processor time of programs other than client and servers, as a share of one core.
    pub others_core_share: Option<f64>,
    /// Failed operations.
    pub failed: u64,
    /// Alarms of the run and of its conditions.
    pub alarms: Vec<Alarm>,
}

/// The published figure at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishedPoint {
    /// Work per second, from the raw data.
    pub per_second: f64,
    /// Relative to the same base.
    pub speed_up: Option<f64>,
    /// Speed-up divided by the growth in nodes.
    pub efficiency: Option<f64>,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedLatency {
    /// `READ`, `UPDATE`, `QUERY`.
    pub name: String,
    /// From sending to the response.
    pub service: Latency,
}

/// The use of one node. Summed over all nodes of a point, the figures per operation give the figures of the point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeUse {
    /// Host and driver port.
    pub address: String,
    /// Processor time, as a share of one core.
    pub core_share: Option<f64>,
    /// Its processor time, divided by the operations of the whole cluster.
    pub cpu_us_per_operation: Option<f64>,
    /// Its bytes written to disk, divided by the operations of the whole cluster.
    pub written_bytes_per_operation: Option<f64>,
    /// Bytes that it sent to others, divided by the operations of the whole cluster, warm-up included.
    #[serde(default)]
    pub link_bytes_per_operation: Option<f64>,
    /// Resident size at the end.
    pub memory_bytes: Option<u64>,
}

/// One of the project's goals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// The compared quantities.
    pub name: String,
    /// `at least` or `at most`.
    pub relation: String,
    /// The goal.
    pub wanted: f64,
    /// The measured value.
    pub found: f64,
    /// The same ratio of published figures.
    pub published: Option<f64>,
    /// Whether the goal is met.
    pub ok: bool,
}

#[cfg(test)]
mod tests {
    use super::QuotaUse;

    #[test]
    fn a_quota_of_an_older_sweep_is_read() {
        let text = r#"{"kind": "cgroup-v1", "core_share": 0.05, "quota_us": 2000, "period_us": 40000, "why_none": null}"#;
        let quota: QuotaUse = serde_json::from_str(text).expect("the format promises it");
        assert_eq!((quota.quota_us, quota.scheduling, quota.why_not_batch), (Some(2000), None, None));
    }
}
