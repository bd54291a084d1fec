//! A node of the program under test: started, waited for, killed.

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A running process of the program, killed when dropped.
pub(crate) struct Node {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Where a ready node listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// For drivers.
    pub(crate) driver: u16,
    /// For `/metrics`, if the node was started with it.
    pub(crate) http: Option<u16>,
}

/// Where `cargo build --release --package rekindle` leaves the program: beside this tool.
pub(crate) fn default_program() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.with_file_name("rekindle")
}

impl Node {
    /// Starts the program on `folder`, with ports that the system chooses.
    pub(crate) fn start(program: &Path, folder: &Path, flags: &[&str]) -> Result<Node> {
        let mut child = Command::new(program)
            .arg("--directory")
            .arg(folder.join("data"))
            .args(["--driver-port", "0", "--cluster-port", "0"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let output = child.stdout.take().context("the program's output")?;
        Ok(Node { child, lines: BufReader::new(output).lines() })
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where the node listens, once it says that it is ready.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Ports> {
        let (mut driver, mut http) = (None, None);
        let mut said = Vec::new();
        for line in &mut self.lines {
            let line = line?;
            driver = driver.or_else(|| port_after(&line, "client driver connections on port "));
            http = http.or_else(|| port_after(&line, "administrative HTTP connections on port "));
            if line.contains("Server ready") {
                let driver = driver.context("the node is ready and never named its driver port")?;
                return Ok(Ports { driver, http });
            }
            said.push(line);
        }
        bail!("the node left before it was ready:\n{}", said.join("\n"))
    }

    /// `kill -9`; returns when the process is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the node")?;
        self.child.wait().context("waiting for the killed node")?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may be gone already; nothing else can be done about a child that will not die.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port_after(line: &str, words: &str) -> Option<u16> {
    let (_, after) = line.split_once(words)?;
    after.trim().parse().ok()
}
