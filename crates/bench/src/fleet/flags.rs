//! Flags of the commands that start their own clusters.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};

use super::FleetPlan;
use super::requirements::{MachineResources, Requirements, UnmetRequirement};
use super::sharing::Sharing;
use crate::limits::at_least_one;
use crate::machine::cgroup::{Quota, SHARE_MIN};
use crate::machine::facts;
use crate::secrets;

/// How nodes on this machine are started.
#[derive(Args, Clone, Debug)]
pub struct NodeFlags {
    /// Program to start instead of this one; it must take RethinkDB's flags
    #[arg(long, value_name = "PATH")]
    pub target_binary: Option<PathBuf>,
    /// Another flag for every node, as --node-flag=--name=value; may be repeated
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub node_flag: Vec<String>,
    /// Added to every port of the first node; each further node has the next port
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub port_offset: u16,
    /// Memory for the caches of each node, in megabytes [default: 512; in a sweep at least as much per document as the
    /// published servers had]
    #[arg(long, value_name = "MB", value_parser = at_least_one::<u64>)]
    pub cache_size: Option<u64>,
}

/// The same for commands that limit the processor time of nodes during a measurement.
#[derive(Args, Clone, Debug)]
pub struct FleetFlags {
    /// How they are started.
    #[command(flatten)]
    pub nodes: NodeFlags,
    /// Share of one core that each node gets during a measurement; the machine must have room for all nodes and the
    /// client, which uses up to half as much as all nodes
    #[arg(long, value_name = "SHARE", default_value_t = 0.07, value_parser = core_share)]
    pub core_share: f64,
    /// Do not limit the nodes
    #[arg(long)]
    pub no_quota: bool,
}

/// The default cache size of a node in megabytes.
const CACHE_MB: u64 = 512;

/// Parses a share of a core that the kernel can enforce.
fn core_share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| share.is_finite() && *share >= SHARE_MIN);
    share.ok_or_else(|| {
        format!("expected a share of a core of at least {SHARE_MIN}, the least that the kernel gives")
    })
}

impl NodeFlags {
    /// Memory for the caches of each node, in megabytes.
    pub fn cache_mb(&self) -> u64 {
        self.cache_size.unwrap_or(CACHE_MB)
    }

    /// Gives each of `nodes` its part of the machine's cores, at least one, unless the user gave --cores.
    pub fn share_cores(&mut self, nodes: usize) {
        if !self.has_cores_flag() {
            let each = (facts::cores() / nodes.max(1)).max(1);
            self.node_flag.extend(["--cores".to_owned(), each.to_string()]);
        }
    }

    fn has_cores_flag(&self) -> bool {
        self.node_flag.iter().any(|flag| flag.starts_with("--cores") || flag.starts_with("-c"))
    }

    /// Fails, with advice, if this machine cannot run `nodes` at the same time without limits.
    pub fn fit(&self, nodes: usize) -> Result<(), UnmetRequirement> {
        self.fit_with(nodes, None)
    }

    fn fit_with(&self, nodes: usize, core_share: Option<f64>) -> Result<(), UnmetRequirement> {
        let needs = Requirements {
            nodes,
            core_share,
            cache_mb: self.cache_mb(),
            port_offset: self.port_offset,
            binary: self.target_binary.as_deref(),
        };
        needs.fit(MachineResources { cores: facts::cores(), memory_bytes: facts::memory_bytes() })
    }

    /// A fleet of `nodes` with its data in `folder`.
    pub fn plan(&self, nodes: usize, folder: &Path) -> anyhow::Result<FleetPlan> {
        let own = std::env::current_exe().context("finding this program")?;
        Ok(FleetPlan {
            binary: self.target_binary.clone().unwrap_or(own),
            folder: folder.to_owned(),
            nodes,
            port_offset: self.port_offset,
            cache_mb: self.cache_mb(),
            flags: self.node_flag.clone(),
            group: None,
        })
    }

    /// The settings of these flags for the result, under the flags' names.
    pub fn describe(&self) -> Map<String, Value> {
        self.describe_with(&self.node_flag)
    }

    fn describe_with(&self, node_flags: &[String]) -> Map<String, Value> {
        let described = json!({
            "target-binary": self.target_binary.as_ref().map(|path| path.display().to_string()),
            "node-flag": secrets::without_passwords(node_flags.to_vec()).join(" "),
            "port-offset": self.port_offset,
            "cache-size": self.cache_mb(),
        });
        described.as_object().cloned().unwrap_or_default()
    }
}

impl FleetFlags {
    /// Memory for the caches of each node, in megabytes.
    pub fn cache_mb(&self) -> u64 {
        self.nodes.cache_mb()
    }

    /// Raises the cache size to that of a published server for `documents`, unless the user gave one: `--cache-size
    /// 64000` for 25,000,000, which all fitted into memory. With smaller caches, a single node would be slow for lack
    /// of memory, unlike the nodes of larger clusters.
    pub fn raise_cache_for(&mut self, documents: u64) {
        let published = documents.saturating_mul(64_000) / 25_000_000;
        self.nodes.cache_size.get_or_insert(published.max(CACHE_MB));
    }

    /// Fails, with advice, if this machine cannot run `nodes` at the same time, each limited to its share.
    pub fn fit_limited(&self, nodes: usize) -> Result<(), UnmetRequirement> {
        self.nodes.fit_with(nodes, self.share())
    }

    /// A fleet of `nodes` with its data in `folder`, without limits.
    pub fn plan(&self, nodes: usize, folder: &Path) -> anyhow::Result<FleetPlan> {
        self.nodes.plan(nodes, folder)
    }

    /// The same for nodes that will be limited to their share.
    pub fn limited_plan(&self, nodes: usize, folder: &Path) -> anyhow::Result<FleetPlan> {
        Ok(FleetPlan { flags: self.node_flags(), ..self.plan(nodes, folder)? })
    }

    /// The flags of every node that will be limited. It gets --cores for its share, unless the user gave that flag:
    /// otherwise it would have a thread for each core of the machine.
    pub fn node_flags(&self) -> Vec<String> {
        let cores = match self.share() {
            Some(share) if !self.nodes.has_cores_flag() => {
                vec!["--cores".to_owned(), format!("{}", share.ceil())]
            }
            _ => Vec::new(),
        };
        [cores, self.nodes.node_flag.clone()].concat()
    }

    /// The settings of these flags for the result, under the flags' names.
    pub fn describe(&self) -> Map<String, Value> {
        let mut described = self.nodes.describe_with(&self.node_flags());
        described.insert("core-share".to_owned(), json!(self.share()));
        described.insert("no-quota".to_owned(), json!(self.no_quota));
        described
    }

    /// Sets up how nodes and client share this machine's cores.
    pub fn begin_sharing(&self) -> Sharing {
        Sharing::begin(self.share())
    }

    /// The share of a core for each node, if limited.
    pub fn share(&self) -> Option<f64> {
        (!self.no_quota).then_some(self.core_share)
    }

    /// That share in the form of the kernel.
    pub fn quota(&self) -> Option<Quota> {
        self.share().map(Quota::of_core)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        fleet: FleetFlags,
    }

    fn flags_of(line: &[&str]) -> Vec<String> {
        let line = Line::parse_from([&["bench"], line].concat());
        line.fleet.limited_plan(1, Path::new("data")).unwrap().flags
    }

    #[test]
    fn a_node_gets_its_number_of_cores_from_its_share() {
        assert_eq!(flags_of(&[]), ["--cores", "1"]);
        assert_eq!(flags_of(&["--core-share", "1.5"]), ["--cores", "2"]);
        assert_eq!(flags_of(&["--no-quota"]), [""; 0]);
    }

    #[test]
    fn a_share_that_the_kernel_cannot_give_is_refused() {
        for share in ["0.0001", "0", "-1", "x", "NaN"] {
            let line = ["bench".to_owned(), format!("--core-share={share}")];
            let why = Line::try_parse_from(line).map(drop).expect_err("it is refused").to_string();
            assert!(why.contains("at least 0.001"), "{why}");
        }
        assert_eq!(Quota::of_core(core_share("0.001").expect("a share")).quota_us, 1_000);
    }

    #[test]
    fn a_given_cache_size_takes_precedence() {
        let cache = |line: &[&str], documents: u64| {
            let mut line = Line::parse_from([&["bench"], line].concat());
            line.fleet.raise_cache_for(documents);
            line.fleet.plan(1, Path::new("data")).unwrap().cache_mb
        };
        assert_eq!(cache(&[], 20_000), 512);
        assert_eq!(cache(&[], 250_000), 640);
        assert_eq!(cache(&["--cache-size", "64"], 250_000), 64);
    }

    #[test]
    fn nodes_that_share_a_machine_have_a_core_each_at_least() {
        let cores = |line: &[&str]| {
            let mut line = Line::parse_from([&["bench"], line].concat());
            line.fleet.nodes.share_cores(10_000);
            line.fleet.plan(1, Path::new("data")).unwrap().flags
        };
        assert_eq!(cores(&[]), ["--cores", "1"]);
        assert_eq!(cores(&["--node-flag=-c3"]), ["-c3"]);
    }

    #[test]
    fn a_given_number_of_cores_takes_precedence() {
        for flag in ["--cores=3", "-c3"] {
            let flag = format!("--node-flag={flag}");
            assert_eq!(flags_of(&[&flag]), [flag.trim_start_matches("--node-flag=")]);
        }
    }

    #[test]
    fn a_result_has_the_arguments_of_nodes_without_passwords() {
        let line = ["--node-flag=--initial-password=secret", "--node-flag=--Password", "--node-flag=-secret"];
        let line = [&["bench", "--target-binary", "/opt/db", "--node-flag=--log=all"], &line[..]].concat();
        let described = Line::parse_from(line).fleet.describe();
        let flags = "--cores 1 --log=all --initial-password=*** --Password ***";
        let wanted = json!({
            "target-binary": "/opt/db",
            "node-flag": flags,
            "port-offset": 400,
            "cache-size": 512,
            "core-share": 0.07,
            "no-quota": false,
        });
        assert_eq!(Value::Object(described), wanted);
    }
}
