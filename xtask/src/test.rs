//! `test`: every test of the project, one step after another, and a count at the end.

mod count;
mod steps;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use count::Count;
use steps::Step;

use crate::process;

/// A command that runs for longer has hung: the slowest takes a third of it, with everything to compile.
const LIMIT: Duration = Duration::from_secs(35 * 60);
/// So many of the last lines of a command that failed are said again at the end.
const LAST_WORDS: usize = 25;

/// Runs the steps named in `only`, or all of them.
pub(crate) fn run(only: &[String]) -> ExitCode {
    let steps = steps::all();
    if let Some(unknown) = only.iter().find(|name| steps.iter().all(|step| step.name != **name)) {
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        eprintln!("there is no step {unknown:?}; the steps are {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let mut total = Count::default();
    let mut summary = Vec::new();
    let mut failures = Vec::new();
    let steps: Vec<&Step> =
        steps.iter().filter(|step| only.is_empty() || only.iter().any(|name| name == step.name)).collect();
    let early: Vec<Child> =
        steps.iter().skip(1).filter_map(|step| begin_early(step.early.as_ref()?)).collect();
    for step in steps {
        println!("== {}: {}", step.name, step.what);
        let started = Instant::now();
        let count = run_step(step, &mut failures);
        summary.push(format!("{:<12} {count}  ({} s)", step.name, started.elapsed().as_secs()));
        total.add(count);
    }
    for mut child in early {
        // Whoever needed it has done it again by now.
        process::kill_tree(child.id());
        drop(child.wait());
    }
    failures.iter().for_each(Failure::say);
    println!("\n{}\n\n{total}", summary.join("\n"));
    if total.failed == 0 && total.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts a command that is waited for and judged when it runs again. What it says then is enough.
fn begin_early(words: &[String]) -> Option<Child> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(crate::built::root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// A command that failed, and the last lines it wrote.
struct Failure {
    command: String,
    last_words: VecDeque<String>,
}

impl Failure {
    /// Says it again, so that who sees only the end of everything knows what failed.
    fn say(&self) {
        println!("\nfailed: {}", self.command);
        self.last_words.iter().for_each(|line| println!("    {line}"));
    }
}

/// A step that fails without saying what failed counts as one failure, and one that
/// succeeds without counting as one pass, so that no step can vanish.
fn run_step(step: &Step, failures: &mut Vec<Failure>) -> Count {
    if let Some(why) = &step.skip {
        println!("   not run: {why}");
        return Count { skipped: 1, ..Count::default() };
    }
    let mut count = Count::default();
    for command in &step.commands {
        let (succeeded, said, last_words) = stream(command);
        count.add(said);
        if !succeeded || said.failed > 0 {
            failures.push(Failure { command: command.join(" "), last_words });
        }
        if !succeeded && said.failed == 0 {
            count.failed += 1;
        } else if succeeded && said == Count::default() {
            count.passed += 1;
        }
    }
    count
}

/// Runs a command and passes on what it writes: whether it succeeded, what it counted, its last lines.
fn stream(words: &[String]) -> (bool, Count, VecDeque<String>) {
    let mut last_words = VecDeque::with_capacity(LAST_WORDS + 1);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(crate::built::root()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("   {} could not be started: {error}", words[0]);
            return (false, Count::default(), last_words);
        }
    };
    let (ended, has_ended) = channel();
    let pid = child.id();
    let watcher = thread::spawn(move || watch(pid, &has_ended));
    let mut count = Count::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            println!("{line}");
            count.read(&line);
            last_words.push_back(line);
            if last_words.len() > LAST_WORDS {
                last_words.pop_front();
            }
        }
    }
    drop(ended);
    if watcher.join().is_ok_and(|stopped| stopped) {
        println!("   stopped: {} ran for more than {} minutes", words.join(" "), LIMIT.as_secs() / 60);
    }
    (child.wait().is_ok_and(|status| status.success()), count, last_words)
}

/// Kills a command that runs for longer than [`LIMIT`], and tells whether it had to. The command has
/// ended when the sender of `ended` is gone.
fn watch(pid: u32, ended: &Receiver<()>) -> bool {
    let too_long = ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
    if too_long {
        process::kill_tree(pid);
    }
    too_long
}
