//! `report`: runs the published workloads for a few seconds each on a new node, a small run of the report on articles, and
//! a small sweep over cluster sizes, and writes one page.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use torture::harness::checkout::root;
use torture::harness::node::{Node, Ports, default_program};

/// The size of the rows of articles, and the memory of the server in the second part of their tests.
const ARTICLE_MEGABYTES: &str = "20";
const ARTICLE_MEMORY_MB: &str = "256";

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
    articles(program, options, folder.path(), &results)?;
    sweep(program, options, &results)?;
    let mut page = Command::new(program);
    page.args(["bench", "report"]).arg(&results).arg("-o").arg(&options.output);
    finish(&mut page, "bench report")
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

/// Articles from texts on this machine: its documentation, that of the crates, and ours.
fn articles(program: &Path, options: &Options, folder: &Path, results: &Path) -> Result<()> {
    let rows = folder.join("rows.tsv");
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = cargo.map(|cargo| cargo.join("registry/src"));
    let texts = [Some(PathBuf::from("/usr/share/doc")), registry, Some(root().join("docs"))];
    let mut make = Command::new(program);
    make.args(["bench", "wiki-rows", "--megabytes", ARTICLE_MEGABYTES, "--output"]).arg(&rows);
    make.args(texts.into_iter().flatten().filter(|path| path.is_dir()));
    finish(&mut make, "bench wiki-rows")?;
    let seconds = options.seconds.to_string();
    let mut measure = Command::new(program);
    measure.args(["bench", "wiki", "--seconds", &seconds, "--warmup", "2", "--cache-size", "256"]);
    measure.args(["--small-memory", ARTICLE_MEMORY_MB]).arg(&rows);
    measure.arg("--folder").arg(folder.join("articles"));
    measure.arg("--json").arg(format!("{}/", results.display()));
    finish(&mut measure, "bench wiki")
}

fn finish(command: &mut Command, name: &str) -> Result<()> {
    println!("report: {name}");
    let status = command.status().with_context(|| format!("running {name}"))?;
    if !status.success() {
        bail!("{name} failed with {status}");
    }
    Ok(())
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
