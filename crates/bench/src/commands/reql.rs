//! `bench reql`: what the shapes of queries that applications send cost the server, in one run.
//!
//! The bars are those of the tracker; a busy machine changes the seconds, hardly the processor time.

use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::assemble::{About, blank};
use crate::chance::Chance;
use crate::flags::{Format, OutputFlags, ServerFlags};
use crate::limits::at_least_one;
use crate::machine::facts;
use crate::measure::histogram;
use crate::result::{OperationResult, Pacing, RunResult};
use crate::site::Site;
use crate::wire::admin::Admin;
use crate::wire::terms;

const DB: &str = "bench_reql";
/// Rows in one insert while the table is filled.
const ROWS_PER_INSERT: u64 = 500;
/// Less processor time of a server cannot be told from nothing: the kernel counts hundredths of a second.
const CPU_SECONDS_MIN: f64 = 0.2;
/// Groups of `group`.
const GROUPS: u64 = 16;

/// Times shapes of queries one after the other
#[derive(Args, Clone, Debug)]
pub struct ReqlArgs {
    /// Rows of the table that is read, made when it has another number
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one::<u64>)]
    rows: u64,
    /// Times a query about few rows is asked
    #[arg(long, default_value_t = 20_000, value_parser = at_least_one::<u64>)]
    times: u64,
    /// Times a query about all rows is asked
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<u64>)]
    scans: u64,
    /// Only the shapes whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// A shape of query.
struct Shape {
    name: &'static str,
    /// What its cost is shared by.
    per: Per,
    /// Microseconds of the server's processors it may cost.
    bar: f64,
    ask: fn(&mut Chance, u64) -> Value,
}

#[derive(Clone, Copy, PartialEq)]
enum Per {
    Query,
    Row,
}

fn table(name: &str) -> Value {
    terms::table(DB, name)
}

fn row_field(name: &str) -> Value {
    json!([170, [[10, [1]], name]])
}

fn of_row(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

/// The key of a row.
fn key(n: u64) -> String {
    format!("row{n:08}")
}

static SHAPES: [Shape; 7] = [
    Shape {
        name: "get_all of 20 keys",
        per: Per::Query,
        bar: 60.0,
        ask: |chance, rows| {
            let keys = (0..20).map(|_| json!(key(chance.below(rows))));
            json!([78, std::iter::once(table("rows")).chain(keys).collect::<Vec<_>>()])
        },
    },
    Shape {
        name: "between(..).order_by(id).limit(100)",
        per: Per::Query,
        bar: 150.0,
        ask: |chance, rows| {
            let from = chance.below(rows);
            let range = json!([182, [table("rows"), key(from), [181, []]]]);
            json!([71, [[41, [range], {"index": "id"}], 100]])
        },
    },
    Shape {
        name: "insert with 3 secondary indexes",
        per: Per::Query,
        bar: 60.0,
        ask: |chance, _| {
            let (n, m) = (chance.below(1 << 40), chance.below(1_000));
            let row = json!({"id": format!("{n:010x}"), "a": m, "b": format!("b{m}"), "c": m / 10});
            json!([56, [table("written"), row], {"durability": "soft"}])
        },
    },
    Shape { name: "count()", per: Per::Query, bar: 60.0, ask: |_, _| terms::count(table("rows")) },
    Shape {
        name: "group('g').count()",
        per: Per::Row,
        bar: 0.6,
        ask: |_, _| terms::count(json!([144, [table("rows"), "g"]])),
    },
    Shape {
        name: "filter(row('n') > x).count()",
        per: Per::Row,
        bar: 0.4,
        ask: |chance, rows| {
            let test = of_row(&json!([21, [row_field("n"), chance.below(rows)]]));
            terms::count(json!([39, [table("rows"), test]]))
        },
    },
    Shape {
        name: "map(row('text').split('.').count()).sum()",
        per: Per::Row,
        bar: 0.8,
        ask: |_, _| terms::sum_of_split_counts(table("rows"), "text", "."),
    },
];

/// What a shape cost.
struct Cost {
    shape: &'static Shape,
    operations: u64,
    seconds: f64,
    /// Server processor time; `None` when there was too little of it to be told from nothing.
    cpu_seconds: Option<f64>,
    latency: Histogram<u64>,
}

impl Cost {
    /// What a cost is shared by: queries or rows.
    fn shares(&self, rows: u64) -> f64 {
        match self.shape.per {
            Per::Query => self.operations as f64,
            Per::Row => (self.operations * rows) as f64,
        }
    }

    fn cpu_us(&self, rows: u64) -> Option<f64> {
        Some(self.cpu_seconds? * 1e6 / self.shares(rows))
    }

    /// A line of the table.
    fn line(&self, rows: u64) -> String {
        let unit = if self.shape.per == Per::Row { "µs/row" } else { "µs    " };
        let cpu = self.cpu_us(rows).map_or("too few       ".to_owned(), |each| format!("{each:>7.2} {unit}"));
        let elapsed = self.seconds * 1e6 / self.shares(rows);
        format!("{:<44} {cpu:>14} {:>8.2} {elapsed:>9.2} µs", self.shape.name, self.shape.bar)
    }

    /// The same in words, for the result.
    fn verdict(&self, rows: u64) -> String {
        let Shape { name, bar, .. } = self.shape;
        let unit = if self.shape.per == Per::Row { "row" } else { "query" };
        match self.cpu_us(rows) {
            None => format!("{name}: too few operations to tell what one costs"),
            Some(each) if each <= *bar => {
                format!("{name}: {each:.2} us of server CPU per {unit}, at most {bar} wanted: held")
            }
            Some(each) => {
                format!("{name}: {each:.2} us of server CPU per {unit}, at most {bar} wanted: MISSED")
            }
        }
    }

    fn result(&self) -> OperationResult {
        let each = self.cpu_seconds.map(|cpu| cpu * 1e6 / self.operations as f64);
        OperationResult {
            name: self.shape.name.to_owned(),
            ok: self.operations,
            failed: 0,
            per_second: self.operations as f64 / self.seconds.max(1e-9),
            service: histogram::latency(&self.latency),
            intended: None,
            failed_service: None,
            server_cpu_us_per_operation: each,
        }
    }
}

/// Runs the command. The exit code says whether every bar that could be judged was held.
pub fn run(args: &ReqlArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let (site, mut admin) = Site::open(args.server.request(), args.output.seed)?;
    let mut chance = Chance::new(args.output.seed, 7_000_000);
    let shows = args.output.format == Format::Table;
    prepare(&mut admin, args)?;
    if shows {
        println!("{:<44} {:>12} {:>10} {:>12}", "shape", "server CPU", "bar", "elapsed");
    }
    let mut costs = Vec::new();
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&args.only)) {
        let cost = measure(shape, args, &mut admin, &site, &mut chance).context(shape.name)?;
        if shows {
            println!("{}", cost.line(args.rows));
        }
        costs.push(cost);
    }
    let result = result(args, &site, &costs, started);
    if args.output.format == Format::Json {
        println!("{}", serde_json::to_string_pretty(&result)?);
    }
    args.output.keep(&result)?;
    let vague = costs.iter().filter(|cost| cost.cpu_seconds.is_none()).count();
    if vague > 0 {
        eprintln!(
            "{vague} shapes took less than {CPU_SECONDS_MIN} s of server CPU, which is counted in hundredths: \
             give more --times or --scans"
        );
    }
    let is_missed = |cost: &Cost| cost.cpu_us(args.rows).is_some_and(|each| each > cost.shape.bar);
    Ok(if costs.iter().any(is_missed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(
    shape: &'static Shape,
    args: &ReqlArgs,
    admin: &mut Admin,
    site: &Site,
    chance: &mut Chance,
) -> anyhow::Result<Cost> {
    let operations = if shape.per == Per::Row { args.scans } else { args.times };
    // Once without looking, so that nothing is done for the first time.
    admin.ask(&(shape.ask)(chance, args.rows))?;
    let mut latency = histogram::empty();
    let (cpu, started) = (cpu_seconds(site)?, Instant::now());
    for _ in 0..operations {
        let query = (shape.ask)(chance, args.rows);
        let asked = Instant::now();
        admin.ask(&query)?;
        histogram::record(&mut latency, u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    let (seconds, used) = (started.elapsed().as_secs_f64(), cpu_seconds(site)? - cpu);
    let cpu_seconds = (used >= CPU_SECONDS_MIN).then_some(used);
    Ok(Cost { shape, operations, seconds, cpu_seconds, latency })
}

/// The document of docs/formats/bench-result.md: a shape is a kind of operation.
fn result(args: &ReqlArgs, site: &Site, costs: &[Cost], started: SystemTime) -> RunResult {
    let settings = json!({
        "rows": args.rows,
        "times": args.times,
        "scans": args.scans,
        "only": args.only,
        "hosts": site.addresses.join(","),
    });
    let mut result = blank(About {
        kind: "reql",
        workload: String::new(),
        name: "Shapes of queries".to_owned(),
        label: args.output.label.clone(),
        published: None,
        seed: args.output.seed,
        settings: settings.as_object().cloned().unwrap_or_default(),
        notes: costs.iter().map(|cost| cost.verdict(args.rows)).collect(),
        started,
    });
    let seconds: f64 = costs.iter().map(|cost| cost.seconds).sum();
    let operations: u64 = costs.iter().map(|cost| cost.operations).sum();
    result.pacing = Pacing {
        kind: "closed".to_owned(),
        connections: 1,
        pipeline: 1,
        client_threads: 1,
        ..Pacing::default()
    };
    result.time.measured_seconds = seconds;
    result.throughput.operations = operations;
    result.throughput.operations_per_second = operations as f64 / seconds.max(1e-9);
    result.operations = costs.iter().map(Cost::result).collect();
    result.machine = facts::machine(site.is_local);
    result.versions = site.versions.clone();
    result
}

fn cpu_seconds(site: &Site) -> anyhow::Result<f64> {
    let each = site.watched.iter().map(|server| server.sample().cpu_seconds);
    let sum: Option<f64> = each.sum();
    sum.filter(|_| !site.watched.is_empty()).context("the server's process was not found (--server-pid)")
}

/// The tables, with as many rows as are wanted.
fn prepare(admin: &mut Admin, args: &ReqlArgs) -> anyhow::Result<()> {
    let rows = args.rows;
    let known = admin.ask(&terms::db_list())?;
    let has = |list: &Value, name: &str| list.as_array().is_some_and(|names| names.iter().any(|n| n == name));
    if !has(&known, DB) {
        admin.ask(&terms::db_create(DB))?;
    }
    let tables = admin.ask(&terms::table_list(DB))?;
    if has(&tables, "written") {
        admin.ask(&terms::table_drop(DB, "written"))?;
    }
    admin.ask(&terms::table_create(DB, "written", json!({})))?;
    for index in ["a", "b", "c"] {
        admin.ask(&json!([75, [table("written"), index]]))?;
    }
    admin.ask(&json!([140, [table("written")]]))?;
    if has(&tables, "rows") {
        if admin.ask(&terms::count(table("rows")))?.as_u64() == Some(rows) {
            return Ok(());
        }
        admin.ask(&terms::table_drop(DB, "rows"))?;
    }
    admin.ask(&terms::table_create(DB, "rows", json!({})))?;
    if !args.output.quiet {
        eprintln!("making {rows} rows");
    }
    for from in (0..rows).step_by(ROWS_PER_INSERT as usize) {
        let some: Vec<Value> = (from..rows.min(from + ROWS_PER_INSERT)).map(document).collect();
        let answer =
            admin.ask(&terms::insert(table("rows"), json!([2, some]), json!({"durability": "soft"})))?;
        if answer["errors"] != 0 {
            bail!("rows were refused: {answer}");
        }
    }
    Ok(())
}

/// A document of about 1 KB.
fn document(n: u64) -> Value {
    let mut row = json!({"id": key(n), "n": n, "g": format!("group{}", n % GROUPS)});
    let text = |i: u64| format!("{:x}. {:x} and more. ", n.wrapping_mul(31 + i), n ^ i).repeat(5);
    row["text"] = json!(text(0));
    for i in 1..9 {
        row[format!("field{i}")] = json!(text(i));
    }
    row
}
