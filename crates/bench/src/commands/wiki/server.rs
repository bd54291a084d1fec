//! The server of `bench wiki`, which is started several times on the same data.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::WikiArgs;
use crate::fleet::{Fleet, folder_bytes};
use crate::machine::memory_group::MemoryGroup;
use crate::machine::process;
use crate::shapes::quiescence::{self, Quiescence};
use crate::sut::{SutRequest, SystemUnderTest};
use client::admin::Admin;
use client::handshake::Login;

const STOP_TIMEOUT: Duration = Duration::from_secs(300);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The reasons of `rekindle_written_bytes`.
const WRITE_REASONS: [&str; 4] = ["log", "flush", "compaction", "large_values"];
/// With little memory, the caches of the server get this share of it; the rest is for everything else that it does.
const SMALL_CACHE_DIVISOR: u64 = 4;
/// Rekindle does not start with a smaller cache.
const SMALL_CACHE_MB_MIN: u64 = 100;
const FILTER: u64 = 39;
const COUNT: u64 = 43;

/// The memory that a server may use.
#[derive(Clone, Copy)]
pub(super) enum Memory<'a> {
    /// As much as the machine has. The group, if there can be one, counts it.
    Whole(Option<&'a MemoryGroup>),
    /// The group also bounds the page cache.
    Limited { megabytes: u64, group: &'a MemoryGroup },
}

impl<'a> Memory<'a> {
    pub(super) fn group(self) -> Option<&'a MemoryGroup> {
        match self {
            Memory::Whole(group) => group,
            Memory::Limited { group, .. } => Some(group),
        }
    }
}

/// A wait until rows had settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settling {
    pub outcome: Quiescence,
    /// Its length.
    pub seconds: f64,
    /// Processor time of the server meanwhile.
    pub cpu_seconds: Option<f64>,
}

/// A running server.
pub(super) struct Server {
    pub(super) fleet: Fleet,
    pub(super) sut: SystemUnderTest,
    pub(super) admin: Admin,
}

impl Server {
    /// Starts the server with its data in `folder`. Data of an earlier start is there again.
    pub(super) fn start(args: &WikiArgs, folder: &Path, memory: Memory<'_>) -> anyhow::Result<Server> {
        let mut plan = args.node.plan(1, folder)?;
        plan.group = memory.group().map(MemoryGroup::procs);
        if let Memory::Limited { megabytes, .. } = memory {
            plan.cache_mb = (megabytes / SMALL_CACHE_DIVISOR).max(SMALL_CACHE_MB_MIN);
        }
        let fleet = Fleet::start(&plan, None)?;
        let request = SutRequest {
            addresses: fleet.addresses(),
            login: Login { user: "admin".to_owned(), password: String::new() },
            pids: Vec::new(),
            metrics_urls: fleet.metrics_urls(),
        };
        let (sut, admin) = SystemUnderTest::open(request)?;
        Ok(Server { fleet, sut, admin })
    }

    /// Asks the process to end, and waits until it has. Returns the bytes that it had written to disk by then.
    pub(super) fn stop(self) -> anyhow::Result<Option<u64>> {
        let pid = self.sut.watched.first().and_then(|watched| watched.pid);
        let pid = pid.context("finding the server's process")?;
        let written = || process::disk(pid).map(|disk| disk.written_bytes);
        let mut written_bytes = written();
        let process = Pid::from_raw(pid as i32).context("finding the server's process")?;
        kill_process(process, Signal::TERM).context("stopping the server")?;
        let asked = Instant::now();
        while self.fleet.dead().is_empty() {
            if asked.elapsed() > STOP_TIMEOUT {
                bail!("the server did not stop within {} s", STOP_TIMEOUT.as_secs());
            }
            written_bytes = written_bytes.max(written());
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        Ok(written_bytes)
    }

    /// Waits until the rows of its tables have settled.
    pub(super) fn settle(&self) -> Settling {
        let cpu = || self.sut.watched.first()?.sample().cpu_seconds;
        let (before, began) = (cpu(), Instant::now());
        let outcome = quiescence::wait_until_settled(&self.sut.watched);
        let cpu_seconds = before.zip(cpu()).map(|(before, after)| after - before);
        Settling { outcome, seconds: began.elapsed().as_secs_f64(), cpu_seconds }
    }

    /// Lets the server read all rows of `table` once.
    pub(super) fn read_all(&mut self, table: &serde_json::Value) -> anyhow::Result<()> {
        // r.table(…).filter({cur_comment: "…"}).count()
        let none = json!({"cur_comment": "no row has this comment"});
        self.admin.ask(&json!([COUNT, [[FILTER, [table, none]]]])).context("reading all rows")?;
        Ok(())
    }

    pub(super) fn folder_bytes(&self) -> u64 {
        self.data().map_or(0, |data| folder_bytes(&data))
    }

    /// Bytes of the folder `log`, where Rekindle has its log.
    pub(super) fn log_bytes(&self) -> u64 {
        self.data().map_or(0, |data| folder_bytes(&data.join("log")))
    }

    /// Bytes that its process has written to disk since its start, as the kernel counts them.
    pub(super) fn written_bytes(&self) -> Option<u64> {
        self.sut.watched.first()?.sample().written_bytes
    }

    /// Bytes written since the start by reason, if the server says so.
    pub(super) fn written_by_reason(&self) -> Vec<(&'static str, f64)> {
        let Some(watched) = self.sut.watched.first() else { return Vec::new() };
        let sample = |reason: &'static str| {
            let bytes = watched.metric(&format!("rekindle_written_bytes_total{{reason=\"{reason}\"}}"));
            Some((reason, bytes?))
        };
        WRITE_REASONS.into_iter().filter_map(sample).collect()
    }

    fn data(&self) -> Option<PathBuf> {
        self.fleet.folders().first().map(|folder| folder.join("data"))
    }
}

/// The growth of each of these counters.
pub(super) fn grown(
    before: &[(&'static str, f64)],
    after: &[(&'static str, f64)],
) -> Vec<(&'static str, f64)> {
    let start = |reason| before.iter().find(|(known, _)| *known == reason).map_or(0.0, |(_, bytes)| *bytes);
    after.iter().map(|(reason, bytes)| (*reason, bytes - start(*reason))).collect()
}
