//! `bench units`: BigchainDB's tests 1 to 6 and its replication tests, scaled to this machine.
//!
//! Each test has its own cluster, so that no test is affected by an earlier one. Its result is written as soon as it is
//! available, together with a page of all results so far, so that they survive if the command ends early.

mod checks;
mod show;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use clap::Args;
use client::admin::Admin;
use client::handshake::Login;
use client::terms;
use serde_json::json;

use super::{arguments, blocks};
use crate::blocks::placement::Roles;
use crate::blocks::published_tests::{self, PUBLISHED_TESTS, PublishedTest};
use crate::conditions::{Mark, disturbed};
use crate::flags::{fresh_seed, write};
use crate::fleet::flags::FleetFlags;
use crate::fleet::{self, Fleet, folder_bytes};
use crate::limits::{above_zero, at_least_one};
use crate::machine::cgroup::CpuGroups;
use crate::machine::watch::Watched;
use crate::result::{CheckOutcome, RunResult};
use crate::units_result::UnitsTest;
use crate::{alarms, assemble, report};
use checks::{Base, Verdicts, equal};

const DATABASE: &str = "bigchain";
const TABLE: &str = "bigchain";
const OVERLOAD: &str = "overload";

/// Runs BigchainDB's tests 1 to 6 and its replication tests on clusters of this machine
///
/// The numbers of nodes and shards are the published ones divided by one factor, and each node has as many write units
/// as there; blocks, durability and the closed loop are as published. Every node gets the same share of a core. Each
/// test starts its own cluster, and writes its result when it ends.
#[derive(Args, Clone, Debug)]
pub struct UnitsArgs {
    /// Divisor of the published numbers of nodes (32 and 64) and shards (32): 1, 2, 4, 8 or 16
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = published_tests::factor)]
    factor: usize,
    /// Length of each test
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = above_zero)]
    seconds: f64,
    /// Bytes of JSON per block
    #[arg(long, value_name = "N", default_value_t = 900_000, value_parser = at_least_one::<usize>)]
    block_bytes: usize,
    /// Write units of the overload test, as a multiple of test 5
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one::<usize>)]
    overload: usize,
    #[command(flatten)]
    fleet: FleetFlags,
    /// Folder for results and report.html, and temporarily for the nodes' data
    #[arg(short = 'o', long, value_name = "FOLDER", default_value = "units")]
    output: PathBuf,
    /// Seed of the blocks
    #[arg(long, default_value_t = fresh_seed(), hide_default_value = true)]
    seed: u64,
    /// Print no progress during a test
    #[arg(long)]
    quiet: bool,
}

/// Runs the command; fails when a check fails.
pub fn run(args: UnitsArgs) -> anyhow::Result<ExitCode> {
    let nodes = PUBLISHED_TESTS.map(|trial| trial.nodes(args.factor));
    args.fleet.fit_limited(nodes.into_iter().max().unwrap_or(0))?;
    has_room(&args.output)?;
    let mut sharing = args.fleet.begin_sharing();
    sharing.warnings().iter().for_each(|complaint| eprintln!("units: {complaint}"));
    let mut units = Units {
        args: &args,
        session: assemble::id_of("units", "", SystemTime::now()),
        scheduling: sharing.scheduling,
        groups: sharing.groups.take(),
        done: Vec::new(),
        broken: BTreeMap::new(),
    };
    let outcome = units.all();
    print!("{}", show::table(&units.done));
    if !units.done.is_empty() {
        println!("\nreport      {}", units.page().display());
    }
    outcome?;
    let failed = units.done.iter().flat_map(|result| &result.checks).any(|check| !check.ok);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Fails early if results or the nodes' data cannot be written there.
fn has_room(output: &Path) -> anyhow::Result<()> {
    let made = fleet::data_folder(&output.join("nodes")).and_then(|folder| Ok(folder.release()?));
    made.with_context(|| format!("--output {} cannot be used", output.display()))
}

struct Units<'a> {
    args: &'a UnitsArgs,
    session: String,
    scheduling: Option<&'static str>,
    groups: Option<CpuGroups>,
    done: Vec<RunResult>,
    /// Failed tests by name, and why their blocks per second are no figure.
    broken: BTreeMap<String, String>,
}

/// A measured cluster.
struct Cluster {
    fleet: Fleet,
    watched: Vec<Watched>,
    admin: Admin,
}

impl Cluster {
    fn roles(&mut self, table: &str) -> anyhow::Result<Roles> {
        Ok(Roles::of(&self.admin.ask(&terms::config(terms::table(DATABASE, table)))?))
    }

    /// The size of each node's data folder in bytes.
    fn folder_bytes(&self) -> Vec<u64> {
        self.fleet.folders().iter().map(|folder| folder_bytes(folder)).collect()
    }
}

/// A test on one cluster.
struct Test {
    name: String,
    units_by_node: Vec<usize>,
    replicas: usize,
    published: Option<PublishedTest>,
}

impl Units<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        let factor = self.args.factor;
        for trial in PUBLISHED_TESTS {
            let (name, units_by_node) = (format!("test {}", trial.number), trial.units_by_node(factor));
            let test = Test { name, units_by_node, replicas: 1, published: Some(trial) };
            self.on_cluster(trial.nodes(factor), |units, cluster| units.run(cluster, &test).map(drop))?;
        }
        // Many more units than in test 5: blocks are queued or rejected, no node dies, and no acknowledged block is
        // missing.
        let units =
            PUBLISHED_TESTS[4].units_by_node(factor).iter().map(|units| units * self.args.overload).collect();
        let overload = Test { name: OVERLOAD.to_owned(), units_by_node: units, replicas: 1, published: None };
        self.on_cluster(PUBLISHED_TESTS[4].nodes(factor), |units, cluster| {
            units.run(cluster, &overload).map(drop)
        })?;
        // Test 4 with two replicas.
        let units_by_node = PUBLISHED_TESTS[3].units_by_node(factor);
        let replicated = Test { name: "replicated".to_owned(), units_by_node, replicas: 2, published: None };
        self.on_cluster(PUBLISHED_TESTS[3].nodes(factor), |units, cluster| {
            units.run(cluster, &replicated)?;
            units.second_table(cluster)
        })
    }

    fn on_cluster(
        &mut self,
        nodes: usize,
        work: impl FnOnce(&mut Self, &mut Cluster) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        eprintln!("units: starting {nodes} nodes");
        let folder = fleet::data_folder(&self.args.output.join("nodes"))?;
        let fleet = Fleet::start(&self.args.fleet.limited_plan(nodes, &folder)?, self.groups.as_mut())?;
        let login = Login { user: "admin".to_owned(), password: String::new() };
        let addresses = fleet.addresses();
        let admin = Admin::connect(&addresses[0], &login)?;
        let watch = |address: &String| Watched::find(address, None, Some("none".to_owned()));
        let watched = addresses.iter().map(watch).collect();
        let mut cluster = Cluster { fleet, watched, admin };
        let outcome = work(self, &mut cluster);
        drop(cluster);
        if let Some(groups) = &mut self.groups {
            groups.clear();
        }
        folder.release()?;
        outcome
    }

    /// Measures, checks and writes one test. An unresponsive cluster is a failed check, not an error: the result of a
    /// test that broke its cluster is the most interesting one.
    fn run(&mut self, cluster: &mut Cluster, test: &Test) -> anyhow::Result<()> {
        let before = cluster.folder_bytes();
        let measured = self.measure(cluster, test);
        let dead = cluster.fleet.dead();
        dead.iter().for_each(|said| eprintln!("units: {said}"));
        let mut result = measured?;
        let after = cluster.folder_bytes();
        let (roles, there) = (cluster.roles(TABLE), count(cluster));
        let unanswered = roles.as_ref().err().into_iter().chain(there.as_ref().err());
        unanswered.for_each(|error| result.notes.push(format!("the cluster does not answer: {error:#}")));
        let nodes = checks::node_disks(&cluster.fleet.names(), &result.servers, &before, &after);
        let mut about = self.describe(test);
        about.disk = roles.as_ref().map_or_else(|_| Vec::new(), |roles| checks::by_role(roles, &nodes));
        result.units = Some(about);

        let mut verdicts = Verdicts::default();
        verdicts.survived(&result, nodes.len() - dead.len(), there.as_ref().copied());
        let why_no_figure = verdicts.why_no_figure(&result);
        self.relate(&mut result, why_no_figure.as_deref());
        if test.name == OVERLOAD {
            result.notes.push(checks::refusals(&result));
        }
        match (test.name.as_str(), self.base("test 1", &why_no_figure), self.base("test 4", &why_no_figure)) {
            ("test 4", Some(first), _) => verdicts.primaries_write_alike(&result, &first),
            ("replicated", _, Some(single)) => {
                verdicts.halves(roles.as_ref().ok(), nodes.len() / 2);
                verdicts.primaries_write_alike(&result, &single);
                verdicts.twice_as_much(&result, &single);
            }
            _ => {}
        }
        self.broken.extend(why_no_figure.map(|why| (test.name.clone(), why)));
        verdicts.settle(&mut result);
        let line =
            format!("units: {}: {:.1} blocks/s", result.label, result.throughput.operations_per_second);
        self.done.push(result);
        self.keep_last()?;
        // Printed last, because a reader of this line may expect the file to exist.
        eprintln!("{line}");
        Ok(())
    }

    /// An earlier test to compare with, if there is one. `why_no_figure`: why the present test is no figure.
    fn base(&self, name: &str, why_no_figure: &Option<String>) -> Option<Base<'_>> {
        let result = self.done.iter().find(|result| result.label == name)?;
        let this = why_no_figure.as_ref().map(|why| format!("this test is invalid: {why}"));
        let other = || self.broken.get(name).map(|why| format!("{name} is invalid: {why}"));
        Some(Base { result, why_none: this.or_else(other) })
    }

    /// Records in `result` its ratio to test 1, or why there is none.
    fn relate(&self, result: &mut RunResult, why_no_figure: Option<&str>) {
        let rate = result.throughput.operations_per_second;
        let first = self.done.iter().find(|result| result.label == "test 1");
        let first = match (self.broken.get("test 1"), first) {
            (Some(why), _) => Err(why.as_str()),
            (None, first) => Ok(first.map_or(rate, |first| first.throughput.operations_per_second)),
        };
        let ratio = checks::by_test_1(rate, why_no_figure, first);
        result.notes.extend(ratio.as_ref().err().cloned());
        if let Some(about) = &mut result.units {
            about.by_test_1 = ratio.ok();
        }
    }

    /// Creates a table on one half of the nodes, then another: it must be placed on the other half.
    fn second_table(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let shards = published_tests::shards(self.args.factor);
        cluster.admin.ask(&terms::table_drop(DATABASE, TABLE))?;
        let mut held = Vec::new();
        for name in ["first", "second"] {
            let options = json!({"shards": shards, "replicas": 1});
            cluster.admin.ask(&terms::table_create(DATABASE, name, options))?;
            cluster.admin.ask(&terms::wait(terms::table(DATABASE, name)))?;
            held.push(cluster.roles(name)?.all());
        }
        let both = held[0].intersection(&held[1]).count();
        let checks: [CheckOutcome; 3] = [
            equal("nodes that hold the first table", shards as f64, held[0].len() as f64),
            equal("nodes that hold the second table", shards as f64, held[1].len() as f64),
            equal("nodes that hold both", 0.0, both as f64),
        ];
        let last = self.done.last_mut().context("a test ran before")?;
        last.checks.extend(checks);
        alarms::renew(last);
        self.keep_last()
    }

    fn measure(&self, cluster: &Cluster, test: &Test) -> anyhow::Result<RunResult> {
        let words = format!(
            "--drop --shards {} --replicas {} --seconds {} --block-bytes {}",
            published_tests::shards(self.args.factor),
            test.replicas,
            self.args.seconds,
            self.args.block_bytes
        );
        let addresses = cluster.fleet.addresses();
        let mut exact = vec![
            format!("--host={}", addresses.join(",")),
            format!("--label={}", test.name),
            format!("--seed={}", self.args.seed.wrapping_add(self.done.len() as u64)),
        ];
        exact.extend(addresses.iter().map(|_| "--http=none".to_owned()));
        exact.extend(self.args.quiet.then(|| "--quiet".to_owned()));
        fleet::limit(self.groups.as_ref(), self.args.fleet.share())?;
        let around = Mark::now(&cluster.watched);
        let measured = blocks::measure_distributed(arguments::parse(&words, &exact)?, &test.units_by_node);
        let others = around.others_until(&Mark::now(&cluster.watched));
        fleet::limit(self.groups.as_ref(), None)?;
        let mut result = measured?;
        // Only the numbered tests have published figures, which are divided by the factor.
        result.published = result.published.filter(|_| test.published.is_some());
        result.alarms.extend(disturbed(&[others]));
        result.settings.extend(self.args.fleet.describe());
        let own = [
            ("factor", json!(self.args.factor)),
            ("overload", json!(self.args.overload)),
            // Without control groups no share is in force.
            ("core-share", json!(self.core_share())),
            ("scheduling", json!(self.scheduling)),
        ];
        result.settings.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Ok(result)
    }

    fn describe(&self, test: &Test) -> UnitsTest {
        let factor = self.args.factor;
        UnitsTest {
            session: self.session.clone(),
            test: test.name.clone(),
            factor,
            nodes: test.units_by_node.len(),
            core_share: self.core_share(),
            units_by_node: test.units_by_node.clone(),
            by_test_1: None,
            expected_by_test_1: test.published.map(|trial| trial.expected_ratio(factor)),
            published_by_test_1: test.published.map(PublishedTest::published_ratio),
            published_per_second: test.published.map(|trial| trial.published_per_second(factor)),
            disk: Vec::new(),
            unverified: Vec::new(),
        }
    }

    /// The share of one core for each node; `None` if they are not limited.
    fn core_share(&self) -> Option<f64> {
        self.args.fleet.share().filter(|_| self.groups.is_some())
    }

    fn page(&self) -> PathBuf {
        self.args.output.join("report.html")
    }

    /// Writes the last result and the page of all results.
    fn keep_last(&self) -> anyhow::Result<()> {
        let last = self.done.last().context("a test ran before")?;
        write(&self.args.output.join(format!("{}.json", last.id)), last)?;
        report::write_page(&self.args.output, &self.page()).map(drop)
    }
}

fn count(cluster: &mut Cluster) -> anyhow::Result<f64> {
    let there = cluster.admin.ask(&terms::count(terms::table(DATABASE, TABLE)))?;
    there.as_f64().context("a count is a number")
}
