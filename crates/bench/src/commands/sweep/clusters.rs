//! The clusters of a sweep: they are started, loaded and measured, one after the other or alternately.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use client::admin::Admin;
use client::answer::FailureKind;
use client::handshake::Login;
use client::terms;

use super::SweepArgs;
use super::existing::{self, ExistingCluster, TABLE};
use crate::alarms::HOW_TO_WATCH;
use crate::commands::{analytic, arguments, ycsb_load, ycsb_run};
use crate::conditions::Mark;
use crate::flags::{why_invalid, write};
use crate::fleet::{self, Fleet, FleetPlan};
use crate::machine::cgroup::{CpuGroups, Quota};
use crate::machine::watch::Watched;
use crate::result::RunResult;
use crate::sweep::run::{SweepRun, Workload};
use crate::terminal::thousands;
use crate::ycsb::settings::DATABASE;

/// A node below this use of a core has finished the work that follows a load. Where nodes have only a share of a core,
/// it is at most this part of the share.
const QUIET_CORE_SHARE: f64 = 0.1;
const QUIET_PART: f64 = 0.2;
const QUIET_TIMEOUT: Duration = Duration::from_secs(30);

/// A measured cluster.
pub(super) struct Cluster {
    addresses: Vec<String>,
    watched: Vec<Watched>,
    /// The nodes, if the benchmark has started them; `None` for a given cluster.
    fleet: Option<Fleet>,
}

/// The size of a cluster as text.
fn size(nodes: usize) -> String {
    format!("{nodes} {}", if nodes == 1 { "node" } else { "nodes" })
}

impl Cluster {
    fn start(plan: &FleetPlan, groups: Option<&mut CpuGroups>) -> anyhow::Result<Cluster> {
        eprintln!("sweep: starting {}", size(plan.nodes));
        let fleet = Fleet::start(plan, groups)?;
        let addresses = fleet.addresses();
        let pages = fleet.metrics_urls();
        let watched = addresses.iter().zip(pages).map(|(a, page)| Watched::find(a, None, Some(page)));
        Ok(Cluster { watched: watched.collect(), fleet: Some(fleet), addresses })
    }

    fn given(ExistingCluster { addresses, pages }: &ExistingCluster) -> Cluster {
        let servers = addresses.iter().zip(pages);
        let watched = servers.map(|(address, page)| Watched::find(address, None, page.clone()));
        Cluster { watched: watched.collect(), fleet: None, addresses: addresses.clone() }
    }

    fn nodes(&self) -> usize {
        self.addresses.len()
    }

    fn replicas(&self) -> usize {
        self.nodes().min(2)
    }

    /// Fails if a server is lost; for a node that the sweep has started, with its last output.
    fn all_live(&self, login: &Login) -> anyhow::Result<()> {
        self.unless_dead(Ok(()))?;
        match self.fleet {
            Some(_) => Ok(()),
            None => self.addresses.iter().try_for_each(|address| self.connect(address, login).map(drop)),
        }
    }

    /// Connects to one of its servers. An error names the flags that define the cluster.
    fn connect(&self, address: &str, login: &Login) -> anyhow::Result<Admin> {
        match self.fleet {
            Some(_) => {
                let admin = Admin::connect(address, login);
                self.unless_dead(admin.with_context(|| format!("a node started by the sweep, at {address}")))
            }
            None => existing::connect(address, login),
        }
    }

    /// `outcome`, unless a node has ended: then an error with its last output.
    fn unless_dead<T>(&self, outcome: anyhow::Result<T>) -> anyhow::Result<T> {
        match self.fleet.iter().flat_map(Fleet::dead).next() {
            Some(said) => bail!("{said}"),
            None => outcome,
        }
    }
}

/// Why a run gives no figure for its cluster: it is worthless, or servers were lost or hung.
fn why_no_figure(result: &RunResult) -> Option<String> {
    let of = |kind: FailureKind, what: &str| {
        let error = result.errors.iter().find(|error| error.kind == kind.name())?;
        Some(format!("{} {what}: {}", error.count, error.first_message))
    };
    why_invalid(result)
        .or_else(|| of(FailureKind::ConnectionLost, "connections were lost"))
        .or_else(|| of(FailureKind::NoAnswer, "queries had no answer"))
}

/// The measurements so far.
pub(super) struct Sweep<'a> {
    pub(super) args: &'a SweepArgs,
    pub(super) runs: Vec<SweepRun>,
    pub(super) notes: Vec<String>,
    pub(super) version: Option<String>,
    /// Whether all servers so far are on this machine, judging by their addresses.
    pub(super) are_local: bool,
    /// The addresses of clusters on which this sweep has created the table.
    pub(super) loaded: BTreeSet<Vec<String>>,
}

impl Sweep<'_> {
    /// Starts clusters of these sizes on this machine at the same time, and runs each workload on all of them,
    /// alternately, once for each of these `rounds`.
    pub(super) fn own_clusters(
        &mut self,
        sizes: &[usize],
        rounds: Range<usize>,
        mut groups: Option<&mut CpuGroups>,
    ) {
        let folder = match fleet::data_folder(&self.args.output.join("nodes")) {
            Ok(folder) => folder,
            Err(error) => return self.add_note(format!("{error:#}")),
        };
        let started = self.start(sizes, &folder, groups.as_deref_mut());
        self.measure(started, rounds, groups.as_deref());
        if let Some(groups) = groups {
            groups.clear();
        }
        if let Err(error) = folder.release() {
            self.add_note(error.to_string());
        }
    }

    /// Does the same on given clusters.
    pub(super) fn given_clusters(&mut self, given: &[ExistingCluster], rounds: Range<usize>) {
        self.measure(given.iter().map(Cluster::given).collect(), rounds, None);
    }

    fn start(&mut self, sizes: &[usize], folder: &Path, mut groups: Option<&mut CpuGroups>) -> Vec<Cluster> {
        let mut clusters = Vec::new();
        let mut ports_taken = 0;
        for &nodes in sizes {
            let started = self.plan(nodes, folder, ports_taken);
            let started = started.and_then(|plan| Cluster::start(&plan, groups.as_deref_mut()));
            clusters.extend(self.ok_or_note(nodes, started));
            ports_taken += nodes as u16;
        }
        clusters
    }

    fn plan(&self, nodes: usize, folder: &Path, ports_taken: u16) -> anyhow::Result<FleetPlan> {
        let plan = self.args.fleet.limited_plan(nodes, &folder.join(format!("of{nodes}")))?;
        Ok(FleetPlan { port_offset: plan.port_offset + ports_taken, ..plan })
    }

    /// The value of something done on a cluster of this size; an error is reported as a note.
    fn ok_or_note<T>(&mut self, nodes: usize, outcome: anyhow::Result<T>) -> Option<T> {
        outcome.map_err(|error| self.add_note(format!("{}: {error:#}", size(nodes)))).ok()
    }

    /// Prints a note and adds it to the report.
    fn add_note(&mut self, note: String) {
        eprintln!("sweep: {note}");
        self.notes.push(note);
    }

    /// Loads all clusters, then runs everything on them. A cluster with a failure is dropped.
    fn measure(&mut self, mut clusters: Vec<Cluster>, rounds: Range<usize>, groups: Option<&CpuGroups>) {
        let is_limited = groups.is_some();
        self.keep(&mut clusters, |sweep, cluster| sweep.prepare(cluster, is_limited));
        if let Err(error) = fleet::limit(groups, self.args.fleet.share()) {
            return self.add_note(format!("{error:#}"));
        }
        let quota = self.args.fleet.quota().filter(|_| is_limited);
        for workload in self.args.ordered() {
            for round in rounds.clone() {
                self.keep(&mut clusters, |sweep, cluster| sweep.run_on(workload, round, quota, cluster));
            }
        }
    }

    /// Does something on each cluster and drops those on which it fails.
    fn keep(
        &mut self,
        clusters: &mut Vec<Cluster>,
        mut act: impl FnMut(&mut Self, &Cluster) -> anyhow::Result<()>,
    ) {
        clusters.retain(|cluster| {
            let outcome = act(self, cluster);
            self.ok_or_note(cluster.nodes(), cluster.unless_dead(outcome)).is_some()
        });
    }

    fn prepare(&mut self, cluster: &Cluster, is_limited: bool) -> anyhow::Result<()> {
        let mut load = self.load(cluster)?;
        self.loaded.insert(cluster.addresses.clone());
        self.advise(cluster, &mut load);
        if let Some(check) = load.checks.iter().find(|check| !check.ok) {
            let first = load.errors.first().map_or("no error", |error| error.first_message.as_str());
            bail!("only {} of {} documents could be loaded: {first}", check.found, check.expected);
        }
        self.version = load.versions.server.clone();
        self.are_local &= load.machine.server_is_local;
        write(&self.file(&load), &load)?;
        self.warm(cluster, is_limited)
    }

    fn run_on(
        &mut self,
        workload: Workload,
        round: usize,
        quota: Option<Quota>,
        cluster: &Cluster,
    ) -> anyhow::Result<()> {
        let before = Mark::now(&cluster.watched);
        let mut result = self.run_one(workload, cluster)?;
        self.advise(cluster, &mut result);
        let conditions = before.until(&Mark::now(&cluster.watched), &result, quota);
        write(&self.file(&result), &result)?;
        cluster
            .all_live(&self.args.given.login())
            .with_context(|| format!("{}: a server was lost", workload.title()))?;
        if let Some(why) = why_no_figure(&result) {
            bail!("{}: {why}", workload.title());
        }
        eprintln!(
            "sweep: {}, {}: {} operations/s",
            size(cluster.nodes()),
            workload.title(),
            thousands(result.throughput.operations_per_second.round() as u64)
        );
        let (nodes, replicas) = (cluster.nodes(), cluster.replicas() as u32);
        self.runs.push(SweepRun {
            workload,
            round,
            nodes,
            shards: nodes as u32,
            replicas,
            result,
            conditions,
        });
        Ok(())
    }

    fn load(&self, cluster: &Cluster) -> anyhow::Result<RunResult> {
        // Only a table that this sweep has loaded may be dropped. A table could have been created since the sweep
        // looked.
        let is_ours = cluster.fleet.is_some() || self.loaded.contains(&cluster.addresses);
        let words = format!(
            "a --records {} {} --shards {} --replicas {} --durability soft -p fieldalphabet=ycsb014",
            self.args.records,
            if is_ours || self.args.given.may_drop() { "--drop" } else { "" },
            cluster.nodes(),
            cluster.replicas()
        );
        ycsb_load::measure(arguments::parse(&words, &self.common(cluster, "load"))?)
    }

    fn run_one(&self, workload: Workload, cluster: &Cluster) -> anyhow::Result<RunResult> {
        let SweepArgs { records, seconds, warmup, runs, connections, client_threads, .. } = self.args;
        let pacing = format!(
            "-p recordcount={records} -p fieldalphabet=ycsb014 --connections {} --client-threads \
             {client_threads} --warmup {warmup} --seconds {seconds}",
            connections * cluster.nodes()
        );
        let common = self.common(cluster, workload.key());
        match workload {
            Workload::A => {
                ycsb_run::measure(arguments::parse(&format!("a {pacing} --durability hard"), &common)?)
            }
            Workload::CSync => {
                ycsb_run::measure(arguments::parse(&format!("c {pacing} --read-mode single"), &common)?)
            }
            Workload::COutdated => {
                ycsb_run::measure(arguments::parse(&format!("c {pacing} --read-mode outdated"), &common)?)
            }
            Workload::Analytic => {
                analytic::measure(arguments::parse(&format!("--runs {runs} --seconds {seconds}"), &common)?)
            }
        }
    }

    /// The flags of every run. Metrics pages are not read during a measurement, because they cost the nodes processor
    /// time, unless they are the only source of a server's processor time.
    fn common(&self, cluster: &Cluster, what: &str) -> Vec<String> {
        let seed = self.args.seed.wrapping_add(self.runs.len() as u64);
        let label = match self.args.label.as_str() {
            "" => format!("{}, {what}", size(cluster.nodes())),
            label => format!("{label}, {}, {what}", size(cluster.nodes())),
        };
        let mut flags = vec![
            format!("--host={}", cluster.addresses.join(",")),
            format!("--label={label}"),
            format!("--seed={seed}"),
        ];
        if cluster.fleet.is_none() {
            let Login { user, password } = self.args.given.login();
            flags.extend([format!("--user={user}"), format!("--password={password}")]);
        }
        let page = |server: &Watched| match (server.pid, &server.metrics_url) {
            (None, Some(url)) => format!("--http={url}"),
            _ => "--http=none".to_owned(),
        };
        flags.extend(cluster.watched.iter().map(page));
        flags.extend(self.args.quiet.then(|| "--quiet".to_owned()));
        flags
    }

    /// Makes every server read its rows once, then waits until the cluster has finished the work that follows a load.
    fn warm(&self, cluster: &Cluster, is_limited: bool) -> anyhow::Result<()> {
        let table = terms::table_outdated(DATABASE, TABLE);
        let query = terms::sum_of_split_counts(table, "field0", ".");
        for address in &cluster.addresses {
            cluster.connect(address, &self.args.given.login())?.ask(&query)?;
        }
        let granted = self.args.fleet.share().filter(|_| is_limited);
        let quiet = granted.map_or(QUIET_CORE_SHARE, |share| QUIET_CORE_SHARE.min(share * QUIET_PART));
        let started = Instant::now();
        let mut last = Mark::now(&cluster.watched);
        while started.elapsed() < QUIET_TIMEOUT {
            std::thread::sleep(Duration::from_secs(1));
            let now = Mark::now(&cluster.watched);
            let share = now.since(&last, |mark| mark.servers_seconds);
            if share.is_none_or(|share| share < quiet * cluster.nodes() as f64) {
                break;
            }
            last = now;
        }
        Ok(())
    }

    /// Replaces the advice about servers that are not watched with the flags of this command.
    fn advise(&self, cluster: &Cluster, result: &mut RunResult) {
        let how = match cluster.fleet {
            None => "give --http, with one page for each server",
            Some(_) => "neither its process nor its metrics page can be read",
        };
        result.alarms.iter_mut().for_each(|alarm| alarm.message = alarm.message.replace(HOW_TO_WATCH, how));
    }

    fn file(&self, result: &RunResult) -> PathBuf {
        self.args.output.join(format!("{}.json", result.id))
    }
}
