//! Clusters that the benchmark starts on this machine: nodes of a program that takes RethinkDB's flags, each with its
//! data folder, ports and share of processor time. Dropping a fleet stops its nodes.

pub mod flags;
mod node;
mod ports;
pub mod requirements;
pub mod sharing;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use client::admin::Admin;
use client::handshake::Login;
use client::terms;
use serde_json::Value;

use crate::machine::cgroup::{CpuGroups, Quota};
use crate::machine::cleanup::{self, CleanupGuard};
use crate::machine::watch::HTTP_PORT;
use node::{Node, NodePlan};

/// Ports of RethinkDB before `--port-offset`. The cluster port is the highest; [`requirements`] checks that it exists.
const DRIVER_PORT: u16 = 28015;
const CLUSTER_PORT: u16 = 29015;
/// Even a busy machine starts sixteen nodes in less.
const START_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The parameters of a fleet.
#[derive(Clone, Debug)]
pub struct FleetPlan {
    /// The program; it takes RethinkDB's flags.
    pub binary: PathBuf,
    /// The parent of the data folders.
    pub folder: PathBuf,
    pub nodes: usize,
    /// `--port-offset` of the first node; the next node has the next offset.
    pub port_offset: u16,
    /// `--cache-size` of each, in megabytes.
    pub cache_mb: u64,
    /// Further flags of every node.
    pub flags: Vec<String>,
    /// The file that takes the process ids of a control group that all nodes share; a group of each node's own is
    /// preferred.
    pub group: Option<PathBuf>,
}

/// A running cluster.
pub struct Fleet {
    nodes: Vec<Node>,
    plan: FleetPlan,
}

impl Fleet {
    /// Starts the nodes, each in a group of `groups` if given, and waits until every node sees all others. An error has
    /// the last output of the node that failed. Fails before anything is started if one of their ports is in use,
    /// because another program's tables must not be overwritten.
    pub fn start(plan: &FleetPlan, mut groups: Option<&mut CpuGroups>) -> anyhow::Result<Fleet> {
        ports::are_free(plan)?;
        let mut fleet = Fleet { nodes: Vec::new(), plan: plan.clone() };
        for number in 0..plan.nodes {
            let offset = plan.port_offset + number as u16;
            // The offset is unique, also among the nodes of several clusters.
            let group = match groups.as_deref_mut() {
                Some(groups) => Some(groups.add(&format!("node{offset}")).context("making a control group")?),
                None => plan.group.clone(),
            };
            fleet.nodes.push(Node::start(&NodePlan {
                binary: plan.binary.clone(),
                folder: plan.folder.join(format!("node{number}")),
                name: format!("node{number}"),
                port_offset: offset,
                join: (number > 0).then(|| format!("127.0.0.1:{}", CLUSTER_PORT + plan.port_offset)),
                cache_mb: plan.cache_mb,
                flags: plan.flags.clone(),
                group,
            })?);
            if number == 0 {
                // The others join the first one, so it must be ready.
                fleet.wait_for(number, 1)?;
            }
        }
        for number in 0..plan.nodes {
            fleet.wait_for(number, plan.nodes)?;
        }
        Ok(fleet)
    }

    /// Host and driver port of each node.
    pub fn addresses(&self) -> Vec<String> {
        let port = |number: usize| DRIVER_PORT + self.plan.port_offset + number as u16;
        (0..self.nodes.len()).map(|number| format!("127.0.0.1:{}", port(number))).collect()
    }

    /// The metrics page of each node, if the program has one.
    pub fn metrics_urls(&self) -> Vec<String> {
        let port = |number: usize| HTTP_PORT + self.plan.port_offset + number as u16;
        (0..self.nodes.len()).map(|n| format!("http://127.0.0.1:{}/metrics", port(n))).collect()
    }

    /// The nodes that have ended on their own, with their last output. Does not return once a signal ends this program,
    /// and the nodes with it.
    pub fn dead(&self) -> Vec<String> {
        cleanup::unless_ending(|| self.nodes.iter().filter_map(Node::ended).collect())
    }

    /// Data folder of each node.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(|node| node.folder().to_owned()).collect()
    }

    /// Name of each node in `server_config` and `table_config`.
    pub fn names(&self) -> Vec<String> {
        (0..self.nodes.len()).map(|number| format!("node{number}")).collect()
    }

    fn wait_for(&self, number: usize, servers: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        let address = self.addresses().swap_remove(number);
        loop {
            if let Some(said) = self.dead().into_iter().next() {
                bail!("{said}");
            }
            if servers_known(&address).is_some_and(|known| known == servers) && self.dead().is_empty() {
                return Ok(());
            }
            if started.elapsed() > START_TIMEOUT {
                let said = self.nodes[number].last_output();
                bail!("node{number} did not see {servers} servers in {} s:\n{said}", START_TIMEOUT.as_secs());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Creates the folder for a fleet's data; it is deleted when the returned value is dropped or a signal ends the
/// program. Fails if it is not empty: it may contain other data, or that of nodes of a killed benchmark.
pub fn data_folder(path: &Path) -> anyhow::Result<CleanupGuard<PathBuf>> {
    let make = || {
        fs::create_dir_all(path)?;
        match fs::read_dir(path)?.next() {
            None => Ok(path.to_owned()),
            Some(_) => Err(io::Error::new(
                io::ErrorKind::DirectoryNotEmpty,
                "the folder is not empty; remove it if a killed benchmark left it",
            )),
        }
    };
    CleanupGuard::make(make, |path| remove_data(path))
        .with_context(|| format!("making a folder for data at {}", path.display()))
}

fn remove_data(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).map_err(|error| {
        io::Error::new(error.kind(), format!("{} could not be removed: {error}", path.display()))
    })
}

/// Limits every group to `share` of one core, or lifts the limit.
pub fn limit(groups: Option<&CpuGroups>, share: Option<f64>) -> anyhow::Result<()> {
    match groups {
        Some(groups) => groups.limit(share.map(Quota::of_core)).context("limiting processor time"),
        None => Ok(()),
    }
}

/// The number of servers that the one at `address` is connected to, itself included; `None` while it does not answer.
fn servers_known(address: &str) -> Option<usize> {
    let login = Login { user: "admin".to_owned(), password: String::new() };
    let mut admin = Admin::connect(address, &login).ok()?;
    let known = admin.ask(&terms::count(terms::table("rethinkdb", "server_status"))).ok()?;
    known.as_u64().map(|known| known as usize)
}

/// The size of a data folder. Files that are deleted meanwhile do not count.
pub fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => folder_bytes(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// The rows of a system table, in any order.
pub fn system_rows(admin: &mut Admin, table: &str) -> anyhow::Result<Vec<Value>> {
    let mut rows = Vec::new();
    admin.stream(&terms::table("rethinkdb", table), |row| rows.push(row))?;
    Ok(rows)
}
