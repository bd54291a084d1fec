//! The steps of `bench wiki`: the load, the marks, the tests.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use serde_json::json;

use super::WikiArgs;
use super::results::{
    ArchiveSizes, DocumentBytes, LoadOutcome, Marks, Sizes, TestOutcome, archive_result, load_result,
    test_result,
};
use super::server::{Memory, Server, Settling, grown};
use crate::drive::session::{Driven, LoopKind, Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{duration, goal};
use crate::fleet::data_folder;
use crate::machine::memory_group::MemoryGroup;
use crate::machine::{facts, page_cache, random_reads};
use crate::result::RunResult;
use crate::rng::Rng;
use crate::shapes::quiescence::{self, Quiescence};
use crate::sut::SystemUnderTest;
use crate::terminal::ProgressLine;
use crate::wiki::keys::Keys;
use crate::wiki::loading::{self, LoadState, LoadWorkload};
use crate::wiki::reading::{self, ReadWorkload, Tables, Test, WriteRows};
use crate::wiki::rows::{OnBrokenLine, RowFile};
use crate::wiki::xz_mark::xz_share;
use crate::ycsb::table::create_database;
use client::terms;

const DATABASE: &str = "wiki";
const TABLE: &str = "articles";
const WRITTEN_TABLE: &str = "articles_for_write";
const LOAD_CONNECTIONS: usize = 8;
/// How long the last inserts of the load may take.
const LOAD_DRAIN: Duration = Duration::from_secs(600);
const TEST_DRAIN: Duration = Duration::from_secs(30);
/// How long the disk's own rate is measured.
const DISK_MARK_TIME: Duration = Duration::from_secs(5);
const SYNC: u64 = 138;

/// One run of the command.
pub(super) struct Wiki<'a> {
    args: &'a WikiArgs,
    code: ExitCode,
    /// Of the rows that were loaded.
    documents: DocumentBytes,
}

/// A load that has ended.
struct Load {
    started: SystemTime,
    plan: Plan,
    sut: SystemUnderTest,
    driven: Driven,
    state: LoadState,
    quiet: Quiescence,
    settling: Settling,
    /// Written to disk by the server before the load, and by reason during the load.
    written_before: Option<u64>,
    written_by_reason: Vec<(&'static str, f64)>,
}

impl<'a> Wiki<'a> {
    pub(super) fn new(args: &'a WikiArgs) -> Wiki<'a> {
        Wiki { args, code: ExitCode::SUCCESS, documents: DocumentBytes::default() }
    }

    pub(super) fn all(mut self) -> anyhow::Result<ExitCode> {
        // An unreadable file is an error, and control groups are made, before a server is started.
        let file = RowFile::open(&self.args.rows, self.args.on_broken(), true)?;
        let small = self.args.small_memory.map(|megabytes| (megabytes, small_group(megabytes)));
        if let Some((_, Err(why))) = &small {
            eprintln!("wiki: {why}");
        }
        let folder = data_folder(&self.args.folder)?;
        let mut marks = Marks::default();
        marks.notes.extend(small.as_ref().and_then(|(_, group)| group.as_ref().err().cloned()));
        let mut server = Server::start(self.args, &folder, Memory::Whole(None))?;
        let load = self.load(&mut server, file)?;
        // A server writes its memory to its files when it stops, and deletes its log then.
        self.say("stopping the server");
        let written_bytes = load.written_before.zip(server.stop()?);
        let written_bytes = written_bytes.map(|(before, after)| after.saturating_sub(before));
        self.mark_xz(&mut marks);
        let keys = self.tests_in_memory(&folder, load, written_bytes, &marks)?;
        if let Some((megabytes, Ok(group))) = &small {
            self.tests_in_small_memory(&folder, &keys, *megabytes, group)?;
        }
        if self.args.archive {
            self.archive(&folder, &keys)?;
        }
        folder.release()?;
        Ok(self.code)
    }

    /// The result of the load, and the tests with the memory of the machine.
    fn tests_in_memory(
        &mut self,
        folder: &Path,
        load: Load,
        written_bytes: Option<u64>,
        marks: &Marks,
    ) -> anyhow::Result<Arc<Keys>> {
        page_cache::drop_files(&random_reads::files_in(folder)).context("emptying the page cache")?;
        // Without a group, only the memory of the process is known.
        let group = MemoryGroup::open(None).ok();
        let memory = Memory::Whole(group.as_ref());
        let mut server = Server::start(self.args, folder, memory)?;
        self.documents = DocumentBytes { json: load.state.json_bytes, lines: load.state.file.bytes() };
        let (loaded, keys) = self.loaded(&server, load, written_bytes, marks);
        self.show(&loaded)?;
        self.say("reading all rows once");
        server.read_all(&terms::table(DATABASE, TABLE))?;
        let keys = Arc::new(keys);
        self.tests(server, &keys, memory, None)?;
        Ok(keys)
    }

    fn tests_in_small_memory(
        &mut self,
        folder: &Path,
        keys: &Arc<Keys>,
        megabytes: u64,
        group: &MemoryGroup,
    ) -> anyhow::Result<()> {
        let files = random_reads::files_in(folder);
        page_cache::drop_files(&files).context("emptying the page cache")?;
        self.say("the disk's own random reads");
        let seed = self.args.output.seed;
        let disk = random_reads::per_second(&files, self.args.connections, DISK_MARK_TIME, seed);
        let disk = disk.map_err(|error| format!("the disk's own rate is unknown: {error}"));
        let memory = Memory::Limited { megabytes, group };
        let server = Server::start(self.args, folder, memory)?;
        self.tests(server, keys, memory, Some(&disk)).with_context(|| {
            format!("with {megabytes} MB (--small-memory), over which the kernel kills the server")
        })
    }

    /// Makes the table an archive, and measures it once it has settled.
    fn archive(&mut self, folder: &Path, keys: &Arc<Keys>) -> anyhow::Result<()> {
        let group = MemoryGroup::open(None).ok();
        let memory = Memory::Whole(group.as_ref());
        let mut server = Server::start(self.args, folder, memory)?;
        // The rows that `read_write` wrote are not to be counted.
        server.admin.ask(&terms::table_drop(DATABASE, WRITTEN_TABLE)).context("dropping a table")?;
        let table = terms::table(DATABASE, TABLE);
        let archive = terms::update(terms::config(table.clone()), json!({"compression": "archive"}));
        server.admin.ask(&archive).context("making the table an archive")?;
        self.say("waiting until the archive has settled");
        let settling = server.settle();
        quiescence::wait(&server.sut.watched);
        let folder_bytes = server.folder_bytes() - server.log_bytes();
        let sizes = ArchiveSizes { documents: self.documents, folder_bytes, settling };
        server.read_all(&table)?;
        let result = self.test(&mut server, Test::Read, keys, memory, None)?;
        self.show(&archive_result(result, &sizes))
    }

    fn tests(
        &mut self,
        mut server: Server,
        keys: &Arc<Keys>,
        memory: Memory<'_>,
        disk: Option<&Result<f64, String>>,
    ) -> anyhow::Result<()> {
        for test in Test::ALL {
            let result = self.test(&mut server, test, keys, memory, disk)?;
            self.show(&result)?;
        }
        Ok(())
    }

    fn show(&mut self, result: &RunResult) -> anyhow::Result<()> {
        let shown = self.args.output.finish(result)?;
        if shown != ExitCode::SUCCESS {
            self.code = shown;
        }
        Ok(())
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
            Plan { connections: LOAD_CONNECTIONS, seconds: None, drain: LOAD_DRAIN, ..self.plan(server) };
        let driven = self.drive(server, &plan, loading::NAMES, make)?;
        server.admin.ask(&json!([SYNC, [terms::table(DATABASE, TABLE)]])).context("syncing the table")?;
        self.say("waiting until the server is quiet and the rows have settled");
        let mut quiet = quiescence::wait(&server.sut.watched);
        let settling = server.settle();
        quiet = quiet.max(quiescence::wait(&server.sut.watched));
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
        let written_by_reason = grown(&before.1, &server.written_by_reason());
        let sut = server.sut.clone();
        let written_before = before.0;
        Ok(Load { started, plan, sut, driven, state, quiet, settling, written_before, written_by_reason })
    }

    /// The result of the load, with the sizes of the files of the server that was restarted since.
    fn loaded(
        &self,
        server: &Server,
        load: Load,
        written_bytes: Option<u64>,
        marks: &Marks,
    ) -> (RunResult, Keys) {
        let Load { started, plan, sut, driven, state, quiet, settling, written_by_reason, .. } = load;
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
            settling,
            marks: marks.clone(),
        };
        (load_result(self.args, started, &plan, &sut, driven, &outcome), state.keys)
    }

    /// Compresses all rows with xz, while no server runs.
    fn mark_xz(&self, marks: &mut Marks) {
        if self.args.no_xz {
            return;
        }
        self.say("compressing all rows with xz -9");
        let rows = RowFile::open(&self.args.rows, OnBrokenLine::Skip, true);
        match rows.map_err(Into::into).and_then(|mut rows| xz_share(&mut rows)) {
            Ok(share) => marks.xz_share = Some(share),
            Err(error) => marks.notes.push(format!("the mark of xz is unknown: {error}")),
        }
    }

    fn test(
        &self,
        server: &mut Server,
        test: Test,
        keys: &Arc<Keys>,
        memory: Memory<'_>,
        disk: Option<&Result<f64, String>>,
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
        let warmup = duration(self.args.warmup).context("--warmup")?;
        let seconds = Some(duration(self.args.seconds).context("--seconds")?);
        let plan = Plan { warmup, seconds, ..self.plan(server) };
        let driven = self.drive(server, &plan, reading::NAMES, make)?;
        let failed = rows.and_then(|rows| rows.lock().unwrap_or_else(PoisonError::into_inner).failed.take());
        if let Some(error) = failed {
            bail!(error);
        }
        let outcome = TestOutcome { test, memory, disk, driven };
        Ok(test_result(self.args, started, &plan, &server.sut, outcome))
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

    fn plan(&self, server: &Server) -> Plan {
        Plan {
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
        }
    }

    fn say(&self, what: &str) {
        if !self.args.output.quiet {
            eprintln!("wiki: {what}");
        }
    }
}

/// A group with so much memory, or why there is none.
fn small_group(megabytes: u64) -> Result<MemoryGroup, String> {
    MemoryGroup::open(Some(megabytes << 20)).map_err(|error| {
        format!(
            "no tests with {megabytes} MB (--small-memory): {:#}; run as root, or in a container that may make control groups",
            anyhow::Error::from(error)
        )
    })
}
