//! `rekindle-fuzz TARGET|all [--seconds N] [--seed N] [--runs N] [--input FILE] [--fresh]`

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rekindle_fuzz::corpus_cache::CorpusCache;
use rekindle_fuzz::run::{self, Plan};
use rekindle_fuzz::supervise::{self, WorkerJob};
use rekindle_fuzz::targets::{self, Target};

const USAGE: &str =
    "usage: rekindle-fuzz TARGET|all [--seconds N] [--seed N] [--runs N] [--input FILE] [--fresh]";

struct Options {
    targets: Vec<&'static dyn Target>,
    seconds: f64,
    seed: Option<u64>,
    runs: u64,
    input: Option<PathBuf>,
    /// Whether to ignore the cached inputs of earlier runs, and to store none.
    fresh: bool,
}

impl Options {
    /// The options of a worker, without target and seed.
    fn of_worker(&self) -> Vec<String> {
        let numbers = [("--seconds", self.seconds.to_string()), ("--runs", self.runs.to_string())];
        let input = self.input.iter().map(|file| ("--input", file.display().to_string()));
        let named = numbers.into_iter().chain(input).flat_map(|(name, value)| [name.to_owned(), value]);
        named.chain(self.fresh.then(|| "--fresh".to_owned())).collect()
    }
}

fn main() -> ExitCode {
    let options = match read_options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            let names: Vec<_> = targets::all().iter().map(|target| target.name()).collect();
            eprintln!("{why}\n{USAGE}\ntargets: {}", names.join(" "));
            return ExitCode::from(2);
        }
    };
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os(supervise::WORKER_ENV).is_none() {
        return supervise_all(&options, home);
    }
    work(&options, home)
}

/// Runs a worker per target, as many at once as there are processors; the rest continue when one fails. The output of a
/// worker is printed when it has ended, so that outputs do not mix.
fn supervise_all(options: &Options, home: &Path) -> ExitCode {
    let seed = options.seed.unwrap_or_else(clock_seed);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run_workers = || {
        while let Some(target) = options.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let job = WorkerJob { target: target.name(), options: options.of_worker(), seed };
            match supervise::supervise(home, &job) {
                Ok(report) => {
                    print!("{}", report.output);
                    failed.fetch_or(report.code != 0, Ordering::Relaxed);
                }
                Err(error) => {
                    eprintln!("{}: no worker: {error}", job.target);
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..processors).for_each(|_| drop(scope.spawn(run_workers)));
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn work(options: &Options, home: &Path) -> ExitCode {
    for &target in &options.targets {
        let passed = match &options.input {
            Some(file) => std::fs::read(file).is_ok_and(|input| run::check_one(target, input)),
            None => run_target(options, target, home),
        };
        // One test per target, in the format that `cargo xtask test` counts.
        println!("{}", if passed { "1 passed, 0 failed" } else { "0 passed, 1 failed" });
        if !passed {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run_target(options: &Options, target: &'static dyn Target, home: &Path) -> bool {
    let seed = options.seed.unwrap_or_default();
    println!("{}: seed {seed}", target.name());
    let plan = Plan {
        target,
        seed,
        time: Duration::from_secs_f64(options.seconds),
        runs: options.runs,
        home: home.to_owned(),
        trace: std::env::var_os(supervise::TRACE_ENV).map(PathBuf::from),
        cache: cache().filter(|_| !options.fresh).map(|cache| CorpusCache::of(&cache, target.name())),
    };
    run::run(plan).is_ok()
}

/// The project's cache directory.
fn cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/rekindle"));
    std::env::var_os("REKINDLE_CACHE").map(PathBuf::from).or_else(home)
}

/// A seed from the clock; it is printed.
fn clock_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007)
}

fn read_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let (targets, runs) = (Vec::new(), u64::MAX);
    let mut options = Options { targets, seconds: 60.0, seed: None, runs, input: None, fresh: false };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => options.seconds = number(&value()?)?,
            "--seed" => options.seed = Some(number(&value()?)?),
            "--runs" => options.runs = number(&value()?)?,
            "--fresh" => options.fresh = true,
            "--input" => options.input = Some(PathBuf::from(value()?)),
            "all" => options.targets.extend(targets::all()),
            name => options.targets.push(targets::by_name(name).ok_or(format!("no target {name}"))?),
        }
    }
    if options.targets.is_empty() { Err("no target given".to_owned()) } else { Ok(options) }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}
