//! `rekindle-differential`: compares random queries until one differs.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use rekindle_differential::{Compared, Comparison, Options, RunResult, Target, TestTables, run, verdict};

/// The reference copies everything, which is mostly allocation.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const HELP: &str = "\
rekindle-differential [--queries N] [--seconds N] [--seed N] [--differences N] [--threads N] [--terms]
                      [--server HOST:PORT]...
rekindle-differential --query QUERY [--seed N] [--server HOST:PORT]

Compares the results of a node in memory with those of a reference evaluator. With --server the node is the
program that listens for drivers at this address; all tables of its database `test` are dropped. Ends at the
first difference (or the Nth) and prints it reduced. The seed determines the queries. At the end it prints how
many queries had each term; with --terms also the reasons for open queries. A query is a term as it is sent,
with an optional prefix `array_limit=N `.";

fn main() -> ExitCode {
    match ran() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn ran() -> anyhow::Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        queries: u64::MAX,
        time: Duration::MAX,
        seed: now,
        differences: 1,
        threads,
        programs: Vec::new(),
    };
    let mut query = None;
    let mut terms = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--help" {
            println!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        if name == "--terms" {
            terms = true;
            continue;
        }
        let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{name} needs a number"));
        match name.as_str() {
            "--queries" => options.queries = number()?,
            "--seconds" => options.time = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--differences" => options.differences = usize::try_from(number()?)?,
            "--threads" => options.threads = usize::try_from(number()?)?,
            "--server" => options.programs.push(value),
            "--query" => query = Some(value),
            other => bail!("there is no option {other}\n{HELP}"),
        }
    }
    println!("SEED={}", options.seed);
    if let Some(query) = query {
        return one(&query, &options);
    }
    let RunResult { compared, open, values, next_seed, reasons, coverage, differences } = run(&options)?;
    for difference in &differences {
        println!("\n{difference}");
    }
    if terms {
        for (why, count) in reasons {
            println!("open {count}: {why}");
        }
    }
    println!("{coverage}");
    println!("seeds {} to {}", options.seed, next_seed.saturating_sub(1));
    println!("{compared} queries compared ({values} with a value), {open} more open");
    println!("{} passed, {} failed", u64::from(differences.is_empty()), differences.len());
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one query and prints the results.
fn one(query: &str, options: &Options) -> anyhow::Result<ExitCode> {
    let query = query.parse()?;
    let target = options.programs.first().map_or(Target::Local, |address| Target::Program(address));
    match Comparison::new(TestTables::of(options.seed), target)?.compare(&query)? {
        Compared::Open(why) => println!("open: {why}"),
        Compared::Same(answer) => println!("both: {}", verdict::text(&answer)),
        Compared::Refused(why) => println!("refused: {why}"),
        Compared::Different(shown) => println!("{shown}"),
    }
    Ok(ExitCode::SUCCESS)
}
