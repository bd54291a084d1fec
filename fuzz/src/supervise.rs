//! A process beside the one that tries inputs: an overflowing stack or an allocation beyond all
//! memory kills a process without a word, and the input must be found all the same.

use std::path::Path;
use std::process::{Command, ExitStatus};

/// Set for the process that tries the inputs.
pub const WORKER: &str = "REKINDLE_FUZZ_WORKER";
/// Names the file each input is written to before it is tried.
pub const TRACE: &str = "REKINDLE_FUZZ_TRACE";

/// What a worker is started for.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The target's name.
    pub target: &'static str,
    /// The command line after the target's name, without a seed.
    pub options: Vec<String>,
    /// The seed.
    pub seed: u64,
}

/// Runs this program as a worker for one target. When the worker is killed, runs it once more with the
/// same seed and every input written down first, until it dies again.
///
/// Answers the exit code to end with.
pub fn supervise(home: &Path, errand: &Errand) -> std::io::Result<i32> {
    let status = worker(errand, None)?;
    if let Some(code) = status.code() {
        return Ok(code);
    }
    let target = errand.target;
    println!("{target}: the worker was killed ({status}); looking for the input that did it");
    let folder = home.join("artifacts");
    std::fs::create_dir_all(&folder)?;
    let trace = folder.join(format!("{target}-killer"));
    let again = worker(errand, Some(&trace))?;
    match again.code() {
        None => println!("written: {}", trace.display()),
        Some(_) => println!("the second run was not killed in the same time; try with more"),
    }
    Ok(1)
}

fn worker(errand: &Errand, trace: Option<&Path>) -> std::io::Result<ExitStatus> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(errand.target).args(&errand.options);
    command.arg("--seed").arg(errand.seed.to_string()).env(WORKER, "1");
    if let Some(trace) = trace {
        command.env(TRACE, trace);
    }
    command.status()
}
