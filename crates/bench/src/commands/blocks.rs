//! `bench blocks`: BigchainDB's write units.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use clap::{Args, ValueEnum};
use client::admin::Admin;
use client::terms;
use serde_json::json;

use super::ycsb_run::measure_echo;
use crate::assemble::{Extras, RunDescription, assemble};
use crate::blocks::block::{BlockShape, BlockSize, Ids};
use crate::blocks::transaction::Schema;
use crate::blocks::units::{BlockCounters, NAMES, UnitPlan, Units};
use crate::comparability::Candidate;
use crate::drive::session::{Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{LoopFlags, OutputFlags, ServerFlags, describe_plan, goal};
use crate::limits::at_least_one;
use crate::result::RunResult;
use crate::sut::SystemUnderTest;
use crate::terminal::ProgressLine;
use crate::ycsb::table::{self, Layout};

const UNITS_DEFAULT: usize = 64;
const SECONDS_DEFAULT: f64 = 10.0;
const BLOCK_BYTES_DEFAULT: usize = 900_000;

#[derive(ValueEnum, Clone, Copy, Debug)]
enum SchemaFlag {
    #[value(name = "0.0.1")]
    V0_0_1,
    #[value(name = "0.1")]
    V0_1,
    #[value(name = "0.3")]
    V0_3,
    #[value(name = "0.9")]
    V0_9,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum IdsFlag {
    /// A new block with its own hash for every insert
    Fresh,
    /// Blocks without an id: the server generates one
    Generated,
    /// The same block every time
    Constant,
}

/// Inserts blocks of BigchainDB, one after the other on every write unit
#[derive(Args, Clone, Debug)]
#[command(mut_arg("connections", |arg| arg.help("The same as --units, which wins [default: 64]")))]
pub struct BlocksArgs {
    /// Write units: connections that insert one block at a time [default: 64]
    #[arg(long, value_name = "N", value_parser = at_least_one::<usize>)]
    units: Option<usize>,
    /// Version of BigchainDB whose blocks to make
    #[arg(long, value_enum, default_value = "0.0.1")]
    schema: SchemaFlag,
    /// Transactions per block
    #[arg(long, value_name = "N", conflicts_with = "block_bytes", value_parser = at_least_one::<usize>)]
    tx: Option<usize>,
    /// Bytes of JSON per block [default: 900000]
    #[arg(long, value_name = "N", value_parser = at_least_one::<usize>)]
    block_bytes: Option<usize>,
    /// How blocks get their ids
    #[arg(long, value_enum, default_value = "fresh")]
    ids: IdsFlag,
    /// Keys of the federation in every block
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one::<usize>)]
    voters: usize,
    /// Durability of the inserts: soft, hard, or table for that of the table
    #[arg(long, default_value = "soft", value_parser = ["soft", "hard", "table"])]
    durability: String,
    /// Database of the table
    #[arg(long, default_value = "bigchain")]
    db: String,
    /// Table of the blocks
    #[arg(long, default_value = "bigchain")]
    table: String,
    /// Drop the table first
    #[arg(long)]
    drop: bool,
    /// Shards of the table
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Replicas of the table
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    pacing: LoopFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(args: BlocksArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.clone();
    output.finish(&measure(args)?)
}

/// Inserts the blocks over connections that alternate between the servers; returns the result.
pub fn measure(args: BlocksArgs) -> anyhow::Result<RunResult> {
    measure_over(args, |addresses| addresses.to_vec())
}

/// Like [`measure`], with a given number of units for each server.
pub fn measure_distributed(args: BlocksArgs, units_by_server: &[usize]) -> anyhow::Result<RunResult> {
    let units = Some(units_by_server.iter().sum());
    measure_over(BlocksArgs { units, ..args }, |addresses| assign(addresses, units_by_server))
}

fn assign(addresses: &[String], units_by_server: &[usize]) -> Vec<String> {
    let distributed = addresses.iter().zip(units_by_server);
    distributed.flat_map(|(address, units)| vec![address.clone(); *units]).collect()
}

/// Measures with the addresses that `assign` derives from the servers' addresses; units use them in turn.
fn measure_over(
    mut args: BlocksArgs,
    assign: impl FnOnce(&[String]) -> Vec<String>,
) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let seed = args.output.seed;
    let (sut, mut admin) = SystemUnderTest::open(args.server.request())?;
    prepare(&mut admin, &args)?;

    args.pacing.connections = args.units.or(args.pacing.connections).or(Some(UNITS_DEFAULT));
    if args.pacing.operations.is_none() {
        args.pacing.seconds.get_or_insert(SECONDS_DEFAULT);
    }
    let addresses = assign(&sut.addresses);
    let plan = Plan { pipeline: 1, addresses, ..args.pacing.plan(&sut, seed)? };
    let unit_plan = unit_plan(&args);
    let counters = Arc::new(BlockCounters::default());
    let make = |thread, units| -> Box<dyn Workload> {
        Box::new(Units::new(&unit_plan, thread, units, Arc::clone(&counters)))
    };
    let mut line = ProgressLine::new(args.output.quiet, goal(&plan));
    let driven = drive(&plan, NAMES, make, &sut.watched, &mut |point| line.show(point))?;
    line.end();

    let echo = if args.pacing.echo { Some(measure_echo(&plan, &driven)?) } else { None };
    // All blocks have almost the same size, so the measured part's share of the counters, which include the warm-up, is
    // its share of the blocks.
    let all = driven.points.iter().map(|p| p.ok).sum::<u64>().max(1);
    let share = |total: u64| (u128::from(total) * u128::from(driven.totals.ok) / u128::from(all)) as u64;
    let extras = Extras {
        units: vec![
            ("blocks", driven.totals.ok),
            ("transactions", share(counters.transactions())),
            ("bytes", share(counters.bytes())),
        ],
        write_names: NAMES,
        echo,
        ..Extras::default()
    };
    let mut about = about(&args, &plan, &sut, counters.conflicts(), started);
    about.published = candidate(&args, &plan, &sut, counters.bytes() / all).settle(&mut about.notes);
    Ok(assemble(about, &plan, &sut, NAMES, driven, extras))
}

fn prepare(admin: &mut Admin, args: &BlocksArgs) -> anyhow::Result<()> {
    let (db, name) = (args.db.as_str(), args.table.as_str());
    table::create_database(admin, db)?;
    let exists = |admin: &mut Admin| -> anyhow::Result<bool> {
        let tables = admin.ask(&terms::table_list(db))?;
        Ok(tables.as_array().is_some_and(|all| all.iter().any(|t| t == name)))
    };
    if args.drop && exists(admin)? {
        admin.ask(&terms::table_drop(db, name))?;
    }
    let layout = Layout { shards: args.shards, replicas: args.replicas };
    if exists(admin)? {
        return table::apply_layout(admin, db, name, &layout);
    }
    let mut options = json!({});
    for (name, number) in [("shards", args.shards), ("replicas", args.replicas)] {
        number.inspect(|n| options[name] = json!(n));
    }
    admin.ask(&terms::table_create(db, name, options)).context("creating the table")?;
    admin.ask(&terms::wait(terms::table(db, name)))?;
    table::wait_for_primaries(admin, db, name);
    Ok(())
}

fn unit_plan(args: &BlocksArgs) -> UnitPlan {
    let size = match args.tx {
        Some(transactions) => BlockSize::Transactions(transactions.max(1)),
        None => BlockSize::Bytes(args.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT)),
    };
    UnitPlan {
        shape: BlockShape { schema: schema(args), size, voters: args.voters.max(1) },
        ids: match args.ids {
            IdsFlag::Fresh => Ids::Fresh,
            IdsFlag::Generated => Ids::Generated,
            IdsFlag::Constant => Ids::Constant,
        },
        table: (args.db.clone(), args.table.clone()),
        durability: (args.durability != "table").then(|| args.durability.clone()),
        seed: args.output.seed,
    }
}

fn schema(args: &BlocksArgs) -> Schema {
    match args.schema {
        SchemaFlag::V0_0_1 => Schema::V0_0_1,
        SchemaFlag::V0_1 => Schema::V0_1,
        SchemaFlag::V0_3 => Schema::V0_3,
        SchemaFlag::V0_9 => Schema::V0_9,
    }
}

/// The published series, and how these blocks differ from it.
fn candidate(args: &BlocksArgs, plan: &Plan, sut: &SystemUnderTest, block_bytes: u64) -> Candidate {
    let mut candidate = Candidate::new("bigchaindb-0.0.1", "blocks", sut.servers);
    candidate.compare_block(block_bytes);
    let schema = schema(args);
    candidate.add_difference(
        !matches!(schema, Schema::V0_0_1),
        format!("schema {} instead of 0.0.1", schema.name()),
    );
    candidate
        .add_difference(args.durability != "soft", format!("durability {} instead of soft", args.durability));
    candidate.add_difference(matches!(args.ids, IdsFlag::Constant), "the same block every time");
    candidate.compare_loop(plan);
    candidate
}

fn about(
    args: &BlocksArgs,
    plan: &Plan,
    sut: &SystemUnderTest,
    conflicts: u64,
    started: SystemTime,
) -> RunDescription {
    let mut settings = describe_plan(plan);
    let own = json!({
        "hosts": sut.addresses.join(","),
        "units": plan.connections,
        "schema": schema(args).name(),
        "tx": args.tx,
        "block-bytes": if args.tx.is_some() { None } else { Some(args.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT)) },
        "ids": format!("{:?}", args.ids).to_lowercase(),
        "voters": args.voters,
        "durability": args.durability,
        "db": args.db,
        "table": args.table,
        "shards": args.shards,
        "replicas": args.replicas,
    });
    settings.extend(own.as_object().cloned().unwrap_or_default());
    let mut notes = Vec::new();
    if conflicts > 0 {
        notes.push(format!("{conflicts} inserts met the block that was there already"));
    }
    RunDescription {
        kind: "blocks",
        workload: String::new(),
        name: format!("BigchainDB blocks, schema {}", schema(args).name()),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings,
        notes,
        started,
    }
}

#[cfg(test)]
mod tests {
    use super::assign;

    #[test]
    fn each_server_gets_its_units() {
        let addresses = ["a:1", "b:1"].map(str::to_owned);
        assert_eq!(assign(&addresses, &[2, 4]), ["a:1", "a:1", "b:1", "b:1", "b:1", "b:1"]);
    }
}
