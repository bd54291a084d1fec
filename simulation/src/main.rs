//! The simulation's command line: docs/simulation.md. Run it as `cargo xtask sim`.
#![forbid(unsafe_code)]

mod command_line;

use std::process::ExitCode;
use std::time::{Duration, Instant};

#[cfg(feature = "mutants")]
use command_line::MUTANT_SEEDS;
use command_line::{Arguments, Command, HELP, read};
use rekindle_simulation::trace;
use rekindle_simulation::{RunOptions, Summary, run};

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(Command::Seeds(arguments)) => arguments,
        Ok(Command::Help) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.trace {
        trace::enable();
        let lines = tracing_subscriber::fmt().with_timer(trace::Stamp).with_writer(std::io::stderr);
        lines.with_max_level(tracing::Level::TRACE).with_ansi(false).init();
    }
    let passed = match arguments.mutants.is_empty() {
        true => run_seeds(&arguments),
        false => find_mutants(&arguments),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds until the first that breaks an invariant, or all of them.
fn run_seeds(arguments: &Arguments) -> bool {
    let (begun, mut done, mut interrupted, mut time, mut passed) = (Instant::now(), 0, 0, Duration::ZERO, 0);
    let seeds = arguments.seeds.unwrap_or(100);
    for seed in arguments.from..arguments.from + seeds {
        match run_seed(seed, arguments) {
            Some(summary) => {
                passed += 1;
                done += summary.done;
                interrupted += summary.copies_interrupted;
                time += summary.time;
            }
            None if !arguments.continues => return false,
            None => {}
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{passed} of {seeds} seeds passed, {:.1} a second; {done} operations, {interrupted} copies interrupted, {:.0} \
         simulated seconds for one",
        seeds as f64 / took,
        time.as_secs_f64() / took,
    );
    passed == seeds
}

/// Runs one seed and prints its failure.
fn run_seed(seed: u64, arguments: &Arguments) -> Option<Summary> {
    let summary = match run(seed, arguments.options) {
        Ok(summary) => summary,
        Err(failure) => {
            println!(
                "seed {seed} failed after {} that passed: {:?}, {}",
                seed - arguments.from,
                failure.violation.invariant,
                failure.violation.what
            );
            println!(
                "again with: cargo xtask sim --seeds 1 --from {seed} --trace{}",
                again(&arguments.options)
            );
            return None;
        }
    };
    if arguments.twice && run(seed, arguments.options).as_ref() != Ok(&summary) {
        println!("seed {seed} had another trace the second time");
        return None;
    }
    if arguments.seeds == Some(1) {
        println!("seed {seed}: trace {:016x}", summary.trace.0);
    }
    Some(summary)
}

fn again(options: &RunOptions) -> String {
    let normal = RunOptions::default();
    let mut words = String::new();
    if options.nodes != normal.nodes {
        words += &format!(" --nodes {}", options.nodes);
    }
    if options.fault_period != normal.fault_period {
        words += &format!(" --seconds {}", options.fault_period.as_secs());
    }
    if options.scope != normal.scope {
        words += " --basic";
    }
    words
}

/// Runs seeds with each mutant, which must break an invariant that it concerns.
#[cfg(feature = "mutants")]
fn find_mutants(arguments: &Arguments) -> bool {
    use rekindle_simulation::mutants::{MUTANTS, find};
    let is_known = |asked: &&String| *asked == "all" || MUTANTS.iter().any(|(name, ..)| name == *asked);
    if let Some(unknown) = arguments.mutants.iter().find(|asked| !is_known(asked)) {
        let names: Vec<&str> = MUTANTS.iter().map(|(name, ..)| *name).collect();
        eprintln!("--mutant {unknown}: there is no such mutant; there are {}", names.join(", "));
        return false;
    }
    let mut all_found = true;
    for (name, mutant, invariants) in MUTANTS {
        if !arguments.mutants.iter().any(|asked| asked == name || asked == "all") {
            continue;
        }
        let begun = Instant::now();
        let seeds = arguments.seeds.unwrap_or(MUTANT_SEEDS);
        let found = find(mutant, invariants, arguments.from..arguments.from + seeds, arguments.options);
        let (took, others) = (begun.elapsed().as_secs(), found.others);
        match found.failure {
            Some(failure) => {
                let first = failure.violation.what.lines().next().unwrap_or_default();
                let (count, invariant) = (failure.seed - arguments.from + 1, failure.violation.invariant);
                println!(
                    "{name} is found after {count} seeds ({took} s), by seed {}: {invariant:?}, {first} \
                     ({others} seeds broke something else)",
                    failure.seed
                );
            }
            None => {
                println!("{name} is NOT found in {seeds} seeds ({took} s; {others} broke something else)");
                all_found = false;
            }
        }
    }
    all_found
}

#[cfg(not(feature = "mutants"))]
fn find_mutants(_wanted: &Arguments) -> bool {
    eprintln!("mutants need a build with the feature `mutants`: cargo xtask sim makes one");
    false
}
