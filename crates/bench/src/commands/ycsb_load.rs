//! `bench ycsb load`: creates the table and fills it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};

use super::ycsb_properties::{ChosenProperties, PropertyFlags};
use crate::assemble::{Extras, RunDescription, assemble};
use crate::drive::session::{Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{LoopFlags, OutputFlags, ServerFlags, describe_plan};
use crate::limits::at_least_one;
use crate::result::{CheckOutcome, RunResult};
use crate::sut::SystemUnderTest;
use crate::terminal::{Goal, ProgressLine};
use crate::ycsb::loading::{LoadProgress, LoadWorkload, NAMES};
use crate::ycsb::queries::Queries;
use crate::ycsb::table::{self, Layout, RecordRange};

/// The default number of records, as in YCSB's workload files.
const RECORDS_DEFAULT: u64 = 1_000;
/// A load waits until everything is acknowledged, even if the last batch takes long.
const DRAIN: Duration = Duration::from_secs(600);
const CONNECTIONS_DEFAULT: usize = 16;
/// The default number of documents per insert.
const BATCH_DEFAULT: u64 = 200;

/// Creates the table and fills it with documents
#[derive(Args, Clone, Debug)]
#[command(mut_arg("connections", |arg| arg.help("Connections in total [default: 16]")))]
pub struct LoadArgs {
    #[command(flatten)]
    properties: PropertyFlags,
    /// Documents per insert
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    batch: Option<u64>,
    /// Drop the table first
    #[arg(long)]
    drop: bool,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    pacing: LoopFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(args: LoadArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.clone();
    output.finish(&measure(args)?)
}

/// Fills the table and returns the result.
pub fn measure(mut args: LoadArgs) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let mut chosen = args.properties.choose(&[])?;
    chosen.fill(&mut args.server, &mut args.pacing)?;
    let records = chosen.settings.recordcount.unwrap_or(RECORDS_DEFAULT);
    chosen.settings.recordcount = Some(records);
    let start = chosen.settings.insertstart;
    let end = chosen.settings.insertcount.map_or(records, |count| start + count);
    let seed = args.output.seed;
    let (sut, mut admin) = SystemUnderTest::open(args.server.request())?;

    let layout = Layout { shards: args.properties.shards, replicas: args.properties.replicas };
    let drop_first = args.drop || chosen.properties.flag("dropdata", false);
    table::prepare_for_load(&mut admin, &chosen.settings, &layout, drop_first)?;

    let batch = args.batch.or(chosen.properties.positive("batch.size")?).unwrap_or(BATCH_DEFAULT);
    args.pacing.connections.get_or_insert(CONNECTIONS_DEFAULT);
    let plan = Plan { drain: DRAIN, ..args.pacing.plan(&sut, seed)? };
    let progress = Arc::new(LoadProgress::new(start..end));
    let queries = Queries::new(&chosen.settings, chosen.settings.durability.as_deref());
    let make = |_, _| -> Box<dyn Workload> {
        Box::new(LoadWorkload::new(queries.clone(), Arc::clone(&progress), batch, seed))
    };
    let batches = (end - start).div_ceil(batch);
    let mut line = ProgressLine::new(args.output.quiet, Some(Goal::Operations(batches)));
    let driven = drive(&plan, NAMES, make, &sut.watched, &mut |point| line.show(point))?;
    line.end();

    let (documents, sentences) = (progress.documents(), progress.sentences());
    let range = RecordRange { records: start..end, documents, sentences: Some(sentences), seed };
    table::record_range(&mut admin, &chosen.settings, &range)?;
    let by_shard = table::balance(&mut admin, &chosen.settings, &layout)?;
    let mut about = about(&args, &chosen, &plan, started);
    about.settings.insert("batch".to_owned(), json!(batch));
    about.notes.push(format!(
        "{documents} documents with {sentences} sentences in {}, kept in table {}",
        chosen.settings.field(0),
        table::side_table(&chosen.settings.table)
    ));
    about.notes.extend(distribution_note(&by_shard));
    let extras = Extras {
        units: vec![("documents", documents), ("bytes", progress.bytes())],
        write_names: NAMES,
        checks: vec![check_acknowledged(end - start, documents)],
        ..Extras::default()
    };
    Ok(assemble(about, &plan, &sut, NAMES, driven, extras))
}

/// A note about the distribution of the documents over the shards.
fn distribution_note(by_shard: &[u64]) -> Option<String> {
    let (least, most) = (by_shard.iter().min()?, by_shard.iter().max()?);
    Some(format!("{} shards, balanced after the load: {least} to {most} documents in each", by_shard.len()))
}

fn check_acknowledged(wanted: u64, documents: u64) -> CheckOutcome {
    CheckOutcome {
        name: "documents acknowledged".to_owned(),
        expected: wanted as f64,
        found: documents as f64,
        ok: wanted == documents,
        source: "what was to be loaded".to_owned(),
    }
}

fn about(args: &LoadArgs, chosen: &ChosenProperties, plan: &Plan, started: SystemTime) -> RunDescription {
    let mut settings = chosen.settings.describe();
    settings.extend(describe_plan(plan));
    settings.insert("shards".to_owned(), args.properties.shards.map_or(Value::Null, Value::from));
    let replicas = args.properties.replicas.map_or(Value::Null, Value::from);
    settings.insert("replicas".to_owned(), replicas);
    RunDescription {
        kind: "ycsb-load",
        workload: String::new(),
        name: "YCSB load".to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings,
        notes: chosen.notes.clone(),
        started,
    }
}
