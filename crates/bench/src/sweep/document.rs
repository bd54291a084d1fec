//! One sweep as JSON: the contract of `docs/formats/bench-sweep.md`, member by member. No logic here.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::usl::Fit;
use crate::result::{Alarm, Latency, Machine};

/// The value of `format` in every sweep.
pub const FORMAT: &str = "rekindle-bench-sweep";
/// The value of `format_version` in sweeps written by this version.
pub const FORMAT_VERSION: u32 = 1;

/// One sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SweepResult {
    /// Always [`FORMAT`].
    pub format: String,
    /// At most [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Unique, safe as a file name.
    pub id: String,
    /// What `--label` said.
    pub label: String,
    /// The command line, passwords hidden.
    pub command: Vec<String>,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC.
    pub ended_at: String,
    /// What was measured.
    pub target: Target,
    /// How nodes were made equal.
    pub quota: QuotaUse,
    /// Every setting in force.
    pub settings: Map<String, Value>,
    /// The client's machine.
    pub machine: Machine,
    /// One per workload.
    pub series: Vec<Series>,
    /// What the project wants of itself, where the sizes allow to say.
    pub bars: Vec<Bar>,
    /// Sentences a reader of the numbers must know.
    pub notes: Vec<String>,
    /// Reasons not to take the numbers at face value, each said once.
    pub alarms: Vec<Alarm>,
}

/// The server that was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// The program that was started; null for clusters that ran already.
    pub binary: Option<String>,
    /// Version from its handshake.
    pub version: Option<String>,
}

/// How nodes were made equal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaUse {
    /// `cgroup-v1`, `cgroup-v2` or `none`.
    pub kind: String,
    /// Share of one core that each node had.
    pub core_share: Option<f64>,
    /// Processor time per period.
    pub quota_us: Option<u64>,
    /// The period.
    pub period_us: Option<u64>,
    /// Why there was none.
    pub why_none: Option<String>,
    /// `batch` where client and nodes did not take a core from each other; sweeps of earlier versions have none.
    #[serde(default)]
    pub scheduling: Option<String>,
    /// Why they did although they had equal shares.
    #[serde(default)]
    pub why_not_batch: Option<String>,
}

/// One workload at every size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// `a`, `c-sync`, `c-outdated`, `analytic`: the names of the published series.
    pub workload: String,
    /// Title for people.
    pub name: String,
    /// What `per_second` counts.
    pub unit: String,
    /// Speed-up is against this size.
    pub base_nodes: Option<usize>,
    /// Ascending by nodes.
    pub points: Vec<Point>,
    /// The law fitted to what was measured.
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
    /// Replicas of each.
    pub replicas: u32,
    /// `id` of the run behind it: of several rounds the one in the middle, of an even number the slower of two.
    pub run: String,
    /// Work per second.
    pub per_second: f64,
    /// Work per second of each round up to the last one that went well, in their order, with nothing for those that
    /// did not; empty where a sweep of before there were rounds is read.
    #[serde(default)]
    pub rounds: Vec<Option<f64>>,
    /// Against the base; null below it.
    pub speed_up: Option<f64>,
    /// Speed-up by growth in nodes.
    pub efficiency: Option<f64>,
    /// The published figure at this size.
    pub published: Option<PublishedPoint>,
    /// By kind of operation; curves uncut, without histogram.
    pub latency: Vec<NamedLatency>,
    /// Processor time of all servers for one operation.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Processor time of the client for one operation.
    pub client_cpu_us_per_operation: Option<f64>,
    /// Bytes to disk of all servers for one operation.
    pub written_bytes_per_operation: Option<f64>,
    /// Bytes between the servers for one operation, warm-up included.
    pub link_bytes_per_operation: Option<f64>,
    /// What each node had of it.
    pub by_node: Vec<NodeUse>,
    /// The busiest client thread, of one core.
    pub client_busiest_thread_share: f64,
    /// Time client threads waited for a core, of their time.
    pub client_waiting_share: Option<f64>,
    /// What programs that are neither client nor server used meanwhile, of one core.
    pub others_core_share: Option<f64>,
    /// Operations that failed.
    pub failed: u64,
    /// Alarms of the run and of its surroundings.
    pub alarms: Vec<Alarm>,
}

/// What was published at one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishedPoint {
    /// Work per second, raw data.
    pub per_second: f64,
    /// Against the same base.
    pub speed_up: Option<f64>,
    /// Speed-up by growth in nodes.
    pub efficiency: Option<f64>,
}

/// Latencies of one kind of operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedLatency {
    /// `READ`, `UPDATE`, `QUERY`.
    pub name: String,
    /// Written to answered.
    pub service: Latency,
}

/// What one node used. Over all nodes of a point, the figures per operation add up to the point's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeUse {
    /// Host and driver port.
    pub address: String,
    /// Of one core.
    pub core_share: Option<f64>,
    /// Its processor time by the operations of the whole cluster.
    pub cpu_us_per_operation: Option<f64>,
    /// Its bytes to disk by the operations of the whole cluster.
    pub written_bytes_per_operation: Option<f64>,
    /// Bytes that it sent to others by the operations of the whole cluster, warm-up included.
    #[serde(default)]
    pub link_bytes_per_operation: Option<f64>,
    /// Resident size at the end.
    pub memory_bytes: Option<u64>,
}

/// One thing the project wants of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What is compared.
    pub name: String,
    /// `at least` or `at most`.
    pub relation: String,
    /// The bar.
    pub wanted: f64,
    /// What was measured.
    pub found: f64,
    /// The same ratio of the published figures.
    pub published: Option<f64>,
    /// Whether it is met.
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
