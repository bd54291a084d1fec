//! `report`: runs the published workloads for a few seconds each on a new node, and a small sweep over cluster sizes, and
//! writes one page.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use torture::harness::node::{Node, Ports, default_program};

/// Options of a report.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The measured program [default: the one beside this]
    #[arg(long, default_value_os_t = default_program(), hide_default_value = true)]
    program: PathBuf,
    /// Length of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Documents
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// The page
    #[arg(long, default_value = "report.html")]
    output: PathBuf,
}

/// Measures and writes the report.
pub(crate) fn run(options: &Options) -> ExitCode {
    match measure(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("report: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let results = options.output.with_extension("results");
    if results.exists() {
        std::fs::remove_dir_all(&results).with_context(|| format!("emptying {}", results.display()))?;
    }
    std::fs::create_dir_all(&results).with_context(|| format!("creating {}", results.display()))?;
    let program = &options.program;
    let mut node = Node::start(program, folder.path(), &["--http-port", "0"])?;
    let ports = node.wait_until_ready()?;
    println!("report: node {} on port {}", node.pid(), ports.driver);
    for workload in workloads(options) {
        bench(program, &workload, ports, node.pid(), &results)?;
    }
    node.kill()?;
    sweep(program, options, &results)?;
    let page = Command::new(program)
        .args(["bench", "report"])
        .arg(&results)
        .arg("-o")
        .arg(&options.output)
        .status()
        .context("running bench report")?;
    if !page.success() {
        bail!("bench report failed with {page}");
    }
    Ok(())
}

fn workloads(options: &Options) -> Vec<String> {
    let Options { seconds, records, .. } = options;
    let run = format!("-p recordcount={records} --connections 128 --warmup 3 --seconds {seconds}");
    vec![
        format!("ycsb load a -p recordcount={records} -p fieldalphabet=ycsb014"),
        format!("ycsb run a {run} -p fieldalphabet=ycsb014 --durability soft --label soft"),
        format!("ycsb run a {run} -p fieldalphabet=ycsb014 --durability hard --label hard"),
        format!("ycsb run c {run} --read-mode single"),
        format!("ycsb run c {run} --read-mode outdated"),
        "analytic --runs 5".to_owned(),
        format!("blocks --units 2 --seconds {seconds}"),
    ]
}

/// One, two and four nodes, each with the same share of a core where this machine can give one.
fn sweep(program: &Path, options: &Options, results: &Path) -> Result<()> {
    let Options { seconds, records, .. } = options;
    let words = format!(
        "bench sweep --nodes 1,2,4 --records {} --seconds {} --warmup 1 --runs 3",
        (records / 10).max(1),
        (seconds / 2).max(1)
    );
    println!("report: {words}");
    let mut command = Command::new(program);
    command.args(words.split(' ')).arg("--output").arg(results);
    let status = command.status().with_context(|| format!("running {words}"))?;
    if !status.success() {
        bail!("{words} failed with {status}");
    }
    Ok(())
}

fn bench(program: &Path, workload: &str, ports: Ports, pid: u32, results: &Path) -> Result<()> {
    println!("report: {workload}");
    let mut command = Command::new(program);
    command.arg("bench").args(workload.split(' '));
    command.args([
        "--host",
        "127.0.0.1",
        "--port",
        &ports.driver.to_string(),
        "--server-pid",
        &pid.to_string(),
    ]);
    if let Some(http) = ports.http {
        command.args(["--http", &format!("http://127.0.0.1:{http}/metrics")]);
    }
    command.arg("--json").arg(format!("{}/", results.display()));
    let status = command.status().with_context(|| format!("running bench {workload}"))?;
    if !status.success() {
        bail!("bench {workload} failed with {status}");
    }
    Ok(())
}
