//! `bench sweep`: the published experiments at several cluster sizes, and one report.

mod clusters;
mod existing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::assemble;
use crate::flags::{fresh_seed, write};
use crate::fleet::flags::FleetFlags;
use crate::fleet::sharing::Sharing;
use crate::limits::{above_zero, at_least_one, seconds};
use crate::machine::facts;
use crate::report;
use crate::secrets;
use crate::sweep::document::{FORMAT, FORMAT_VERSION, QuotaUse, SweepResult, Target};
use crate::sweep::run::Workload;
use crate::sweep::summarize;
use crate::sweep::{bars, table};
use clusters::Sweep;
use existing::{ExistingCluster, ExistingClusterFlags};

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
    #[command(flatten)]
    given: ExistingClusterFlags,
    /// What to run
    #[arg(long, value_enum, value_delimiter = ',', default_value = "c-sync,c-outdated,analytic,a")]
    workloads: Vec<WorkloadFlag>,
    /// Documents of about 1 KB
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = at_least_one::<u64>)]
    records: u64,
    /// Length of each measured part
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = above_zero)]
    seconds: f64,
    /// Warm-up before each measured part, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    warmup: f64,
    /// Minimum number of timed runs of the map-reduce query, which is repeated for the length of a measured part
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = at_least_one::<u64>)]
    runs: u64,
    /// How often everything is measured, every size once per round: the median run counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u16>)]
    rounds: u16,
    /// Run all clusters at the same time, each loaded once, and alternate between them, round after round: sizes are
    /// compared within seconds, on a machine whose speed changes
    #[arg(long)]
    together: bool,
    /// Connections for each server
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = at_least_one::<usize>)]
    connections: usize,
    /// Threads that drive them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<usize>)]
    client_threads: usize,
    #[command(flatten)]
    fleet: FleetFlags,
    /// Folder for results and report.html, and temporarily for the nodes' data
    #[arg(short = 'o', long, value_name = "FOLDER", default_value = "sweep")]
    output: PathBuf,
    /// Text that distinguishes this sweep from others
    #[arg(long, default_value = "", hide_default_value = true)]
    label: String,
    /// Seed of keys and values
    #[arg(long, default_value_t = fresh_seed(), hide_default_value = true)]
    seed: u64,
    /// Print no progress during a run
    #[arg(long)]
    quiet: bool,
}

pub fn run(mut args: SweepArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    args.fleet.raise_cache_for(args.records);
    let given = args.given.clusters()?;
    args.given.check(&given)?;
    let mut sharing = match given.is_empty() {
        true => {
            args.fleet.fit_limited(args.nodes_at_once())?;
            args.fleet.begin_sharing()
        }
        false => Sharing::none("the clusters ran already"),
    };
    sharing.warnings().iter().for_each(|complaint| eprintln!("sweep: {complaint}"));
    let mut sweep = Sweep {
        args: &args,
        runs: Vec::new(),
        notes: Vec::new(),
        version: None,
        are_local: true,
        loaded: BTreeSet::new(),
    };
    let (in_one_go, at_once) = match args.together {
        true => (args.rounds, usize::MAX),
        false => (1, 1),
    };
    for first in (0..args.rounds).step_by(usize::from(in_one_go)) {
        let rounds = || usize::from(first)..usize::from(first + in_one_go);
        match given.is_empty() {
            true => args
                .sizes()
                .chunks(at_once)
                .for_each(|sizes| sweep.own_clusters(sizes, rounds(), sharing.groups.as_mut())),
            false => given.chunks(at_once).for_each(|clusters| sweep.given_clusters(clusters, rounds())),
        }
    }
    let code = if sweep.notes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let document = sweep.document(started, &sharing, &given);
    // Without any figure there is no document to write, and nothing for a later report of this folder.
    if !document.series.is_empty() {
        keep(&document, &args.output)?;
    }
    Ok(code)
}

/// Writes the document of a sweep and the report of all documents in its folder.
fn keep(document: &SweepResult, folder: &Path) -> anyhow::Result<()> {
    write(&folder.join(format!("{}.json", document.id)), document)?;
    print!("{}", table::show(document));
    let page = folder.join("report.html");
    report::write_page(folder, &page)?;
    println!("\nreport      {}", page.display());
    Ok(())
}

impl SweepArgs {
    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self.nodes.iter().map(|nodes| usize::from(*nodes)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn nodes_at_once(&self) -> usize {
        let sizes = self.sizes().into_iter();
        if self.together { sizes.sum() } else { sizes.max().unwrap_or(0) }
    }

    /// The requested workloads. The one that changes documents is last, because it invalidates the known answer of the
    /// query.
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

impl Sweep<'_> {
    fn document(self, started: SystemTime, sharing: &Sharing, given: &[ExistingCluster]) -> SweepResult {
        let args = self.args;
        let all = [Workload::A, Workload::CSync, Workload::COutdated, Workload::Analytic];
        let series: Vec<_> =
            all.into_iter().filter_map(|workload| summarize::series(workload, &self.runs)).collect();
        let groups = sharing.groups.as_ref();
        let quota = args.fleet.quota().filter(|_| groups.is_some());
        let binary = args.fleet.plan(1, &args.output).ok().filter(|_| given.is_empty());
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
                why_none: sharing.why_none.clone(),
                scheduling: sharing.scheduling.map(str::to_owned),
                why_not_batch: sharing.why_not_batch.clone(),
            },
            settings: settings(args, given),
            machine: facts::machine(self.are_local),
            bars: match groups.is_some() || !given.is_empty() {
                true => bars::bars(&series),
                false => bars::bars_without_shares(&series),
            },
            alarms: summarize::alarms(&series),
            series,
            notes: self.notes,
        }
    }
}

fn settings(args: &SweepArgs, given: &[ExistingCluster]) -> Map<String, Value> {
    let sizes = match given.is_empty() {
        true => args.sizes(),
        false => given.iter().map(|cluster| cluster.addresses.len()).collect(),
    };
    let clusters = given.iter().map(|cluster| cluster.addresses.join(","));
    let workloads = args.ordered().into_iter().map(Workload::key);
    let described = json!({
        "nodes": sizes,
        "cluster": clusters.collect::<Vec<_>>(),
        "workloads": workloads.collect::<Vec<_>>(),
        "records": args.records,
        "seconds": args.seconds,
        "warmup": args.warmup,
        "runs": args.runs,
        "rounds": args.rounds,
        "together": args.together,
        "connections": args.connections,
        "client-threads": args.client_threads,
        "cache-size": args.fleet.cache_mb(),
        "node-flag": secrets::without_passwords(args.fleet.node_flags()),
        "seed": args.seed.to_string(),
    });
    described.as_object().cloned().unwrap_or_default()
}
