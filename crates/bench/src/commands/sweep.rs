//! `bench sweep`: the published experiments at several cluster sizes, and one report of them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::{analytic, words, ycsb_load, ycsb_run};
use crate::assemble;
use crate::chance::Chance;
use crate::flags::{fresh_seed, write};
use crate::fleet::flags::FleetFlags;
use crate::fleet::{self, Fleet};
use crate::limits::{above_zero, at_least_one};
use crate::machine::cgroup::CpuGroups;
use crate::machine::watch::Watched;
use crate::machine::{facts, own, whole};
use crate::report;
use crate::result::RunResult;
use crate::sweep::document::{FORMAT, FORMAT_VERSION, QuotaUse, SweepResult, Target};
use crate::sweep::summarize::{self, Surroundings, SweepRun, Workload};
use crate::sweep::{bars, table};
use crate::terminal::thousands;
use crate::wire::admin::Admin;
use crate::wire::handshake::Login;
use crate::wire::terms;
use crate::ycsb::settings::DATABASE;

/// A node that uses no more of a core has done what a load leaves behind; where nodes have a share of a core,
/// no more than this part of it.
const QUIET_CORE_SHARE: f64 = 0.1;
const QUIET_PART: f64 = 0.2;
const QUIET_PATIENCE: Duration = Duration::from_secs(30);

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum WorkloadFlag {
    /// YCSB A: two replicas, hard durability
    A,
    /// YCSB C, read mode single
    #[value(name = "c-sync", alias = "c-single")]
    CSync,
    /// YCSB C, read mode outdated
    COutdated,
    /// The map-reduce query
    Analytic,
}

/// Runs the published experiments on clusters of several sizes
///
/// Starts each cluster on this machine, gives every node the same share of a core, loads, warms up,
/// measures, and writes all results and report.html to one folder.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// Cluster sizes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,3,4,8,12,16",
          value_parser = at_least_one::<u16>)]
    nodes: Vec<u16>,
    /// Drivers' addresses of the servers of a cluster that runs already (comma list); once per cluster.
    /// Then nothing is started, and its size is the number of addresses
    #[arg(long, value_name = "HOST:PORT,…", conflicts_with = "nodes")]
    cluster: Vec<String>,
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "c-sync,c-outdated,analytic,a")]
    workloads: Vec<WorkloadFlag>,
    /// Documents of about 1 KB
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = at_least_one::<u64>)]
    records: u64,
    /// Length of each measured part
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = above_zero)]
    seconds: f64,
    /// Seconds before each measured part
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    warmup: f64,
    /// Timed runs of the map-reduce query
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one::<u64>)]
    runs: u64,
    /// How often all of it is done, every size once in each round: the run in the middle counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u16>)]
    rounds: u16,
    /// Connections for each server
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Threads that drive them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<usize>)]
    client_threads: usize,
    #[command(flatten)]
    fleet: FleetFlags,
    /// Folder for results, report.html and, meanwhile, the nodes' data
    #[arg(short = 'o', long, value_name = "FOLDER", default_value = "sweep")]
    output: PathBuf,
    /// Text to tell this sweep from others
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Seed of keys and values
    #[arg(long, default_value_t = fresh_seed(), hide_default_value = true)]
    seed: u64,
    /// No line while a run is under way
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(mut args: SweepArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    args.fleet.want_caches_for(args.records);
    if args.cluster.is_empty() {
        args.fleet.fit_limited(args.sizes().into_iter().max().unwrap_or(0))?;
    }
    let (mut groups, why_none) = match args.cluster.is_empty() {
        true => args.fleet.groups(),
        false => (None, Some("the clusters ran already".to_owned())),
    };
    why_none.iter().for_each(|why| eprintln!("sweep: no equal shares of processor time: {why}"));
    let mut sweep = Sweep { args: &args, runs: Vec::new(), notes: Vec::new(), version: None };
    for _ in 0..args.rounds {
        match args.cluster.is_empty() {
            true => args.sizes().into_iter().for_each(|nodes| sweep.own_cluster(nodes, groups.as_mut())),
            false => args.cluster.iter().for_each(|hosts| sweep.given_cluster(hosts)),
        }
    }
    let failed = !sweep.notes.is_empty();
    let document = sweep.document(started, groups.as_ref(), why_none);
    write(&args.output.join(format!("{}.json", document.id)), &document)?;
    print!("{}", table::show(&document));
    if !document.series.is_empty() {
        let page = args.output.join("report.html");
        let report::Collected { runs, sweeps, skipped } = report::collect(&args.output)?;
        let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
        std::fs::write(&page, report::render(&runs, &sweeps, &skipped))
            .with_context(|| format!("writing {}", page.display()))?;
        println!("\nreport      {}", page.display());
    }
    let is_wrong = |kind: &str| matches!(kind, "wrong-answers" | "check-failed");
    Ok(match failed || document.alarms.iter().any(|alarm| is_wrong(&alarm.kind)) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

impl SweepArgs {
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.nodes.iter().map(|nodes| usize::from(*nodes)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// What was asked for, the run that changes documents last: the query's answer is known until then.
    fn ordered(&self) -> Vec<Workload> {
        let all = [
            (WorkloadFlag::CSync, Workload::CSync),
            (WorkloadFlag::COutdated, Workload::COutdated),
            (WorkloadFlag::Analytic, Workload::Analytic),
            (WorkloadFlag::A, Workload::A),
        ];
        all.into_iter().filter(|(flag, _)| self.workloads.contains(flag)).map(|(_, one)| one).collect()
    }
}

/// A cluster under measurement.
struct Cluster<'a> {
    addresses: Vec<String>,
    watched: Vec<Watched>,
    groups: Option<&'a CpuGroups>,
}

impl Cluster<'_> {
    fn nodes(&self) -> usize {
        self.addresses.len()
    }

    fn replicas(&self) -> usize {
        self.nodes().min(2)
    }
}

/// What has been measured so far.
struct Sweep<'a> {
    args: &'a SweepArgs,
    runs: Vec<SweepRun>,
    notes: Vec<String>,
    version: Option<String>,
}

impl Sweep<'_> {
    fn own_cluster(&mut self, nodes: usize, mut groups: Option<&mut CpuGroups>) {
        let folder = match fleet::data_folder(&self.args.output.join("nodes")) {
            Ok(folder) => folder,
            Err(error) => return self.note(nodes, Err(error)),
        };
        let outcome = self.start_and_measure(nodes, &folder, groups.as_deref_mut());
        self.note(nodes, outcome);
        if let Some(groups) = groups {
            groups.clear();
        }
        if let Err(error) = folder.give_up() {
            self.notes.push(error.to_string());
        }
    }

    fn start_and_measure(
        &mut self,
        nodes: usize,
        folder: &Path,
        mut groups: Option<&mut CpuGroups>,
    ) -> anyhow::Result<()> {
        eprintln!("sweep: starting {nodes} {}", if nodes == 1 { "node" } else { "nodes" });
        let plan = self.args.fleet.limited_plan(nodes, folder)?;
        let fleet = Fleet::start(&plan, groups.as_deref_mut())?;
        let addresses = fleet.addresses();
        let pages = fleet.metrics_urls();
        let watched = addresses.iter().zip(pages).map(|(a, page)| Watched::find(a, None, Some(page)));
        let cluster = Cluster { watched: watched.collect(), groups: groups.as_deref(), addresses };
        let outcome = self.measure(&cluster);
        match fleet.dead().into_iter().next() {
            Some(said) => bail!("{said}"),
            None => outcome,
        }
    }

    fn given_cluster(&mut self, hosts: &str) {
        let addresses: Vec<String> = hosts.split(',').map(|host| host.trim().to_owned()).collect();
        let watched = addresses.iter().map(|address| Watched::find(address, None, None)).collect();
        let cluster = Cluster { watched, groups: None, addresses };
        let outcome = self.measure(&cluster);
        self.note(cluster.nodes(), outcome);
    }

    fn note(&mut self, nodes: usize, outcome: anyhow::Result<()>) {
        if let Err(error) = outcome {
            let note = format!("{nodes} nodes: {error:#}");
            eprintln!("sweep: {note}");
            self.notes.push(note);
        }
    }

    /// Loads and runs everything on one cluster.
    fn measure(&mut self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        fleet::limit(cluster.groups, None)?;
        let load = self.load(cluster)?;
        if let Some(check) = load.checks.iter().find(|check| !check.ok) {
            let first = load.errors.first().map_or("no error", |error| error.first_message.as_str());
            bail!("only {} of {} documents could be loaded: {first}", check.found, check.expected);
        }
        self.version = load.versions.server.clone();
        write(&self.file(&load), &load)?;
        self.warm(cluster)?;
        fleet::limit(cluster.groups, self.args.fleet.share())?;
        for workload in self.args.ordered() {
            let before = Mark::now(cluster);
            let result = self.run_one(workload, cluster)?;
            let around = before.until(&Mark::now(cluster), &result);
            write(&self.file(&result), &result)?;
            eprintln!(
                "sweep: {} nodes, {}: {} operations/s",
                cluster.nodes(),
                workload.title(),
                thousands(result.throughput.operations_per_second.round() as u64)
            );
            let (nodes, replicas) = (cluster.nodes(), cluster.replicas() as u32);
            let shards = nodes as u32;
            self.runs.push(SweepRun { workload, nodes, shards, replicas, result, around });
        }
        Ok(())
    }

    fn load(&self, cluster: &Cluster<'_>) -> anyhow::Result<RunResult> {
        let words = format!(
            "a --records {} --drop --shards {} --replicas {} --durability soft -p fieldalphabet=ycsb014",
            self.args.records,
            cluster.nodes(),
            cluster.replicas()
        );
        ycsb_load::measure(words::read(&words, &self.common(cluster, "load"))?)
    }

    fn run_one(&self, workload: Workload, cluster: &Cluster<'_>) -> anyhow::Result<RunResult> {
        let SweepArgs { records, seconds, warmup, runs, connections, client_threads, .. } = self.args;
        let pacing = format!(
            "-p recordcount={records} -p fieldalphabet=ycsb014 --connections {} --client-threads \
             {client_threads} --warmup {warmup} --seconds {seconds}",
            connections * cluster.nodes()
        );
        let common = self.common(cluster, workload.key());
        match workload {
            Workload::A => ycsb_run::measure(words::read(&format!("a {pacing} --durability hard"), &common)?),
            Workload::CSync => {
                ycsb_run::measure(words::read(&format!("c {pacing} --read-mode single"), &common)?)
            }
            Workload::COutdated => {
                ycsb_run::measure(words::read(&format!("c {pacing} --read-mode outdated"), &common)?)
            }
            Workload::Analytic => analytic::measure(words::read(&format!("--runs {runs}"), &common)?),
        }
    }

    /// Flags of every run. Metrics pages are not read while something is measured: making them costs
    /// the nodes what they are measured for.
    fn common(&self, cluster: &Cluster<'_>, what: &str) -> Vec<String> {
        let seed = self.args.seed.wrapping_add(self.runs.len() as u64);
        let label = match self.args.label.as_str() {
            "" => format!("{} nodes, {what}", cluster.nodes()),
            label => format!("{label}, {} nodes, {what}", cluster.nodes()),
        };
        let mut flags = vec![
            format!("--host={}", cluster.addresses.join(",")),
            format!("--label={label}"),
            format!("--seed={seed}"),
        ];
        flags.extend(cluster.addresses.iter().map(|_| "--http=none".to_owned()));
        flags.extend(self.args.quiet.then(|| "--quiet".to_owned()));
        flags
    }

    /// Lets every server read its rows once, then waits until the cluster has done what it does after a
    /// load.
    fn warm(&self, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let login = Login { user: "admin".to_owned(), password: String::new() };
        let table = terms::table_outdated(DATABASE, "usertable");
        let query = terms::sum_of_split_counts(table, "field0", ".");
        for address in &cluster.addresses {
            let mut chance = Chance::new(self.args.seed, 7_000_000);
            Admin::connect(address, &login, &mut chance)?.ask(&query)?;
        }
        let granted = self.args.fleet.share().filter(|_| cluster.groups.is_some());
        let quiet = granted.map_or(QUIET_CORE_SHARE, |share| QUIET_CORE_SHARE.min(share * QUIET_PART));
        let started = Instant::now();
        let mut last = Mark::now(cluster);
        while started.elapsed() < QUIET_PATIENCE {
            std::thread::sleep(Duration::from_secs(1));
            let now = Mark::now(cluster);
            let share = now.since(&last, |mark| mark.servers_seconds);
            if share.is_none_or(|share| share < quiet * cluster.nodes() as f64) {
                break;
            }
            last = now;
        }
        Ok(())
    }

    fn file(&self, result: &RunResult) -> PathBuf {
        self.args.output.join(format!("{}.json", result.id))
    }

    fn document(
        self,
        started: SystemTime,
        groups: Option<&CpuGroups>,
        why_none: Option<String>,
    ) -> SweepResult {
        let args = self.args;
        let all = [Workload::A, Workload::CSync, Workload::COutdated, Workload::Analytic];
        let series: Vec<_> =
            all.into_iter().filter_map(|workload| summarize::series(workload, &self.runs)).collect();
        let quota = args.fleet.quota().filter(|_| groups.is_some());
        let binary = args.fleet.plan(1, &args.output).ok().filter(|_| args.cluster.is_empty());
        SweepResult {
            format: FORMAT.to_owned(),
            format_version: FORMAT_VERSION,
            id: assemble::id_of("sweep", "", started),
            label: args.label.clone(),
            command: assemble::command(),
            started_at: facts::rfc3339(started),
            ended_at: facts::rfc3339(SystemTime::now()),
            target: Target {
                binary: binary.map(|plan| plan.binary.display().to_string()),
                version: self.version,
            },
            quota: QuotaUse {
                kind: groups.map_or("none", |groups| groups.version().name()).to_owned(),
                core_share: quota.and(args.fleet.share()),
                quota_us: quota.map(|quota| quota.quota_us),
                period_us: quota.map(|quota| quota.period_us),
                why_none,
            },
            settings: settings(args),
            machine: facts::machine(true),
            bars: bars::bars(&series),
            alarms: summarize::alarms(&series),
            series,
            notes: self.notes,
        }
    }
}

fn settings(args: &SweepArgs) -> Map<String, Value> {
    let described = json!({
        "nodes": args.sizes(),
        "cluster": args.cluster,
        "records": args.records,
        "seconds": args.seconds,
        "warmup": args.warmup,
        "runs": args.runs,
        "rounds": args.rounds,
        "connections": args.connections,
        "client-threads": args.client_threads,
        "cache-size": args.fleet.cache_mb(),
        "node-flag": args.fleet.node_flags(),
        "seed": args.seed.to_string(),
    });
    described.as_object().cloned().unwrap_or_default()
}

/// Counters of machine, client and servers at one moment.
struct Mark {
    at: Instant,
    busy_seconds: Option<f64>,
    own_seconds: f64,
    servers_seconds: Option<f64>,
    link_bytes: Option<u64>,
}

impl Mark {
    fn now(cluster: &Cluster<'_>) -> Mark {
        let samples: Vec<_> = cluster.watched.iter().map(Watched::sample).collect();
        Mark {
            at: Instant::now(),
            busy_seconds: whole::busy_seconds(),
            own_seconds: own::cpu().seconds,
            servers_seconds: samples.iter().map(|sample| sample.cpu_seconds).sum(),
            link_bytes: samples.iter().map(|sample| sample.link_sent_bytes).sum(),
        }
    }

    /// Growth of a counter per second since `before`.
    fn since(&self, before: &Mark, counter: impl Fn(&Mark) -> Option<f64>) -> Option<f64> {
        let grown = counter(self)? - counter(before)?;
        Some(grown / (self.at - before.at).as_secs_f64().max(1e-9))
    }

    /// What happened around `result`, which was measured between this mark and `after`.
    fn until(&self, after: &Mark, result: &RunResult) -> Surroundings {
        let others = |mark: &Mark| Some(mark.busy_seconds? - mark.own_seconds - mark.servers_seconds?);
        let operations: u64 = match result.runs.len() {
            0 => result.series.points.iter().map(|point| point.ok).sum(),
            timed => timed as u64,
        };
        let bytes = self.link_bytes.zip(after.link_bytes).map(|(before, after)| after.saturating_sub(before));
        Surroundings {
            others_core_share: after.since(self, others).map(|share| share.max(0.0)),
            link_bytes_per_operation: bytes
                .filter(|_| operations > 0)
                .map(|bytes| bytes as f64 / operations as f64),
        }
    }
}
