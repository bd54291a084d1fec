//! Supervises a worker process: a stack overflow, or an allocation beyond all memory, kills a process without a
//! message, and the input must still be found.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The environment variable that marks a worker process.
pub const WORKER_ENV: &str = "REKINDLE_FUZZ_WORKER";
/// The environment variable with the file to which each input is written before it is tried.
pub const TRACE_ENV: &str = "REKINDLE_FUZZ_TRACE";

/// The task of a worker.
#[derive(Clone, Debug)]
pub struct WorkerJob {
    /// The target's name.
    pub target: &'static str,
    /// The command line after the target's name, without a seed.
    pub options: Vec<String>,
    pub seed: u64,
}

/// The result of a worker.
#[derive(Clone, Debug)]
pub struct Report {
    /// The exit code to end with.
    pub code: i32,
    /// The whole output. Workers run concurrently, so each one's output is printed at once.
    pub output: String,
}

/// Runs this program as a worker for one target. If the worker is killed, runs it once more with the same seed, with
/// every input written to a file first, until it dies again.
pub fn supervise(home: &Path, job: &WorkerJob) -> std::io::Result<Report> {
    let first = worker(job, None)?;
    let mut output = output_of(&first);
    if let Some(code) = first.status.code() {
        return Ok(Report { code, output });
    }
    let target = job.target;
    output +=
        &format!("{target}: the worker was killed ({}); looking for the input that did it\n", first.status);
    let folder = home.join("artifacts");
    std::fs::create_dir_all(&folder)?;
    let trace = folder.join(format!("{target}-killer"));
    let again = worker(job, Some(&trace))?;
    output += &output_of(&again);
    output += &match again.status.code() {
        None => format!("written: {}\n", trace.display()),
        Some(_) => "the second run was not killed in the same time; try a longer time\n".to_owned(),
    };
    // The killed worker could not print it.
    output += "0 passed, 1 failed\n";
    Ok(Report { code: 1, output })
}

/// The output of a worker; first its errors, which are few.
fn output_of(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stderr) + &text(&output.stdout)
}

fn worker(job: &WorkerJob, trace: Option<&Path>) -> std::io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(job.target).args(&job.options).stdin(Stdio::null());
    command.arg("--seed").arg(job.seed.to_string()).env(WORKER_ENV, "1");
    if let Some(trace) = trace {
        command.env(TRACE_ENV, trace);
    }
    command.output()
}
