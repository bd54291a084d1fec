//! `bench reql`: what the shapes of queries that applications send cost the server, in one run.
//!
//! The bars are those of the tracker; a busy machine changes the seconds, hardly the processor time.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::flags::ServerFlags;
use crate::limits::at_least_one;
use crate::site::Site;
use crate::wire::admin::Admin;
use crate::wire::terms;

const DB: &str = "bench_reql";
/// Rows in one insert while the table is filled.
const ROWS_PER_INSERT: u64 = 500;
/// Groups of `group`.
const GROUPS: u64 = 16;

/// Times shapes of queries one after the other
#[derive(Args, Clone, Debug)]
pub struct ReqlArgs {
    /// Rows of the table that is read, made when it has another number
    #[arg(long, default_value_t = 100_000, value_parser = at_least_one::<u64>)]
    rows: u64,
    /// Times a query about few rows is asked
    #[arg(long, default_value_t = 4_000, value_parser = at_least_one::<u64>)]
    times: u64,
    /// Times a query about all rows is asked
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<u64>)]
    scans: u64,
    /// Only the shapes whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    /// Seed of what is asked for
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    server: ServerFlags,
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

const SHAPES: [Shape; 7] = [
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

/// Runs the command. The exit code says whether every bar was held.
pub fn run(args: &ReqlArgs) -> anyhow::Result<ExitCode> {
    let (site, mut admin) = Site::open(args.server.request(), args.seed)?;
    let mut chance = Chance::new(args.seed, 7_000_000);
    prepare(&mut admin, args.rows)?;
    println!("{:<44} {:>12} {:>8} {:>12}", "shape", "server CPU", "bar", "elapsed");
    let mut held = true;
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&args.only)) {
        let times = if shape.per == Per::Row { args.scans } else { args.times };
        // Once without looking, so that nothing is done for the first time.
        admin.ask(&(shape.ask)(&mut chance, args.rows)).context(shape.name)?;
        let (cpu, started) = (cpu_seconds(&site)?, Instant::now());
        for _ in 0..times {
            admin.ask(&(shape.ask)(&mut chance, args.rows)).context(shape.name)?;
        }
        let shares = match shape.per {
            Per::Query => times as f64,
            Per::Row => (times * args.rows) as f64,
        };
        let each = (cpu_seconds(&site)? - cpu) * 1e6 / shares;
        let elapsed = started.elapsed().as_secs_f64() * 1e6 / shares;
        let unit = if shape.per == Per::Row { "µs/row" } else { "µs    " };
        held &= each <= shape.bar;
        println!("{:<44} {each:>7.2} {unit} {:>6.2} {elapsed:>9.2} µs", shape.name, shape.bar);
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cpu_seconds(site: &Site) -> anyhow::Result<f64> {
    let each = site.watched.iter().map(|server| server.sample().cpu_seconds);
    let sum: Option<f64> = each.sum();
    sum.filter(|_| !site.watched.is_empty()).context("the server's process was not found (--server-pid)")
}

/// The tables, with as many rows as are wanted.
fn prepare(admin: &mut Admin, rows: u64) -> anyhow::Result<()> {
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
    println!("making {rows} rows");
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
