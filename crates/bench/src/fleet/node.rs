//! One node: a process in its own process group and, if given, its own control group.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::machine::cleanup;
use crate::machine::guarded_process::GuardedProcess;

/// How much of its output is quoted when a node fails.
const QUOTED_OUTPUT_BYTES: usize = 2_000;

/// The parameters of one node.
pub(super) struct NodePlan {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) port_offset: u16,
    /// Cluster address of the first node.
    pub(super) join: Option<String>,
    pub(super) cache_mb: u64,
    pub(super) flags: Vec<String>,
    /// The file that takes the ids of the processes in its control group.
    pub(super) group: Option<PathBuf>,
}

/// A running node, killed when dropped or when this program ends.
pub(super) struct Node {
    process: GuardedProcess,
    folder: PathBuf,
    name: String,
}

impl Node {
    /// Starts the program. Its output goes to a file beside its data.
    pub(super) fn start(plan: &NodePlan) -> anyhow::Result<Node> {
        // Not while a signal has the data deleted, or this folder would remain.
        let output = cleanup::unless_ending(|| make_output(&plan.folder))
            .with_context(|| format!("creating {}", plan.folder.display()))?;
        let errors = output.try_clone()?;
        let process = GuardedProcess::start(&plan.binary, plan.group.as_deref(), |command| {
            command.args(flags(plan)).stdout(output).stderr(errors);
        });
        let process = process.with_context(|| format!("starting {}", plan.binary.display()))?;
        Ok(Node { process, folder: plan.folder.clone(), name: plan.name.clone() })
    }

    /// The data folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its last output, if it has ended.
    pub(super) fn ended(&self) -> Option<String> {
        let status = self.process.status()?;
        Some(format!("{} ended with {status}:\n{}", self.name, self.last_output()))
    }

    /// The end of its output.
    pub(super) fn last_output(&self) -> String {
        let said = fs::read(self.folder.join("output")).unwrap_or_default();
        let start = said.len().saturating_sub(QUOTED_OUTPUT_BYTES);
        String::from_utf8_lossy(&said[start..]).into_owned()
    }
}

fn make_output(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    File::create(folder.join("output"))
}

/// Flags that RethinkDB 2.x also has.
fn flags(plan: &NodePlan) -> Vec<String> {
    let mut flags = vec![
        "--directory".to_owned(),
        plan.folder.join("data").display().to_string(),
        "--server-name".to_owned(),
        plan.name.clone(),
        "--port-offset".to_owned(),
        plan.port_offset.to_string(),
        "--cache-size".to_owned(),
        plan.cache_mb.to_string(),
        "--no-update-check".to_owned(),
    ];
    if let Some(join) = &plan.join {
        flags.extend(["--join".to_owned(), join.clone()]);
    }
    flags.extend(plan.flags.iter().cloned());
    flags
}
