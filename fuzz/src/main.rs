//! `rekindle-fuzz TARGET|all [--seconds N] [--seed N] [--runs N] [--input FILE]`

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rekindle_fuzz::run::{self, Plan};
use rekindle_fuzz::supervise::{self, Errand};
use rekindle_fuzz::targets::{self, Target};

const USAGE: &str = "usage: rekindle-fuzz TARGET|all [--seconds N] [--seed N] [--runs N] [--input FILE]";

struct Options {
    targets: Vec<&'static dyn Target>,
    seconds: f64,
    seed: Option<u64>,
    runs: u64,
    input: Option<PathBuf>,
}

impl Options {
    /// The same for one worker, without target and seed.
    fn of_worker(&self) -> Vec<String> {
        let numbers = [("--seconds", self.seconds.to_string()), ("--runs", self.runs.to_string())];
        let input = self.input.iter().map(|file| ("--input", file.display().to_string()));
        numbers.into_iter().chain(input).flat_map(|(name, value)| [name.to_owned(), value]).collect()
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
    if std::env::var_os(supervise::WORKER).is_none() {
        return supervise_all(&options, home);
    }
    work(&options, home)
}

/// A worker for each target, as many at once as there are processors; the rest go on when one fails.
fn supervise_all(options: &Options, home: &Path) -> ExitCode {
    let seed = options.seed.unwrap_or_else(some_seed);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let attend = || {
        while let Some(target) = options.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            let errand = Errand { target: target.name(), options: options.of_worker(), seed };
            match supervise::supervise(home, &errand) {
                Ok(0) => {}
                Ok(_) => failed.store(true, Ordering::Relaxed),
                Err(error) => {
                    eprintln!("{}: no worker: {error}", errand.target);
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..processors).for_each(|_| drop(scope.spawn(attend)));
    });
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn work(options: &Options, home: &Path) -> ExitCode {
    for &target in &options.targets {
        let borne = match &options.input {
            Some(file) => std::fs::read(file).is_ok_and(|input| run::check_one(target, input)),
            None => run_target(options, target, home),
        };
        // One test per target, in the form `cargo xtask test` counts.
        println!("{}", if borne { "1 passed, 0 failed" } else { "0 passed, 1 failed" });
        if !borne {
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
        trace: std::env::var_os(supervise::TRACE).map(PathBuf::from),
    };
    run::run(plan).is_ok()
}

/// A seed nobody chose; it is printed.
fn some_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64 % 1_000_000_007)
}

fn read_options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { targets: Vec::new(), seconds: 60.0, seed: None, runs: u64::MAX, input: None };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--seconds" => options.seconds = number(&value()?)?,
            "--seed" => options.seed = Some(number(&value()?)?),
            "--runs" => options.runs = number(&value()?)?,
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
