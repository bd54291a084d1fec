//! The clients: a separate program that uses the official Python driver.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use super::folder;
use super::modes::Modes;
use crate::harness::checkout::cache;

/// The load of the clients.
#[derive(clap::Args)]
pub(super) struct Job {
    /// Duration in seconds, and up to ten times as long while there are fewer responses than `--least`
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Operations on each document by all clients of its group together; then the group takes a new document
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    operations: u32,
    /// Responses that the clients need for the history to be checked; they run for longer to get them
    /// [default: 50 for each second]
    #[arg(long)]
    least: Option<u32>,
    /// The kind of documents; a mix of all by default
    #[arg(long, default_value = "all", value_parser = ["all", "register", "counter", "set", "list", "bank"])]
    kind: String,
}

/// A tenth of the usual rate under repeated partitions: with that, responses arrived most of the time.
const LEAST_PER_SECOND: u32 = 50;

impl Job {
    /// Responses that the clients need for the history to be checked.
    pub(super) fn least(&self) -> u32 {
        self.least.unwrap_or(self.seconds.saturating_mul(LEAST_PER_SECOND))
    }
}

/// The running clients; dropping this ends them.
pub(super) struct Clients {
    process: Child,
    is_over: Arc<AtomicBool>,
}

impl Clients {
    /// Starts them on a cluster; they will write their history to the file `history`.
    pub(super) fn start(
        servers: &[SocketAddr],
        job: &Job,
        modes: &Modes,
        seed: u64,
        history: &Path,
    ) -> Result<Clients> {
        let python = cache().join("venv/bin/python");
        let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let mut process = Command::new(&python)
            .arg(folder().join("clients.py"))
            .args(["--servers", &servers.join(","), "--kind", &job.kind, "--read-mode", &modes.read_mode])
            .args(modes.pinned.then_some("--pinned"))
            .args(["--seconds", &job.seconds.to_string(), "--operations", &job.operations.to_string()])
            .args(["--least", &job.least().to_string(), "--seed", &seed.to_string(), "--history"])
            .arg(history)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("starting the clients with {} (`tools/setup test` makes it)", python.display())
            })?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (stdout, finished) = (process.stdout.take().context("piped above")?, Arc::clone(&is_over));
        // Faults end with the first line of output or with the process.
        thread::spawn(move || {
            let line = BufReader::new(stdout).lines().next();
            finished.store(true, Ordering::Release);
            drop(line);
        });
        Ok(Clients { process, is_over })
    }

    /// Whether the clients have finished.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// After the faults: has them read every document from every server and write the history.
    pub(super) fn read_all(mut self) -> Result<()> {
        let mut stdin = self.process.stdin.take().context("piped when it was started")?;
        let sent = stdin.write_all(b"read\n");
        drop(stdin);
        let status: ExitStatus = self.process.wait().context("waiting for the clients")?;
        match status.success() {
            true => sent.context("sending the last request to the clients"),
            false => bail!("the clients failed: {status}"),
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Fails for a process that has ended, which does no harm.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
