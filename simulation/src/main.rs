//! The simulation's command line: docs/simulation.md. Run it as `cargo xtask sim`.
#![forbid(unsafe_code)]

mod command_line;

use std::process::ExitCode;
use std::time::{Duration, Instant};

#[cfg(feature = "mutants")]
use command_line::MUTANT_SEEDS;
use command_line::{Asked, HELP, Wanted, read};
use rekindle_simulation::trace;
use rekindle_simulation::{Plot, Ran, run};

fn main() -> ExitCode {
    let wanted = match read(std::env::args().skip(1)) {
        Ok(Asked::Seeds(wanted)) => wanted,
        Ok(Asked::Help) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if wanted.trace {
        trace::tell();
        let lines = tracing_subscriber::fmt().with_timer(trace::Stamp).with_writer(std::io::stderr);
        lines.with_max_level(tracing::Level::TRACE).with_ansi(false).init();
    }
    let passed = match wanted.mutants.is_empty() {
        true => keep_promises(&wanted),
        false => find_mutants(&wanted),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lives through seeds and stops at the first that breaks a promise, unless it is to go on.
fn keep_promises(wanted: &Wanted) -> bool {
    let (begun, mut done, mut halted, mut time, mut passed) = (Instant::now(), 0, 0, Duration::ZERO, 0);
    let seeds = wanted.seeds.unwrap_or(100);
    for seed in wanted.from..wanted.from + seeds {
        match keep_them_in(seed, wanted) {
            Some(ran) => {
                passed += 1;
                done += ran.done;
                halted += ran.copies_halted;
                time += ran.time;
            }
            None if !wanted.goes_on => return false,
            None => {}
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{passed} of {seeds} seeds passed, {:.1} a second; {done} operations, {halted} copies interrupted, {:.0} \
         simulated seconds for one",
        seeds as f64 / took,
        time.as_secs_f64() / took,
    );
    passed == seeds
}

/// Lives through one seed, and says what went wrong if something did.
fn keep_them_in(seed: u64, wanted: &Wanted) -> Option<Ran> {
    let ran = match run(seed, wanted.plot) {
        Ok(ran) => ran,
        Err(failure) => {
            println!(
                "seed {seed} failed after {} good ones: {:?}, {}",
                seed - wanted.from,
                failure.broken.promise,
                failure.broken.what
            );
            println!("again with: cargo xtask sim --seeds 1 --from {seed} --trace{}", again(&wanted.plot));
            return None;
        }
    };
    if wanted.twice && run(seed, wanted.plot).as_ref() != Ok(&ran) {
        println!("seed {seed} did not repeat itself");
        return None;
    }
    if wanted.seeds == Some(1) {
        println!("seed {seed}: trace {:016x}", ran.trace.0);
    }
    Some(ran)
}

fn again(plot: &Plot) -> String {
    let normal = Plot::default();
    let mut words = String::new();
    if plot.nodes != normal.nodes {
        words += &format!(" --nodes {}", plot.nodes);
    }
    if plot.storm != normal.storm {
        words += &format!(" --seconds {}", plot.storm.as_secs());
    }
    if plot.scope != normal.scope {
        words += " --basic";
    }
    words
}

/// Plants each fault; it must be found, by the promise that it breaks.
#[cfg(feature = "mutants")]
fn find_mutants(wanted: &Wanted) -> bool {
    use rekindle_simulation::mutants::{PLANTED, find};
    let is_known = |asked: &&String| *asked == "all" || PLANTED.iter().any(|(name, ..)| name == *asked);
    if let Some(unknown) = wanted.mutants.iter().find(|asked| !is_known(asked)) {
        let names: Vec<&str> = PLANTED.iter().map(|(name, ..)| *name).collect();
        eprintln!("--mutant {unknown}: there is no such fault; there are {}", names.join(", "));
        return false;
    }
    let mut all_found = true;
    for (name, mutant, promises) in PLANTED {
        if !wanted.mutants.iter().any(|asked| asked == name || asked == "all") {
            continue;
        }
        let begun = Instant::now();
        let seeds = wanted.seeds.unwrap_or(MUTANT_SEEDS);
        let found = find(mutant, promises, wanted.from..wanted.from + seeds, wanted.plot);
        let (took, others) = (begun.elapsed().as_secs(), found.others);
        match found.failure {
            Some(failure) => {
                let first = failure.broken.what.lines().next().unwrap_or_default();
                let (count, promise) = (failure.seed - wanted.from + 1, failure.broken.promise);
                println!(
                    "{name} is found after {count} seeds ({took} s), by seed {}: {promise:?}, {first} \
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
fn find_mutants(_wanted: &Wanted) -> bool {
    eprintln!("faults are planted in a build with the feature `mutants`: cargo xtask sim makes one");
    false
}
