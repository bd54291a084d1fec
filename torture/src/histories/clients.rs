//! The clients: a program of its own, which asks through the official Python driver.

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

/// How much there is to do.
#[derive(clap::Args)]
pub(super) struct Job {
    /// For so many seconds, and up to ten times as long while fewer than `--least` are answered
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Operations on each document, by all of its group together: then the group takes a new one
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    operations: u32,
    /// So many operations of clients are to be answered: clients go on for them, and without them nothing is judged
    /// [default: 50 for each second]
    #[arg(long)]
    least: Option<u32>,
    /// What documents are: all of them are mixed by default
    #[arg(long, default_value = "all", value_parser = ["all", "register", "counter", "set", "list", "bank"])]
    kind: String,
}

/// A tenth of what is answered where nodes fall apart again and again: then most of the time something was.
const LEAST_PER_SECOND: u32 = 50;

impl Job {
    /// So many operations of clients must be answered for a run to be judged.
    pub(super) fn least(&self) -> u32 {
        self.least.unwrap_or(self.seconds.saturating_mul(LEAST_PER_SECOND))
    }
}

/// The clients at work. They end with this.
pub(super) struct Clients {
    process: Child,
    is_over: Arc<AtomicBool>,
}

impl Clients {
    /// Starts them on a cluster; `history` is where they will write what they were told.
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
        let (stdout, told) = (process.stdout.take().context("piped above")?, Arc::clone(&is_over));
        // Their last word or their end: both are the end of what the nodes are haunted for.
        thread::spawn(move || {
            let word = BufReader::new(stdout).lines().next();
            told.store(true, Ordering::Release);
            drop(word);
        });
        Ok(Clients { process, is_over })
    }

    /// Whether their time is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Has them ask every server for every document, now that all is over, and write the history.
    pub(super) fn read_all(mut self) -> Result<()> {
        let mut stdin = self.process.stdin.take().context("piped when it was started")?;
        let asked = stdin.write_all(b"read\n");
        drop(stdin);
        let status: ExitStatus = self.process.wait().context("waiting for the clients")?;
        match status.success() {
            true => asked.context("telling the clients that all is over"),
            false => bail!("the clients gave up: {status}"),
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Those who are through cannot be killed, and the others are not waited for longer than that takes.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
