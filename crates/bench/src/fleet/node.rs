//! One node: a process in a process group and, if there is one, a control group of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

/// How much of its output a node that failed is quoted with.
const LAST_WORDS_BYTES: usize = 2_000;

/// What one node is started with.
pub(super) struct NodePlan {
    pub(super) binary: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) port_offset: u16,
    /// Cluster address of the first node.
    pub(super) join: Option<String>,
    pub(super) cache_mb: u64,
    pub(super) flags: Vec<String>,
    /// The file that takes ids of the processes in its control group.
    pub(super) group: Option<PathBuf>,
}

/// A running node, killed when dropped.
pub(super) struct Node {
    child: Child,
    folder: PathBuf,
    name: String,
}

impl Node {
    /// Starts the program. Its output goes to a file beside its data.
    pub(super) fn start(plan: &NodePlan) -> anyhow::Result<Node> {
        fs::create_dir_all(&plan.folder).with_context(|| format!("creating {}", plan.folder.display()))?;
        let output = File::create(plan.folder.join("output"))?;
        let errors = output.try_clone()?;
        let child = command(plan)
            .args(flags(plan))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // A wrapper around the real program must not leave that behind.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", plan.binary.display()))?;
        Ok(Node { child, folder: plan.folder.clone(), name: plan.name.clone() })
    }

    /// Where it keeps its data.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it said, if it has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} ended with {status}:\n{}", self.name, self.last_words()))
    }

    /// The end of its output.
    pub(super) fn last_words(&self) -> String {
        let said = fs::read(self.folder.join("output")).unwrap_or_default();
        let start = said.len().saturating_sub(LAST_WORDS_BYTES);
        String::from_utf8_lossy(&said[start..]).into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may be gone already; nothing else can be done about a process that will not die.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The program, or a shell that joins the control group and becomes the program: whatever that starts
/// is in the group from its first instruction.
fn command(plan: &NodePlan) -> Command {
    let Some(group) = &plan.group else { return Command::new(&plan.binary) };
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(group).arg(&plan.binary);
    shell
}

/// Flags that RethinkDB 2.x has too.
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
