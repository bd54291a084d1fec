//! A process beside the one that tries inputs: an overflowing stack or an allocation beyond all
//! memory kills a process without a word, and the input must be found all the same.

use std::path::Path;
use std::process::{Command, Output, Stdio};

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

/// How an errand went.
#[derive(Clone, Debug)]
pub struct Report {
    /// The exit code to end with.
    pub code: i32,
    /// All that was said, in whole lines: of workers that run side by side, each is shown by itself.
    pub said: String,
}

/// Runs this program as a worker for one target. When the worker is killed, runs it once more with the
/// same seed and every input written down first, until it dies again.
pub fn supervise(home: &Path, errand: &Errand) -> std::io::Result<Report> {
    let first = worker(errand, None)?;
    let mut said = words(&first);
    if let Some(code) = first.status.code() {
        return Ok(Report { code, said });
    }
    let target = errand.target;
    said +=
        &format!("{target}: the worker was killed ({}); looking for the input that did it\n", first.status);
    let folder = home.join("artifacts");
    std::fs::create_dir_all(&folder)?;
    let trace = folder.join(format!("{target}-killer"));
    let again = worker(errand, Some(&trace))?;
    said += &words(&again);
    said += &match again.status.code() {
        None => format!("written: {}\n", trace.display()),
        Some(_) => "the second run was not killed in the same time; try with more\n".to_owned(),
    };
    // The killed one could not say it.
    said += "0 passed, 1 failed\n";
    Ok(Report { code: 1, said })
}

/// What a worker said; its complaints first, which are few.
fn words(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stderr) + &text(&output.stdout)
}

fn worker(errand: &Errand, trace: Option<&Path>) -> std::io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(errand.target).args(&errand.options).stdin(Stdio::null());
    command.arg("--seed").arg(errand.seed.to_string()).env(WORKER, "1");
    if let Some(trace) = trace {
        command.env(TRACE, trace);
    }
    command.output()
}
