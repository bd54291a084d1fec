//! `test`: every test of the project, one step after another, and a count at the end.

mod count;
mod steps;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use torture::harness::process;

use count::Count;
use steps::Step;

/// A command that runs for longer has hung: the slowest takes a third of this, including compilation.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(35 * 60);
/// The number of last lines of a failed command that are repeated at the end.
const LAST_LINES: usize = 25;

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
        // Its step has run the command again by now.
        process::kill_tree(child.id());
        drop(child.wait());
    }
    failures.iter().for_each(Failure::print);
    println!("\n{}\n\n{total}", summary.join("\n"));
    if total.failed == 0 && total.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts a command early, without its output. Its step runs it again, waits for it and judges it.
fn begin_early(words: &[String]) -> Option<Child> {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(torture::harness::checkout::root());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// A command that failed, and the last lines it wrote.
struct Failure {
    command: String,
    last_lines: VecDeque<String>,
}

impl Failure {
    /// Prints it again, so that the end of the output names all failures.
    fn print(&self) {
        println!("\nfailed: {}", self.command);
        self.last_lines.iter().for_each(|line| println!("    {line}"));
    }
}

/// Runs a step. A command that fails without a count is one failure, and one that succeeds without a count is one pass, so
/// that every command counts.
fn run_step(step: &Step, failures: &mut Vec<Failure>) -> Count {
    if let Some(why) = &step.skip {
        println!("   not run: {why}");
        return Count { skipped: 1, ..Count::default() };
    }
    let mut count = Count::default();
    for command in &step.commands {
        let (succeeded, counted, last_lines) = stream(command, COMMAND_TIMEOUT);
        count.add(counted);
        if !succeeded || counted.failed > 0 {
            failures.push(Failure { command: command.join(" "), last_lines });
        }
        if !succeeded && counted.failed == 0 {
            count.failed += 1;
        } else if succeeded && counted == Count::default() {
            count.passed += 1;
        }
    }
    count
}

/// Runs a command and prints its output; returns whether it succeeded, its count and its last lines. Kills it if it, or a
/// descendant that holds its output open, runs for longer than `limit`.
fn stream(words: &[String], limit: Duration) -> (bool, Count, VecDeque<String>) {
    let (mut count, mut last_lines) = (Count::default(), VecDeque::with_capacity(LAST_LINES + 1));
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(torture::harness::checkout::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("   {} could not be started: {error}", words[0]);
            return (false, count, last_lines);
        }
    };
    let (lines, until) = (lines_of(child.stdout.take()), Instant::now() + limit);
    let next = || match until.checked_duration_since(Instant::now()) {
        Some(left) => lines.recv_timeout(left),
        None => Err(RecvTimeoutError::Timeout),
    };
    let mut read = next();
    while let Ok(line) = read {
        println!("{line}");
        count.read(&line);
        last_lines.push_back(line);
        if last_lines.len() > LAST_LINES {
            last_lines.pop_front();
        }
        read = next();
    }
    let is_late = read == Err(RecvTimeoutError::Timeout);
    if is_late {
        process::kill_tree(child.id());
        println!("   stopped: {} ran for more than {} minutes", words.join(" "), limit.as_secs() / 60);
    }
    (child.wait().is_ok_and(|status| status.success()) && !is_late, count, last_lines)
}

/// The lines of an output, read on a separate thread: a process that holds it open may never end.
fn lines_of(output: Option<ChildStdout>) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
        lines.map_while(Result::ok).map(|line| sender.send(line)).find(Result::is_err)
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_stopped() {
        let limit = Duration::from_millis(500);
        let talks = "while :; do echo more; sleep 0.05; done";
        for (script, succeeds) in
            [("sleep 30 & echo begun", false), ("sleep 30", false), (talks, false), ("echo begun", true)]
        {
            let begin = Instant::now();
            let words = ["sh", "-c", script].map(str::to_owned);
            let (succeeded, _, last_lines) = stream(&words, limit);
            assert_eq!(succeeded, succeeds, "{script}");
            assert_eq!(last_lines.is_empty(), script == "sleep 30", "{script}");
            assert!(begin.elapsed() < Duration::from_secs(15), "{script}");
        }
    }
}
