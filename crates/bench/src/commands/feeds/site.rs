//! The servers of one measurement, its table, and loads of writes.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use client::admin::Admin;
use serde_json::{Value, json};

use super::load::{Load, LoadShape};
use super::{DurabilityFlag, FeedsArgs, Measure, idleness};
use crate::assemble::RunDescription;
use crate::conditions::Mark;
use crate::drive::arrivals::Spacing;
use crate::drive::session::{LoopKind, Plan, drive};
use crate::drive::workload::Workload;
use crate::feeds::block::Block;
use crate::feeds::kind::FeedKind;
use crate::feeds::model::Model;
use crate::feeds::subscribers::{SubscriberPlan, Subscribers, settle};
use crate::feeds::table::{self, TableShape};
use crate::feeds::writes::{SharedLedger, WriteLoad, WriteShape};
use crate::flags::{describe_plan, duration, goal};
use crate::fleet::{Fleet, data_folder};
use crate::machine::cleanup::CleanupGuard;
use crate::machine::watch::Watched;
use crate::result::RunResult;
use crate::shapes::quiescence;
use crate::sut::{SutRequest, SystemUnderTest};
use crate::terminal::ProgressLine;

/// Writes that may wait for a free connection.
const WAITING_MAX: usize = 1_000_000;

/// The servers of one measurement.
pub(super) struct Site<'a> {
    pub(super) args: &'a FeedsArgs,
    measure: Measure,
    pub(super) sut: SystemUnderTest,
    /// With metrics pages, to detect when the servers are quiet.
    resting: Vec<Watched>,
    nodes: Option<(Fleet, CleanupGuard<PathBuf>)>,
    began: SystemTime,
    /// Times of writes and arrivals count from here.
    pub(super) started: Instant,
}

impl<'a> Site<'a> {
    /// Connects, or starts nodes.
    pub(super) fn start(args: &'a FeedsArgs, measure: Measure) -> anyhow::Result<Site<'a>> {
        let began = SystemTime::now();
        let (request, nodes, pages) = match args.nodes {
            None => (args.server.request(), None, None),
            Some(nodes) => {
                let nodes = usize::from(nodes);
                let folder = data_folder(&args.folder)?;
                let fleet = Fleet::start(&args.fleet.plan(nodes, &folder)?, None)?;
                let pages = fleet.metrics_urls();
                let request = SutRequest {
                    addresses: fleet.addresses(),
                    // Serving the pages costs processor time.
                    metrics_urls: vec!["none".to_owned(); nodes],
                    ..args.server.request()
                };
                (request, Some((fleet, folder)), Some(pages))
            }
        };
        let (sut, _) = SystemUnderTest::open(request)?;
        let resting = match pages {
            None => sut.watched.clone(),
            Some(pages) => {
                let find = |(address, page): (&String, String)| Watched::find(address, None, Some(page));
                sut.addresses.iter().zip(pages).map(find).collect()
            }
        };
        Ok(Site { args, measure, sut, resting, nodes, began, started: Instant::now() })
    }

    /// Ends the nodes. Fails if one has ended before.
    pub(super) fn end(self, outcome: anyhow::Result<RunResult>) -> anyhow::Result<RunResult> {
        let Some((fleet, folder)) = self.nodes else { return outcome };
        let dead = fleet.dead();
        drop(fleet);
        let released = folder.release();
        ensure!(dead.is_empty(), "{}", dead.join("\n"));
        let result = outcome?;
        released?;
        Ok(result)
    }

    /// Fills a new table with rows for these feeds.
    pub(super) fn prepare(&self, kinds: Vec<FeedKind>) -> anyhow::Result<SharedLedger> {
        let model = Model::new(kinds, self.args.other_rows);
        let shape = TableShape {
            shards: self.args.shards,
            replicas: self.args.replicas,
            text_bytes: self.args.text_bytes,
        };
        self.say(&format!("inserting {} rows", model.rows().len()));
        let mut admin = Admin::connect(&self.sut.addresses[0], &self.sut.login)?;
        table::prepare(&mut admin, shape, model.rows())?;
        Ok(SharedLedger::new(model, self.started))
    }

    /// Opens a feed of each of `kinds`.
    pub(super) fn open(
        &self,
        kinds: &[FeedKind],
        connections: usize,
        options: &Value,
        keeps_arrivals: bool,
    ) -> anyhow::Result<Subscribers> {
        self.say(&format!("opening {} feeds", kinds.len()));
        let table = table::term();
        let query = |(number, kind): (usize, &FeedKind)| {
            json!([1, kind.changes(&table, Block(number as u32), options), {}]).to_string()
        };
        Subscribers::open(SubscriberPlan {
            sut: &self.sut,
            queries: kinds.iter().enumerate().map(query).collect(),
            connections,
            keeps_arrivals,
            started: self.started,
        })
    }

    /// Writes for `--seconds` and waits for the changes of feeds.
    pub(super) fn load(&self, ledger: &SharedLedger, shape: LoadShape<'_>) -> anyhow::Result<Load> {
        self.say(&format!("writing for {} s", self.args.seconds));
        let writes = WriteShape {
            match_every: shape.match_every,
            durability: self.args.durability.map(DurabilityFlag::name),
            table: table::term().to_string(),
        };
        let kind = LoopKind::Open { rate: shape.rate, spacing: Spacing::Constant, waiting_max: WAITING_MAX };
        let plan = Plan { kind, seconds: Some(duration(self.args.seconds)?), ..self.plan() };
        let arrived = || shape.followed.map_or(0, |(feeds, _)| feeds.progress.load(Ordering::Relaxed));
        let (first, arrived_before) = (ledger.len(), arrived());
        let workload =
            |_, _| -> Box<dyn Workload> { Box::new(WriteLoad::new(ledger.clone(), writes.clone())) };
        self.drive(plan, &["WRITE"], workload, || {
            let Some((feeds, of_table)) = shape.followed else { return };
            let written = ledger.written_since(first);
            let own = written.iter().filter(|write| write.write.event.is_some()).count() as u64;
            let expected = arrived_before + own + of_table * written.len() as u64;
            settle(&feeds.progress, expected, self.drain(), || idleness::is_working(&self.sut.watched));
        })
    }

    /// Drives `workload` while the servers are watched, calls `wait`, and waits until the servers are idle: they may
    /// have to compare many changes with feeds yet.
    pub(super) fn drive(
        &self,
        plan: Plan,
        names: &'static [&'static str],
        workload: impl FnMut(usize, usize) -> Box<dyn Workload>,
        wait: impl FnOnce(),
    ) -> anyhow::Result<Load> {
        quiescence::wait(&self.resting);
        let mut line = ProgressLine::new(self.args.output.quiet, goal(&plan));
        let before = Mark::now(&self.sut.watched);
        let driven = drive(&plan, names, workload, &self.sut.watched, &mut |point| line.show(point))?;
        wait();
        let busy_after_seconds = idleness::wait(&self.sut.watched);
        let after = Mark::now(&self.sut.watched);
        line.end();
        let cpu_seconds =
            after.servers_seconds.zip(before.servers_seconds).map(|(after, before)| after - before);
        let others_core_share = before.others_until(&after);
        Ok(Load { others_core_share, cpu_seconds, busy_after_seconds, plan, driven })
    }

    /// A plan of one client thread without an end.
    pub(super) fn plan(&self) -> Plan {
        Plan {
            addresses: self.sut.addresses.clone(),
            login: Some(self.sut.login.clone()),
            connections: self.args.connections,
            pipeline: usize::from(self.args.pipeline),
            // The rows of the writes are chosen in one order.
            threads: 1,
            kind: LoopKind::Closed,
            warmup: Duration::ZERO,
            seconds: None,
            operations: None,
            drain: self.drain(),
            seed: self.args.output.seed,
        }
    }

    /// Without any change for this long, missing ones are lost.
    pub(super) fn drain(&self) -> Duration {
        Duration::try_from_secs_f64(self.args.drain).unwrap_or(Duration::MAX)
    }

    /// Resident size of all servers; fails if it cannot be read.
    pub(super) fn memory_bytes(&self) -> anyhow::Result<u64> {
        let each = self.sut.watched.iter().map(|server| server.sample().memory_bytes);
        let all: Option<u64> = each.sum();
        all.context("the memory of the server cannot be read: its process was not found (--server-pid)")
    }

    /// Processor time of all servers since they started.
    pub(super) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let all: Option<f64> = self.sut.watched.iter().map(|server| server.sample().cpu_seconds).sum();
        all.context(
            "the processor time of the server cannot be read: its process was not found (--server-pid)",
        )
    }

    /// The kinds of `count` feeds, in turns.
    pub(super) fn kinds(&self, count: u32) -> Vec<FeedKind> {
        self.args.kinds.iter().copied().cycle().take(count as usize).collect()
    }

    pub(super) fn say(&self, text: &str) {
        if !self.args.output.quiet {
            eprintln!("feeds: {}: {text}", self.measure.name());
        }
    }

    /// The description of the result. `own` are the settings of this measurement.
    pub(super) fn about(&self, plan: &Plan, own: Value) -> RunDescription {
        let args = self.args;
        let mut settings = describe_plan(plan);
        if args.nodes.is_some() {
            settings.extend(args.fleet.describe());
        }
        let common = json!({
            "measure": self.measure.name(),
            "nodes": args.nodes,
            "shards": args.shards,
            "replicas": args.replicas,
            "durability": args.durability.map(DurabilityFlag::name),
            "other-rows": args.other_rows,
            "text-bytes": args.text_bytes,
        });
        for some in [common, own] {
            settings.extend(some.as_object().cloned().unwrap_or_default());
        }
        RunDescription {
            kind: "feeds",
            workload: self.measure.name().to_owned(),
            name: format!("Changefeeds: {}", self.measure.name()),
            label: args.output.label.clone(),
            published: None,
            seed: args.output.seed,
            settings,
            notes: Vec::new(),
            started: self.began,
        }
    }
}
