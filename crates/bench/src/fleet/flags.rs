//! Flags of the commands that start clusters of their own.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};

use super::FleetPlan;
use super::fits::{Has, Needs, Unfit};
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
    /// Added to every port of the first node; each further node has one more
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub port_offset: u16,
    /// Memory for the caches of each node, in megabytes: 512 if not given, and in a sweep as much for each document as
    /// the published servers had, if that is more
    #[arg(long, value_name = "MB", value_parser = at_least_one::<u64>)]
    pub cache_size: Option<u64>,
}

/// The same where nodes are limited while they are measured.
#[derive(Args, Clone, Debug)]
pub struct FleetFlags {
    /// How they are started.
    #[command(flatten)]
    pub nodes: NodeFlags,
    /// Share of one core that each node gets while it is measured; together with the client, which takes up to half as
    /// much as all nodes, they must find room on the machine
    #[arg(long, value_name = "SHARE", default_value_t = 0.07, value_parser = core_share)]
    pub core_share: f64,
    /// Let the nodes have what the machine has
    #[arg(long)]
    pub no_quota: bool,
}

/// Memory for the caches of a node if nothing else is said, in megabytes.
const CACHE_MB: u64 = 512;

/// A share of a core that the kernel can give.
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

    /// From now on each of `nodes` has its part of the machine's cores, one at least, unless the user says how many.
    pub fn share_cores(&mut self, nodes: usize) {
        if !self.says_cores() {
            let each = (facts::cores() / nodes.max(1)).max(1);
            self.node_flag.extend(["--cores".to_owned(), each.to_string()]);
        }
    }

    fn says_cores(&self) -> bool {
        self.node_flag.iter().any(|flag| flag.starts_with("--cores") || flag.starts_with("-c"))
    }

    /// Fails, with what to change, where this machine cannot have `nodes` at the same time, each with all of the
    /// machine.
    pub fn fit(&self, nodes: usize) -> Result<(), Unfit> {
        self.fit_with(nodes, None)
    }

    fn fit_with(&self, nodes: usize, core_share: Option<f64>) -> Result<(), Unfit> {
        let needs = Needs {
            nodes,
            core_share,
            cache_mb: self.cache_mb(),
            port_offset: self.port_offset,
            binary: self.target_binary.as_deref(),
        };
        needs.fit(Has { cores: facts::cores(), memory_bytes: facts::memory_bytes() })
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
        })
    }

    /// What a result says about these flags, under their names.
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

    /// From now on each node has at least as much for its caches as a published server had for `documents`, unless the
    /// user said how much: `--cache-size 64000` for 25,000,000, which all fitted into one. With less a single node would
    /// be slow for want of memory, and the others fast.
    pub fn want_caches_for(&mut self, documents: u64) {
        let published = documents.saturating_mul(64_000) / 25_000_000;
        self.nodes.cache_size.get_or_insert(published.max(CACHE_MB));
    }

    /// Fails, with what to change, where this machine cannot have `nodes` at the same time, each limited to its share.
    pub fn fit_limited(&self, nodes: usize) -> Result<(), Unfit> {
        self.nodes.fit_with(nodes, self.share())
    }

    /// A fleet of `nodes` with its data in `folder`, whose nodes have all of the machine.
    pub fn plan(&self, nodes: usize, folder: &Path) -> anyhow::Result<FleetPlan> {
        self.nodes.plan(nodes, folder)
    }

    /// The same for nodes that will be limited to their share.
    pub fn limited_plan(&self, nodes: usize, folder: &Path) -> anyhow::Result<FleetPlan> {
        Ok(FleetPlan { flags: self.node_flags(), ..self.plan(nodes, folder)? })
    }

    /// Flags of every node that will be limited. One that gets less than the machine has is told so, unless the user
    /// says how many cores it has: otherwise it has a thread for each core of the machine.
    pub fn node_flags(&self) -> Vec<String> {
        let told = match self.share() {
            Some(share) if !self.nodes.says_cores() => {
                vec!["--cores".to_owned(), format!("{}", share.ceil())]
            }
            _ => Vec::new(),
        };
        [told, self.nodes.node_flag.clone()].concat()
    }

    /// What a result says about these flags and those of nodes that are limited, under their names.
    pub fn describe(&self) -> Map<String, Value> {
        let mut described = self.nodes.describe_with(&self.node_flags());
        described.insert("core-share".to_owned(), json!(self.share()));
        described.insert("no-quota".to_owned(), json!(self.no_quota));
        described
    }

    /// Arranges how nodes and client share this machine's cores from now on.
    pub fn begin_sharing(&self) -> Sharing {
        Sharing::begin(self.share())
    }

    /// The share of a core that nodes are to have, if any.
    pub fn share(&self) -> Option<f64> {
        (!self.no_quota).then_some(self.core_share)
    }

    /// That share as the kernel takes it.
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
    fn a_node_is_told_how_many_cores_its_share_fills() {
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
    fn what_the_user_says_of_caches_holds() {
        let cache = |line: &[&str], documents: u64| {
            let mut line = Line::parse_from([&["bench"], line].concat());
            line.fleet.want_caches_for(documents);
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
    fn what_the_user_says_of_cores_holds() {
        for flag in ["--cores=3", "-c3"] {
            let flag = format!("--node-flag={flag}");
            assert_eq!(flags_of(&[&flag]), [flag.trim_start_matches("--node-flag=")]);
        }
    }

    #[test]
    fn a_result_says_how_nodes_were_started_but_no_password() {
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
