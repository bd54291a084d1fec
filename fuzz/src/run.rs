//! The fuzzing loop: an input of the corpus is mutated and checked; one with a new outcome joins the corpus. The same
//! seed gives the same inputs, as long as the code gives the same outcomes.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use io::sim::Chance;

use crate::corpus_cache::CorpusCache;
use crate::mutate::mutate;
use crate::targets::{Outcome, Target};

/// The stack size of a server's thread, which no input may overflow.
const STACK_BYTES: usize = 2 << 20;
/// An input that takes longer is a fault, even on a busy machine.
const INPUT_TIMEOUT: Duration = Duration::from_secs(20);
/// The most inputs in the corpus.
const CORPUS_INPUTS_MAX: usize = 5_000;
/// The most attempts at shortening a failing input.
const SHRINK_TRIES: usize = 2_000;

/// The parameters of a run.
#[derive(Clone)]
pub struct Plan {
    pub target: &'static dyn Target,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The longest duration.
    pub time: Duration,
    /// The most inputs to try.
    pub runs: u64,
    /// The directory for failing inputs, with the corpus in a subdirectory per target.
    pub home: PathBuf,
    /// The file to which each input is written before it is tried.
    pub trace: Option<PathBuf>,
    /// The inputs of earlier runs to begin with; updated if all inputs pass.
    pub cache: Option<CorpusCache>,
}

/// The statistics of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Inputs tried.
    pub runs: u64,
    /// Different outcomes.
    pub outcomes: usize,
    /// Inputs in the corpus.
    pub corpus: usize,
}

/// A failing input.
#[derive(Debug)]
pub struct Fault {
    /// The input, shortened as far as was easy.
    pub input: Vec<u8>,
    /// The file with the input, if it could be written.
    pub file: Option<PathBuf>,
}

/// Runs `plan` on a thread like a server's.
pub fn run(plan: Plan) -> Result<Tally, Box<Fault>> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || Worker::new(plan).run());
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(done)) => done,
        _ => Err(Box::new(Fault { input: Vec::new(), file: None })),
    }
}

/// Checks one input on a thread like a server's; returns whether it passes.
#[must_use]
pub fn check_one(target: &'static dyn Target, input: Vec<u8>) -> bool {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || survives(target, &input));
    thread.is_ok_and(|thread| thread.join().is_ok_and(|outcome| outcome.is_some()))
}

fn survives(target: &dyn Target, input: &[u8]) -> Option<Outcome> {
    catch_unwind(AssertUnwindSafe(|| target.check(input))).ok()
}

/// The committed inputs of a target, in the order of their names.
#[must_use]
pub fn committed(home: &Path, target: &dyn Target) -> Vec<Vec<u8>> {
    let Ok(folder) = std::fs::read_dir(home.join("corpus").join(target.name())) else { return Vec::new() };
    let mut paths: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// The input being tried and its start time, for the watchdog.
type Current = Arc<Mutex<(Vec<u8>, Instant)>>;

struct Worker {
    plan: Plan,
    chance: Chance,
    corpus: Vec<Vec<u8>>,
    seen: HashSet<Outcome>,
    runs: u64,
    current: Current,
}

impl Worker {
    fn new(plan: Plan) -> Worker {
        let chance = Chance::new(plan.seed);
        let current = Arc::new(Mutex::new((Vec::new(), Instant::now())));
        Worker { plan, chance, corpus: Vec::new(), seen: HashSet::new(), runs: 0, current }
    }

    fn run(mut self) -> Result<Tally, Box<Fault>> {
        watch(Arc::downgrade(&self.current), self.plan.clone());
        let start = Instant::now();
        let mut reported = start;
        for seed in self.plan.target.seeds().into_iter().chain(committed(&self.plan.home, self.plan.target)) {
            self.try_input(&seed)?;
            self.corpus.push(seed);
        }
        let mut found = self.begin_with_cache()?;
        while self.runs < self.plan.runs && start.elapsed() < self.plan.time {
            let input = self.next_input();
            let outcome = self.try_input(&input)?;
            if self.seen.insert(outcome) && self.corpus.len() < CORPUS_INPUTS_MAX {
                found.push(input.clone());
                self.corpus.push(input);
            }
            if reported.elapsed() > Duration::from_secs(10) {
                reported = Instant::now();
                self.report(start.elapsed());
            }
        }
        self.report(start.elapsed());
        if let Some(cache) = &self.plan.cache
            && let Err(error) = cache.replace(found)
        {
            println!("{}: could not save the inputs found: {error}", self.plan.target.name());
        }
        Ok(Tally { runs: self.runs, outcomes: self.seen.len(), corpus: self.corpus.len() })
    }

    /// Tries the inputs of earlier runs; returns those with distinct outcomes.
    fn begin_with_cache(&mut self) -> Result<Vec<Vec<u8>>, Box<Fault>> {
        let inputs = self.plan.cache.as_ref().map(CorpusCache::read).unwrap_or_default();
        let mut distinct = Vec::new();
        for input in inputs {
            let outcome = self.try_input(&input)?;
            if self.seen.insert(outcome) {
                distinct.push(input.clone());
                self.corpus.push(input);
            }
        }
        if !distinct.is_empty() {
            println!("{}: begins with {} inputs of earlier runs", self.plan.target.name(), distinct.len());
        }
        Ok(distinct)
    }

    fn report(&self, elapsed: Duration) {
        let rate = self.runs as f64 / elapsed.as_secs_f64().max(1e-9);
        println!(
            "{}: {} inputs, {rate:.0}/s, {} outcomes, {} in the corpus",
            self.plan.target.name(),
            self.runs,
            self.seen.len(),
            self.corpus.len(),
        );
    }

    fn next_input(&mut self) -> Vec<u8> {
        let recent = self.corpus.len() - self.corpus.len() / 4;
        let from = if self.chance.once_in(3) { recent.min(self.corpus.len() - 1) } else { 0 };
        let base = from + self.chance.below(self.corpus.len() - from);
        let other = self.chance.below(self.corpus.len());
        let mut input = self.corpus[base].clone();
        mutate(&mut input, &self.corpus[other], self.plan.target.dictionary(), &mut self.chance);
        if !self.chance.once_in(3) {
            self.plan.target.repair(&mut input, &mut self.chance);
        }
        input
    }

    fn try_input(&mut self, input: &[u8]) -> Result<Outcome, Box<Fault>> {
        self.runs += 1;
        if let Some(file) = &self.plan.trace {
            let _ = std::fs::write(file, input);
        }
        {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.0.clear();
            current.0.extend_from_slice(input);
            current.1 = Instant::now();
        }
        match survives(self.plan.target, input) {
            Some(outcome) => Ok(outcome),
            None => {
                println!("{}: input {} of seed {} fails", self.plan.target.name(), self.runs, self.plan.seed);
                let input = shrink(self.plan.target, input.to_vec(), &mut self.chance);
                let file = keep(&self.plan, &input);
                Err(Box::new(Fault { input, file }))
            }
        }
    }
}

/// Removes chunks of a failing input while it still fails.
fn shrink(target: &dyn Target, mut input: Vec<u8>, chance: &mut Chance) -> Vec<u8> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let until = Instant::now() + INPUT_TIMEOUT / 2;
    for _ in 0..SHRINK_TRIES {
        if input.is_empty() || Instant::now() > until {
            break;
        }
        let start = chance.below(input.len());
        let end = start + chance.length(input.len() - start);
        let shorter = [&input[..start], &input[end..]].concat();
        if survives(target, &shorter).is_none() {
            input = shorter;
        }
    }
    std::panic::set_hook(hook);
    input
}

/// Writes a failing input to the directory for artifacts.
fn keep(plan: &Plan, input: &[u8]) -> Option<PathBuf> {
    let folder = plan.home.join("artifacts");
    std::fs::create_dir_all(&folder).ok()?;
    let name = format!("{}-{:016x}", plan.target.name(), Outcome::of(input).0);
    let file = folder.join(name);
    std::fs::write(&file, input).ok()?;
    println!("written: {}", file.display());
    println!(
        "repeat:  cargo run --release -p rekindle-fuzz -- {} --input {}",
        plan.target.name(),
        file.display()
    );
    Some(file)
}

/// Ends the process when an input takes too long, after writing the input.
fn watch(current: std::sync::Weak<Mutex<(Vec<u8>, Instant)>>, plan: Plan) {
    std::thread::spawn(move || {
        while let Some(current) = current.upgrade() {
            {
                let current = current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.1.elapsed() > INPUT_TIMEOUT && !current.0.is_empty() {
                    println!("{}: an input takes longer than {INPUT_TIMEOUT:?}", plan.target.name());
                    keep(&plan, &current.0);
                    std::process::exit(1);
                }
            }
            drop(current);
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}
