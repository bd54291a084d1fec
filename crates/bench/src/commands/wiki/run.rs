//! The steps of `bench wiki`: the server, the load, the tests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::WikiArgs;
use super::results::{LoadOutcome, Memory, Sizes, load_result, test_result};
use crate::drive::session::{Driven, LoopKind, Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{duration, goal};
use crate::fleet::{Fleet, data_folder, folder_bytes};
use crate::machine::facts;
use crate::machine::memory_group::MemoryGroup;
use crate::result::RunResult;
use crate::rng::Rng;
use crate::shapes::quiescence::{self, Quiescence};
use crate::sut::{SutRequest, SystemUnderTest};
use crate::terminal::ProgressLine;
use crate::wiki::keys::Keys;
use crate::wiki::loading::{self, LoadState, LoadWorkload};
use crate::wiki::reading::{self, ReadWorkload, Tables, Test, WriteRows};
use crate::wiki::rows::{OnBrokenLine, RowFile};
use crate::ycsb::table::create_database;
use client::admin::Admin;
use client::handshake::Login;
use client::terms;

const DATABASE: &str = "wiki";
const TABLE: &str = "articles";
const WRITTEN_TABLE: &str = "articles_for_write";
const LOAD_CONNECTIONS: usize = 8;
/// How long the last inserts of the load may take.
const LOAD_DRAIN: Duration = Duration::from_secs(600);
const TEST_DRAIN: Duration = Duration::from_secs(30);
const SYNC: u64 = 138;
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The reasons of `rekindle_written_bytes`.
const WRITE_REASONS: [&str; 4] = ["log", "flush", "compaction", "large_values"];
/// With little memory, the caches of the server get this share of it; the rest is for everything else that it does.
const SMALL_CACHE_DIVISOR: u64 = 4;
/// Rekindle does not start with a smaller cache.
const SMALL_CACHE_MB_MIN: u64 = 100;

/// One run of the command.
pub(super) struct Wiki<'a> {
    args: &'a WikiArgs,
}

/// A running server.
struct Server {
    fleet: Fleet,
    sut: SystemUnderTest,
    admin: Admin,
}

/// A load that has ended.
struct Load {
    started: SystemTime,
    plan: Plan,
    sut: SystemUnderTest,
    driven: Driven,
    state: LoadState,
    quiet: Quiescence,
    /// Written to disk by the server, and the same by reason.
    written_bytes: Option<u64>,
    written_by_reason: Vec<(&'static str, f64)>,
}

impl<'a> Wiki<'a> {
    pub(super) fn new(args: &'a WikiArgs) -> Wiki<'a> {
        Wiki { args }
    }

    pub(super) fn all(&self) -> anyhow::Result<ExitCode> {
        let mut code = ExitCode::SUCCESS;
        let mut show = |result: &RunResult| -> anyhow::Result<()> {
            let shown = self.args.output.finish(result)?;
            if shown != ExitCode::SUCCESS {
                code = shown;
            }
            Ok(())
        };
        // An unreadable file is an error before a server is started.
        let file = RowFile::open(&self.args.rows, self.args.on_broken(), true)?;
        let folder = data_folder(&self.args.folder)?;
        let mut server = self.start(&folder, None)?;
        let load = self.load(&mut server, file)?;
        // A server writes its memory to its files when it stops, and deletes its log then.
        self.say("restarting the server");
        server.stop()?;
        let mut server = self.start(&folder, None)?;
        let (loaded, keys) = self.loaded(&server, load);
        show(&loaded)?;
        let keys = Arc::new(keys);
        for test in Test::ALL {
            show(&self.test(&mut server, test, &keys, &Memory::Whole)?)?;
        }
        drop(server);
        if let Some(megabytes) = self.args.small_memory {
            match MemoryGroup::open(megabytes << 20) {
                Err(error) => eprintln!(
                    "wiki: no tests with {megabytes} MB: {:#}. Run as root, or in a container that may make control groups",
                    anyhow::Error::from(error)
                ),
                Ok(group) => {
                    let mut server = self.start(&folder, Some((&group, megabytes)))?;
                    let memory = Memory::Limited { megabytes, group: &group };
                    for test in Test::ALL {
                        show(&self.test(&mut server, test, &keys, &memory)?)?;
                    }
                }
            }
        }
        folder.release()?;
        Ok(code)
    }

    /// Starts the server, in a control group if given. Data of an earlier start is there again.
    fn start(&self, folder: &Path, limited: Option<(&MemoryGroup, u64)>) -> anyhow::Result<Server> {
        let mut plan = self.args.node.plan(1, folder)?;
        if let Some((group, megabytes)) = limited {
            plan.group = Some(group.procs());
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

    fn load(&self, server: &mut Server, file: RowFile) -> anyhow::Result<Load> {
        let started = SystemTime::now();
        self.say("loading");
        create_database(&mut server.admin, DATABASE)?;
        for table in [TABLE, WRITTEN_TABLE] {
            server.admin.ask(&terms::table_create(DATABASE, table, json!({}))).context("creating a table")?;
            server.admin.ask(&terms::wait(terms::table(DATABASE, table)))?;
        }
        let before = (server.written_bytes(), server.written_by_reason());
        let state = Arc::new(Mutex::new(LoadState::new(file)));
        let table = terms::table(DATABASE, TABLE).to_string();
        let make = |_, _| -> Box<dyn Workload> {
            Box::new(LoadWorkload::new(Arc::clone(&state), &table, self.args.durability(), self.args.batch))
        };
        let plan =
            Plan { connections: LOAD_CONNECTIONS, seconds: None, drain: LOAD_DRAIN, ..self.plan(server)? };
        let driven = self.drive(server, &plan, loading::NAMES, make)?;
        server.admin.ask(&json!([SYNC, [terms::table(DATABASE, TABLE)]])).context("syncing the table")?;
        self.say("waiting until the server is quiet");
        let quiet = quiescence::wait(&server.sut.watched);
        let state = Arc::into_inner(state).context("a thread still has the load")?;
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.failed.take() {
            bail!(error);
        }
        if state.keys.is_empty() {
            bail!(
                "{} has no rows: {} lines are broken",
                self.args.rows.display(),
                state.file.broken().total()
            );
        }
        let written = before.0.zip(server.written_bytes());
        let written_bytes = written.map(|(before, after)| after.saturating_sub(before));
        let written_by_reason = grown(&before.1, &server.written_by_reason());
        let sut = server.sut.clone();
        Ok(Load { started, plan, sut, driven, state, quiet, written_bytes, written_by_reason })
    }

    /// The result of the load, with the sizes of the files of the server that was restarted since.
    fn loaded(&self, server: &Server, load: Load) -> (RunResult, Keys) {
        let Load { started, plan, sut, driven, state, quiet, written_bytes, written_by_reason } = load;
        let outcome = LoadOutcome {
            rows: state.keys.len() as u64,
            acknowledged: state.acknowledged,
            broken: state.file.broken().clone(),
            sizes: Sizes {
                json_bytes: state.json_bytes,
                line_bytes: state.file.bytes(),
                folder_bytes: server.folder_bytes(),
                log_bytes: server.log_bytes(),
                written_bytes,
                written_by_reason,
                block_share: state.mark.finish(),
            },
            quiet,
        };
        (load_result(self.args, started, &plan, &sut, driven, &outcome), state.keys)
    }

    fn test(
        &self,
        server: &mut Server,
        test: Test,
        keys: &Arc<Keys>,
        memory: &Memory<'_>,
    ) -> anyhow::Result<RunResult> {
        let started = SystemTime::now();
        self.say(test.name());
        let rows = match test {
            Test::ReadWrite => {
                let file = RowFile::open(&self.args.rows, OnBrokenLine::Skip, false)?;
                Some(Arc::new(Mutex::new(WriteRows { file, failed: None })))
            }
            Test::Read | Test::BatchRead => None,
        };
        let tables = Tables {
            read: terms::table(DATABASE, TABLE).to_string(),
            written: terms::table(DATABASE, WRITTEN_TABLE).to_string(),
        };
        let make = |thread: usize, _| -> Box<dyn Workload> {
            let rng = Rng::new(self.args.output.seed, 4_000_000 + thread as u64);
            Box::new(ReadWorkload::new(test, Arc::clone(keys), rows.clone(), tables.clone(), rng))
        };
        let seconds = Some(duration(self.args.seconds)?);
        let plan = Plan { connections: self.args.connections, seconds, ..self.plan(server)? };
        let driven = self.drive(server, &plan, reading::NAMES, make)?;
        let failed = rows.and_then(|rows| rows.lock().unwrap_or_else(PoisonError::into_inner).failed.take());
        if let Some(error) = failed {
            bail!(error);
        }
        Ok(test_result(self.args, started, &plan, &server.sut, driven, (test, memory)))
    }

    fn drive(
        &self,
        server: &Server,
        plan: &Plan,
        names: &'static [&'static str],
        make: impl FnMut(usize, usize) -> Box<dyn Workload>,
    ) -> anyhow::Result<Driven> {
        let mut line = ProgressLine::new(self.args.output.quiet, goal(plan));
        let driven = drive(plan, names, make, &server.sut.watched, &mut |point| line.show(point));
        line.end();
        let dead = server.fleet.dead();
        if !dead.is_empty() {
            bail!("{}", dead.join("\n"));
        }
        Ok(driven?)
    }

    fn plan(&self, server: &Server) -> anyhow::Result<Plan> {
        Ok(Plan {
            addresses: server.sut.addresses.clone(),
            login: Some(server.sut.login.clone()),
            connections: self.args.connections,
            pipeline: 1,
            threads: (facts::cores() / 2).max(1),
            kind: LoopKind::Closed,
            warmup: Duration::ZERO,
            seconds: None,
            operations: None,
            drain: TEST_DRAIN,
            seed: self.args.output.seed,
        })
    }

    fn say(&self, what: &str) {
        if !self.args.output.quiet {
            eprintln!("wiki: {what}");
        }
    }
}

impl Server {
    /// Asks the process to end, and waits until it has.
    fn stop(self) -> anyhow::Result<()> {
        let pid = self.sut.watched.first().and_then(|watched| watched.pid);
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32)).context("finding the server's process")?;
        kill_process(pid, Signal::TERM).context("stopping the server")?;
        let asked = Instant::now();
        while self.fleet.dead().is_empty() {
            if asked.elapsed() > STOP_TIMEOUT {
                bail!("the server did not stop within {} s", STOP_TIMEOUT.as_secs());
            }
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        Ok(())
    }

    fn data(&self) -> Option<PathBuf> {
        self.fleet.folders().first().map(|folder| folder.join("data"))
    }

    fn folder_bytes(&self) -> u64 {
        self.data().map_or(0, |data| folder_bytes(&data))
    }

    /// Bytes of the folder `log`, where Rekindle has its log.
    fn log_bytes(&self) -> u64 {
        self.data().map_or(0, |data| folder_bytes(&data.join("log")))
    }

    fn written_bytes(&self) -> Option<u64> {
        self.sut.watched.first()?.sample().written_bytes
    }

    /// Bytes written since the start by reason, if the server says so.
    fn written_by_reason(&self) -> Vec<(&'static str, f64)> {
        let Some(watched) = self.sut.watched.first() else { return Vec::new() };
        let sample = |reason: &'static str| {
            let bytes = watched.metric(&format!("rekindle_written_bytes_total{{reason=\"{reason}\"}}"));
            Some((reason, bytes?))
        };
        WRITE_REASONS.into_iter().filter_map(sample).collect()
    }
}

/// The growth of each of these counters.
fn grown(before: &[(&'static str, f64)], after: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    let start = |reason| before.iter().find(|(known, _)| *known == reason).map_or(0.0, |(_, bytes)| *bytes);
    after.iter().map(|(reason, bytes)| (*reason, bytes - start(*reason))).collect()
}
