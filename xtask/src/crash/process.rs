//! The node under test: started, waited for, killed.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A running process of the program, killed when dropped.
pub(super) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts the program on `folder`, with ports that the system chooses.
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Process> {
        let mut child = Command::new(program)
            .arg("--directory")
            .arg(folder.join("data"))
            .args(["--driver-port", "0", "--cluster-port", "0", "--no-http-admin"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("the program's output")?;
        Ok(Process { child, lines: BufReader::new(output).lines() })
    }

    /// The driver port, once the node says that it is ready.
    pub(super) fn wait_until_ready(&mut self) -> Result<u16> {
        let mut port = None;
        let mut said = Vec::new();
        for line in &mut self.lines {
            let line = line?;
            if let Some((_, after)) = line.split_once("client driver connections on port ") {
                port = after.trim().parse().ok();
            }
            if line.contains("Server ready") {
                return port.context("the node is ready and never named its driver port");
            }
            said.push(line);
        }
        bail!("the node left before it was ready:\n{}", said.join("\n"))
    }

    /// `kill -9` after a while, whatever the process is doing then.
    pub(super) fn kill_while_starting(&mut self, after: Duration) -> Result<()> {
        thread::sleep(after);
        self.kill()
    }

    /// `kill -9`; returns when the process is gone.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the node")?;
        self.child.wait().context("waiting for the killed node")?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; nothing else can be done about a child that will not die.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
