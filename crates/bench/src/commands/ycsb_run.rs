//! `bench ycsb run`: runs a workload against a loaded table.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use client::frame::HEADER_BYTES;
use serde_json::{Value, json};

use super::ycsb_properties::{ChosenProperties, PropertyFlags};
use crate::assemble::{Extras, RunDescription, assemble};
use crate::baseline::echo::{self, EchoSizes};
use crate::comparability::Candidate;
use crate::drive::session::{Driven, Plan, drive};
use crate::drive::workload::Workload;
use crate::flags::{LoopFlags, OutputFlags, ServerFlags, describe_plan, goal};
use crate::result::{EchoBaseline, RunResult};
use crate::rng::Rng;
use crate::sut::SystemUnderTest;
use crate::terminal::ProgressLine;
use crate::ycsb::acknowledged::AcknowledgedCounter;
use crate::ycsb::chooser::KeyChooser;
use crate::ycsb::operations::{IntegrityCounters, NAMES, Operations};
use crate::ycsb::queries::Queries;
use crate::ycsb::settings::{DATABASE, Distribution, Settings};
use crate::ycsb::table::{self, Layout, RecordRange};

/// The default length of a run.
const SECONDS_DEFAULT: f64 = 10.0;
const ECHO_SECONDS: Duration = Duration::from_secs(2);

/// Runs a workload against a loaded table
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    properties: PropertyFlags,
    /// Read mode: single, majority or outdated
    #[arg(long)]
    read_mode: Option<String>,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    pacing: LoopFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let output = args.output.clone();
    output.finish(&measure(args)?)
}

/// Runs the workload and returns the result.
pub fn measure(mut args: RunArgs) -> anyhow::Result<RunResult> {
    let started = SystemTime::now();
    let mut chosen = args.properties.choose(&[("rethinkdb.readmode", args.read_mode.clone())])?;
    if chosen.workload.is_empty() && !args.properties.overrides.iter().any(|p| p.contains("proportion")) {
        anyhow::bail!("no workload named: give a letter from a to f or a YCSB property file");
    }
    chosen.fill(&mut args.server, &mut args.pacing)?;
    let seed = args.output.seed;
    let (sut, mut admin) = SystemUnderTest::open(args.server.request())?;

    let loaded = table::loaded(&mut admin, &chosen.settings.table)?;
    if let Some(loaded) = &loaded {
        chosen.adopt(loaded)?;
    }
    settle_length(&mut args.pacing, &mut chosen.settings);
    let records = table::check_for_run(&mut admin, &chosen.settings, loaded.as_ref())?;
    chosen.settings.recordcount = Some(records);
    let layout = Layout { shards: args.properties.shards, replicas: args.properties.replicas };
    table::apply_layout(&mut admin, DATABASE, &chosen.settings.table, &layout)?;
    let has_side_table = loaded.is_some();
    if chosen.settings.changes_documents() && loaded.is_some_and(|l| !l.changed) {
        table::mark_changed(&mut admin, &chosen.settings.table)?;
    }

    let durability = table::durability(&mut admin, &chosen.settings)?;
    let plan = args.pacing.plan(&sut, seed)?;
    let integrity = Arc::new(IntegrityCounters::default());
    let inserts = Arc::new(AcknowledgedCounter::new(records));
    let make = workloads(&chosen.settings, records, &inserts, &integrity, seed);
    let mut line = ProgressLine::new(args.output.quiet, goal(&plan));
    let driven = drive(&plan, NAMES, make, &sut.watched, &mut |point| line.show(point))?;
    line.end();

    let records = records..inserts.existing();
    if has_side_table && !records.is_empty() {
        let documents = records.end - records.start;
        let range = RecordRange { records, documents, sentences: None, seed };
        table::record_range(&mut admin, &chosen.settings, &range)?;
    }
    let echo = if args.pacing.echo { Some(measure_echo(&plan, &driven)?) } else { None };
    let extras = Extras {
        units: vec![("documents", driven.totals.ok)],
        write_names: &["UPDATE", "INSERT"],
        integrity: chosen.settings.dataintegrity.then(|| integrity.outcome()),
        echo,
        ..Extras::default()
    };
    let about = about(&args, &chosen, &plan, &Measured { durability, servers: sut.servers }, started);
    Ok(assemble(about, &plan, &sut, NAMES, driven, extras))
}

fn settle_length(pacing: &mut LoopFlags, settings: &mut Settings) {
    pacing.operations = pacing.operations.or(settings.operationcount);
    settings.operationcount = pacing.operations;
    if pacing.operations.is_none() {
        pacing.seconds.get_or_insert(SECONDS_DEFAULT);
    }
}

fn workloads(
    settings: &Settings,
    records: u64,
    inserts: &Arc<AcknowledgedCounter>,
    integrity: &Arc<IntegrityCounters>,
    seed: u64,
) -> impl FnMut(usize, usize) -> Box<dyn Workload> {
    let inserts = Arc::clone(inserts);
    let keys = KeyChooser::new(settings, records, Arc::clone(&inserts));
    let queries = Queries::new(settings, settings.durability.as_deref());
    let integrity = Arc::clone(integrity);
    move |thread, _| {
        Box::new(Operations::new(
            queries.clone(),
            keys.clone(),
            Arc::clone(&inserts),
            Arc::clone(&integrity),
            Rng::new(seed, thread as u64 + 1),
        ))
    }
}

/// The client's ceiling with messages of this run's mean size.
pub fn measure_echo(plan: &Plan, driven: &Driven) -> anyhow::Result<EchoBaseline> {
    let answers = (driven.totals.parsed + driven.totals.checked_by_type).max(1);
    let mean = |bytes: u64| (bytes / answers).saturating_sub(HEADER_BYTES as u64) as usize;
    let sizes = EchoSizes {
        query_bytes: mean(driven.totals.sent_bytes),
        answer_bytes: mean(driven.totals.received_bytes),
    };
    Ok(echo::measure(plan, sizes, ECHO_SECONDS)?.baseline)
}

/// Facts about the servers.
struct Measured {
    /// The durability of acknowledged writes, from flags or from the table.
    durability: String,
    servers: usize,
}

fn about(
    args: &RunArgs,
    chosen: &ChosenProperties,
    plan: &Plan,
    measured: &Measured,
    started: SystemTime,
) -> RunDescription {
    let mut settings = chosen.settings.describe();
    settings.extend(describe_plan(plan));
    let given = [("shards", args.properties.shards), ("replicas", args.properties.replicas)];
    for (name, number) in given {
        settings.insert(name.to_owned(), number.map_or(Value::Null, Value::from));
    }
    settings.insert("workload".to_owned(), json!(chosen.workload));
    settings.insert("durability".to_owned(), json!(measured.durability));
    let mut notes = chosen.notes.clone();
    if chosen.settings.mix.scan > 0.0 && chosen.settings.readallfields {
        notes.push(
            "scans return whole documents: the published binding failed on workload E under \
             readallfields=true"
                .to_owned(),
        );
    }
    let published = candidate(&chosen.settings, plan, measured).and_then(|c| c.settle(&mut notes));
    let workload = chosen.workload.to_lowercase();
    let name = match workload.len() {
        0 => "YCSB run".to_owned(),
        1 => format!("YCSB workload {}", workload.to_uppercase()),
        _ => format!("YCSB {workload}"),
    };
    RunDescription {
        kind: "ycsb-run",
        workload,
        name,
        label: args.output.label.clone(),
        published,
        seed: args.output.seed,
        settings,
        notes,
        started,
    }
}

/// The published series with the same operations, at any scale.
fn candidate(settings: &Settings, plan: &Plan, measured: &Measured) -> Option<Candidate> {
    if settings.distribution != Distribution::Zipfian {
        return None;
    }
    let mix = &settings.mix;
    let workload = match (mix.read, mix.update, settings.readmode.as_deref()) {
        (read, update, _) if read == 0.5 && update == 0.5 => "a",
        (1.0, _, Some("outdated")) => "c-outdated",
        (1.0, _, None | Some("single")) => "c-sync",
        _ => return None,
    };
    let mut candidate = Candidate::new("rethinkdb-2.1.5", workload, measured.servers);
    let durability = &measured.durability;
    candidate.add_difference(
        workload == "a" && durability != "hard",
        format!("durability {durability} instead of hard"),
    );
    candidate.compare_pacing(plan);
    Some(candidate)
}
