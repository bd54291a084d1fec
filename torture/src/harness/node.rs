//! A process of the program under test.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::process::signal;

/// Flags of nodes whose administration pages are not needed.
pub(crate) const SERVER_FLAGS: &[&str] = &["--no-http-admin"];
const SIGKILL: i32 = 9;
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A running process of the program, killed when dropped.
pub struct Node {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Its standard error.
    stderr: PathBuf,
}

/// The ports of a ready node.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub driver: u16,
    /// For `/metrics`, if the node serves it.
    pub http: Option<u16>,
}

/// The program that `cargo build --release --package rekindle` builds: it lies beside this tool.
pub fn default_program() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.with_file_name("rekindle")
}

impl Node {
    /// Starts the program on `folder`, with ports that the system chooses.
    pub fn start(program: &Path, folder: &Path, flags: &[&str]) -> Result<Node> {
        let ports = ["--driver-port", "0", "--cluster-port", "0"];
        Node::start_with(program, &folder.join("data"), &[&ports, flags].concat())
    }

    /// Starts the program on the data directory `folder` with exactly these flags.
    pub fn start_with(program: &Path, folder: &Path, flags: &[&str]) -> Result<Node> {
        Node::spawn(Command::new(program), folder, flags)
    }

    /// The same, by a command that may wrap the program.
    pub fn spawn(mut program: Command, folder: &Path, flags: &[&str]) -> Result<Node> {
        let stderr = folder.with_extension("stderr");
        let file = File::options().create(true).append(true).open(&stderr);
        let file = file.with_context(|| format!("writing {}", stderr.display()))?;
        let mut child = program
            .arg("--directory")
            .arg(folder)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {program:?}"))?;
        let stdout = child.stdout.take().context("the program's output")?;
        Ok(Node { child, lines: BufReader::new(stdout).lines(), stderr })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the node reports that it is ready; returns its ports.
    pub fn wait_until_ready(&mut self) -> Result<Ports> {
        let (mut driver, mut http) = (None, None);
        let mut output = Vec::new();
        for line in &mut self.lines {
            let line = line?;
            driver = driver.or_else(|| port_after(&line, "client driver connections on port "));
            http = http.or_else(|| port_after(&line, "administrative HTTP connections on port "));
            if line.contains("Server ready") {
                let driver = driver.context("the node is ready without a driver port")?;
                return Ok(Ports { driver, http });
            }
            output.push(line);
        }
        let stderr = fs::read_to_string(&self.stderr).unwrap_or_default();
        bail!("the node ended before it was ready:\n{}\n{stderr}", output.join("\n"))
    }

    /// `kill -9`; returns when the process has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing the node")?;
        self.child.wait().context("waiting for the killed node")?;
        Ok(())
    }

    /// Waits until the node has ended as if by `kill -9`; false if it still runs after this time. Fails if it has ended in
    /// another way.
    pub fn wait_until_killed(&mut self, timeout: Duration) -> Result<bool> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("waiting for the node to end")? {
                let stderr = || fs::read_to_string(&self.stderr).unwrap_or_default();
                ensure!(status.signal() == Some(SIGKILL), "the node ended with {status}:\n{}", stderr());
                return Ok(true);
            }
            if started.elapsed() >= timeout {
                return Ok(false);
            }
            thread::sleep(END_POLL_INTERVAL);
        }
    }

    /// Sends SIGTERM; returns when the process has ended. Fails if its exit status is not success.
    pub fn stop(mut self) -> Result<()> {
        signal(self.pid(), "TERM")?;
        let status = self.child.wait().context("waiting for the node to end")?;
        ensure!(status.success(), "the node ended with {status}");
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already, and nothing else can be done about a child that does not die.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port_after(line: &str, words: &str) -> Option<u16> {
    let (_, after) = line.split_once(words)?;
    after.trim().parse().ok()
}
