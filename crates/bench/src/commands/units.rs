//! `bench units`: BigchainDB's tests 1 to 6 and its replication tests, scaled to this machine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::{blocks, words};
use crate::alarms;
use crate::blocks::placement::Roles;
use crate::blocks::trials::{self, TRIALS, Trial};
use crate::chance::Chance;
use crate::flags::{fresh_seed, write};
use crate::fleet::flags::FleetFlags;
use crate::fleet::{self, Fleet, folder_bytes};
use crate::limits::{above_zero, at_least_one};
use crate::machine::cgroup::CpuGroups;
use crate::result::{CheckOutcome, RunResult};
use crate::terminal::thousands;
use crate::wire::admin::Admin;
use crate::wire::handshake::Login;
use crate::wire::terms;

const DATABASE: &str = "bigchain";
const TABLE: &str = "bigchain";
/// Classes of errors that tell a client clearly that a server has too much to do.
const REFUSALS: [&str; 3] = ["RESOURCE_LIMIT", "OP_FAILED", "OP_INDETERMINATE"];
/// Bytes written with two replicas by those with one may differ this much from two: logs are written in
/// steps, and blocks shrink unequally.
const TWICE: std::ops::RangeInclusive<f64> = 1.5..=2.5;
/// A test in which a node wrote fewer bytes says nothing about [`TWICE`]: a server writes a block once more when its
/// memory for new rows is full, and in a short test chance decides whether that falls into it.
const MANY_BYTES: f64 = 1e9;

/// Runs BigchainDB's tests 1 to 6 and its replication tests on clusters of this machine
///
/// Nodes, shards and write units are those of the published tests divided by one factor; blocks,
/// durability and the loop are the published ones. Every node gets the same share of a core.
#[derive(Args, Clone, Debug)]
pub struct UnitsArgs {
    /// By what the published nodes (32 and 64), shards (32) and write units are divided
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = at_least_one::<usize>)]
    factor: usize,
    /// Length of each test
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = above_zero)]
    seconds: f64,
    /// Bytes of JSON per block
    #[arg(long, value_name = "N", default_value_t = 900_000, value_parser = at_least_one::<usize>)]
    block_bytes: usize,
    /// Write units of the overload, by those of test 5
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one::<usize>)]
    overload: usize,
    #[command(flatten)]
    fleet: FleetFlags,
    /// Folder for results and, meanwhile, the nodes' data
    #[arg(short = 'o', long, value_name = "FOLDER", default_value = "units")]
    output: PathBuf,
    /// Seed of the blocks
    #[arg(long, default_value_t = fresh_seed(), hide_default_value = true)]
    seed: u64,
    /// No line while a test is under way
    #[arg(long)]
    quiet: bool,
}

/// Runs the command; fails when a check does.
pub fn run(args: UnitsArgs) -> anyhow::Result<ExitCode> {
    let small = TRIALS[0].scaled(args.factor).nodes;
    let large = TRIALS[3].scaled(args.factor).nodes;
    args.fleet.fit_limited(small.max(large))?;
    let mut sharing = args.fleet.begin_sharing();
    sharing.complaints().iter().for_each(|complaint| eprintln!("units: {complaint}"));
    let mut groups = sharing.groups.take();
    let mut units = Units { args: &args, scheduling: sharing.scheduling, done: Vec::new() };
    units.on_cluster(small, groups.as_mut(), |units, cluster| {
        TRIALS[..3].iter().try_for_each(|trial| units.trial(cluster, *trial))
    })?;
    units.on_cluster(large, groups.as_mut(), |units, cluster| {
        TRIALS[3..].iter().try_for_each(|trial| units.trial(cluster, *trial))?;
        units.overload(cluster)?;
        units.replicated(cluster)?;
        units.second_table(cluster)
    })?;
    for result in &units.done {
        write(&args.output.join(format!("{}.json", result.id)), result)?;
    }
    print!("{}", show(&units.done));
    let failed = units.done.iter().flat_map(|result| &result.checks).any(|check| !check.ok);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Units<'a> {
    args: &'a UnitsArgs,
    scheduling: Option<&'static str>,
    done: Vec<RunResult>,
}

/// A cluster under test.
struct Cluster<'a> {
    fleet: Fleet,
    groups: Option<&'a CpuGroups>,
    admin: Admin,
}

impl Cluster<'_> {
    fn roles(&mut self, table: &str) -> anyhow::Result<Roles> {
        Ok(Roles::of(&self.admin.ask(&terms::config(terms::table(DATABASE, table)))?))
    }

    /// Bytes in the data folders of the servers named.
    fn disk_bytes(&self, names: &BTreeSet<String>) -> u64 {
        let all = self.fleet.names().into_iter().zip(self.fleet.folders());
        all.filter(|(name, _)| names.contains(name)).map(|(_, folder)| folder_bytes(&folder)).sum()
    }
}

impl Units<'_> {
    fn on_cluster(
        &mut self,
        nodes: usize,
        mut groups: Option<&mut CpuGroups>,
        work: impl FnOnce(&mut Self, &mut Cluster<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        eprintln!("units: starting {nodes} nodes");
        let folder = fleet::data_folder(&self.args.output.join("nodes"))?;
        let fleet = Fleet::start(&self.args.fleet.limited_plan(nodes, &folder)?, groups.as_deref_mut())?;
        let login = Login { user: "admin".to_owned(), password: String::new() };
        let first = fleet.addresses().swap_remove(0);
        let admin = Admin::connect(&first, &login, &mut Chance::new(self.args.seed, 8_000_000))?;
        let mut cluster = Cluster { fleet, groups: groups.as_deref(), admin };
        let outcome = work(self, &mut cluster);
        drop(cluster);
        if let Some(groups) = groups {
            groups.clear();
        }
        folder.give_up()?;
        outcome
    }

    fn trial(&mut self, cluster: &mut Cluster<'_>, trial: Trial) -> anyhow::Result<()> {
        let scaled = trial.scaled(self.args.factor);
        let name = format!("test {}", trial.number);
        let mut result = self.measure(cluster, &name, scaled.units, 1)?;
        result.settings.insert("published_ratio".to_owned(), json!(trial.published_ratio()));
        result.settings.insert("expected_ratio".to_owned(), json!(trial.expected_ratio()));
        self.finish(cluster, result, Vec::new())
    }

    /// Many more units than test 5: everything is queued or refused, nothing dies, nothing that was
    /// acknowledged is missing.
    fn overload(&mut self, cluster: &mut Cluster<'_>) -> anyhow::Result<()> {
        let units = TRIALS[4].scaled(self.args.factor).units * self.args.overload;
        let result = self.measure(cluster, "overload", units, 1)?;
        self.finish(cluster, result, Vec::new())
    }

    /// One shard on every second node and two replicas: primaries on one half of the nodes, the others on
    /// the other half, and twice the bytes.
    fn replicated(&mut self, cluster: &mut Cluster<'_>) -> anyhow::Result<()> {
        let trial = TRIALS[3].scaled(self.args.factor);
        let single = self.done.iter().find(|result| result.label == "test 4").and_then(Written::of);
        let before = cluster.disk_bytes(&cluster.fleet.names().into_iter().collect());
        let mut result = self.measure(cluster, "replicated", trial.units, 2)?;
        let roles = cluster.roles(TABLE)?;
        let half = trial.nodes / 2;
        let mut checks = vec![
            check("nodes with primaries alone", half as f64, roles.only_primaries() as f64),
            check("nodes with secondaries alone", half as f64, roles.only_secondaries() as f64),
        ];
        if let Some((double, single)) = Written::of(&result).zip(single) {
            let found = double.per_block / single.per_block;
            let name = "bytes written per block with two replicas by those with one";
            if double.in_all.min(single.in_all) < MANY_BYTES * trial.nodes as f64 {
                result.notes.push(format!("{name}: {found:.2}, after too few bytes to judge by"));
            } else {
                checks.push(CheckOutcome { ok: TWICE.contains(&found), ..check(name, 2.0, found) });
            }
        }
        let primaries = cluster.disk_bytes(&roles.primaries);
        let secondaries = cluster.disk_bytes(&roles.secondaries);
        result.notes.push(format!(
            "data folders: {} MB on primaries, {} MB on secondaries (all nodes had {} MB before)",
            primaries / 1_000_000,
            secondaries / 1_000_000,
            before / 1_000_000
        ));
        self.finish(cluster, result, checks)
    }

    /// A table on one half of the nodes, then another: it lands on the half that holds nothing.
    fn second_table(&mut self, cluster: &mut Cluster<'_>) -> anyhow::Result<()> {
        let shards = trials::shards(self.args.factor);
        cluster.admin.ask(&terms::table_drop(DATABASE, TABLE))?;
        let mut held = Vec::new();
        for name in ["first", "second"] {
            let options = json!({"shards": shards, "replicas": 1});
            cluster.admin.ask(&terms::table_create(DATABASE, name, options))?;
            cluster.admin.ask(&terms::wait(terms::table(DATABASE, name)))?;
            held.push(cluster.roles(name)?.all());
        }
        let both = held[0].intersection(&held[1]).count();
        let checks = vec![
            check("nodes that hold the first table", shards as f64, held[0].len() as f64),
            check("nodes that hold the second table", shards as f64, held[1].len() as f64),
            check("nodes that hold both", 0.0, both as f64),
        ];
        let last = self.done.last_mut().context("a test ran before")?;
        last.checks.extend(checks);
        last.alarms = alarms::raise(last);
        Ok(())
    }

    fn measure(
        &self,
        cluster: &mut Cluster<'_>,
        test: &str,
        units: usize,
        replicas: usize,
    ) -> anyhow::Result<RunResult> {
        let words = format!(
            "--units {units} --drop --shards {} --replicas {replicas} --seconds {} --block-bytes {}",
            trials::shards(self.args.factor),
            self.args.seconds,
            self.args.block_bytes
        );
        let addresses = cluster.fleet.addresses();
        let mut exact = vec![
            format!("--host={}", addresses.join(",")),
            format!("--label={test}"),
            format!("--seed={}", self.args.seed.wrapping_add(self.done.len() as u64)),
        ];
        exact.extend(addresses.iter().map(|_| "--http=none".to_owned()));
        exact.extend(self.args.quiet.then(|| "--quiet".to_owned()));
        fleet::limit(cluster.groups, self.args.fleet.share())?;
        let measured = blocks::measure(words::read(&words, &exact)?);
        fleet::limit(cluster.groups, None)?;
        let mut result = measured?;
        result.settings.insert("test".to_owned(), json!(test));
        result.settings.insert("factor".to_owned(), json!(self.args.factor));
        result.settings.insert("nodes".to_owned(), json!(addresses.len()));
        let share = self.args.fleet.share().filter(|_| cluster.groups.is_some());
        result.settings.insert("core-share".to_owned(), json!(share));
        result.settings.insert("scheduling".to_owned(), json!(self.scheduling));
        Ok(result)
    }

    /// Adds what must hold after every test.
    fn finish(
        &mut self,
        cluster: &mut Cluster<'_>,
        mut result: RunResult,
        checks: Vec<CheckOutcome>,
    ) -> anyhow::Result<()> {
        let nodes = cluster.fleet.addresses().len();
        let dead = cluster.fleet.dead();
        result.checks.push(check("nodes alive", nodes as f64, (nodes - dead.len()) as f64));
        dead.iter().for_each(|said| eprintln!("units: {said}"));
        let unclear = result.errors.iter().filter(|error| !REFUSALS.contains(&error.kind.as_str()));
        let unclear: u64 = unclear.map(|error| error.count).sum();
        result.checks.push(check("errors that are no refusals", 0.0, unclear as f64));
        let there = cluster.admin.ask(&terms::count(terms::table(DATABASE, TABLE)))?;
        let (there, wanted) = (there.as_f64().unwrap_or(0.0), result.throughput.operations as f64);
        let acknowledged = check("acknowledged blocks that are there", wanted, there.min(wanted));
        result.checks.push(acknowledged);
        result.checks.extend(checks);
        result.alarms = alarms::raise(&result);
        eprintln!("units: {}: {:.1} blocks/s", result.label, result.throughput.operations_per_second);
        self.done.push(result);
        Ok(())
    }
}

fn check(name: &str, expected: f64, found: f64) -> CheckOutcome {
    let source = "BigchainDB's tests".to_owned();
    CheckOutcome { name: name.to_owned(), expected, found, ok: expected == found, source }
}

/// What all nodes wrote to their disks during a test.
struct Written {
    per_block: f64,
    in_all: f64,
}

impl Written {
    fn of(result: &RunResult) -> Option<Self> {
        let per_block = result.cost.written_bytes_per_operation.filter(|bytes| *bytes > 0.0)?;
        Some(Self { per_block, in_all: per_block * result.throughput.operations as f64 })
    }
}

/// All tests for people.
fn show(done: &[RunResult]) -> String {
    let mut out = format!(
        "{:<12}{:>6}{:>7}{:>10}{:>11}{:>9}{:>10}{:>10}{:>11}{:>9}{:>9}{:>7}\n",
        "",
        "nodes",
        "units",
        "blocks/s",
        "tx/s",
        "by test1",
        "expected",
        "published",
        "variation",
        "lowest",
        "last/1st",
        "errors"
    );
    let first = done.iter().find(|result| result.label == "test 1");
    let first = first.map_or(f64::NAN, |result| result.throughput.operations_per_second);
    for result in done {
        let setting = |name: &str| result.settings.get(name).and_then(serde_json::Value::as_f64);
        let two = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let rate = result.throughput.operations_per_second;
        let transactions = result.throughput.units.iter().find(|unit| unit.name == "transactions");
        let stability = result.stability.as_ref();
        out.push_str(&format!(
            "{:<12}{:>6}{:>7}{:>10.1}{:>11}{:>9.2}{:>10}{:>10}{:>11}{:>9}{:>9}{:>7}\n",
            result.label,
            setting("nodes").unwrap_or(0.0),
            result.pacing.connections,
            rate,
            thousands(transactions.map_or(0.0, |unit| unit.per_second) as u64),
            rate / first,
            two(setting("expected_ratio")),
            two(setting("published_ratio")),
            two(stability.map(|s| s.variation)),
            two(stability.map(|s| s.lowest_share)),
            two(stability.and_then(|s| s.last_by_first)),
            result.errors.iter().map(|error| error.count).sum::<u64>(),
        ));
    }
    for result in done {
        for check in &result.checks {
            let verdict = if check.ok { "pass" } else { "FAIL" };
            let (found, wanted) = (check.found, check.expected);
            out.push_str(&format!(
                "{verdict}  {}: {}: {found:.2}, expected {wanted}\n",
                result.label, check.name
            ));
        }
        result.notes.iter().for_each(|note| out.push_str(&format!("note  {}: {note}\n", result.label)));
        result.alarms.iter().for_each(|a| out.push_str(&format!("ALARM {}: {}\n", result.label, a.message)));
    }
    out
}
