//! A process beside the one that tries inputs: an overflowing stack or an allocation beyond all
//! memory kills a process without a word, and the input must be found all the same.

use std::path::Path;
use std::process::{Command, ExitStatus};

/// Set for the process that tries the inputs.
pub const WORKER: &str = "REKINDLE_FUZZ_WORKER";
/// Names the file each input is written to before it is tried.
pub const TRACE: &str = "REKINDLE_FUZZ_TRACE";

/// Runs this program's own command line with this seed as a worker. When the worker is killed, runs it once more
/// with the same seed and every input written down first, until it dies again.
///
/// Answers the exit code to end with.
pub fn supervise(home: &Path, seed: u64) -> std::io::Result<i32> {
    let status = worker(seed, None)?;
    if let Some(code) = status.code() {
        return Ok(code);
    }
    println!("the worker was killed ({status}); looking for the input that did it");
    let folder = home.join("artifacts");
    std::fs::create_dir_all(&folder)?;
    let trace = folder.join("killer");
    let again = worker(seed, Some(&trace))?;
    match again.code() {
        None => println!("written: {}", trace.display()),
        Some(_) => println!("the second run was not killed in the same time; try with more"),
    }
    Ok(1)
}

fn worker(seed: u64, trace: Option<&Path>) -> std::io::Result<ExitStatus> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).arg("--seed").arg(seed.to_string()).env(WORKER, "1");
    if let Some(trace) = trace {
        command.env(TRACE, trace);
    }
    command.status()
}
