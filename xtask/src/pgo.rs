//! `pgo`: records the profile with which `tools/build` optimizes the program (profile-guided optimization). An
//! instrumented program counts while it serves the published workloads, queries of the shapes that applications send,
//! and random queries of every term.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use torture::harness::checkout::root;
use torture::harness::cluster::Cluster;
use torture::harness::node::{Node, Ports};
use torture::harness::options::verdict;

/// The load while the program counts.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Length of each workload
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Documents of the workloads
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..))]
    records: u64,
}

/// Nodes of the cluster: for most queries the rows are on another node.
const NODES: usize = 4;
/// The profile, relative to the repository.
const PROFILE: &str = "tools/pgo/rekindle.profdata";

/// Builds the instrumented program, runs the load, and writes the profile.
pub(crate) fn run(options: &Options) -> ExitCode {
    verdict("pgo", record(options).map(|()| true))
}

fn record(options: &Options) -> Result<()> {
    let merge = llvm_profdata()?;
    let folder = target_folder()?.join("pgo");
    let counts = folder.join("counts");
    let program = instrumented(&folder, &counts)?;
    one_node(&program, options)?;
    random_queries(&program, options)?;
    several_nodes(&program, options)?;
    let record = root().join(PROFILE);
    succeed(Command::new(merge).args(["merge", "--sparse", "--output"]).arg(&record).arg(&counts))?;
    succeed(Command::new(root().join("tools/build")).arg("--recorded"))?;
    println!("pgo: {} of {} bytes", record.display(), fs::metadata(&record)?.len());
    Ok(())
}

/// Builds the instrumented program in `folder`; each of its processes writes into `counts` when it ends.
fn instrumented(folder: &Path, counts: &Path) -> Result<PathBuf> {
    println!("pgo: building a program that counts, about ten minutes on two cores");
    let mut build = Command::new(root().join("tools/build"));
    succeed(build.arg("--counting").arg(counts).env("CARGO_TARGET_DIR", folder))?;
    // Build scripts, macros and the last recording have counted there, too.
    if counts.exists() {
        fs::remove_dir_all(counts).with_context(|| format!("emptying {}", counts.display()))?;
    }
    Ok(folder.join("dist/rekindle"))
}

fn one_node(program: &Path, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let mut node = Node::start(program, folder.path(), &["--http-port", "0"])?;
    let ports = node.wait_until_ready()?;
    let at = format!("127.0.0.1:{}", ports.driver);
    let (records, run) = (options.records, limits(options));
    for workload in [
        format!("ycsb load a --records {records}"),
        format!("ycsb run a {run} --durability soft"),
        format!("ycsb run a {run} --durability hard"),
        format!("ycsb run c {run}"),
        "analytic --runs 3".to_owned(),
        format!("ycsb run f {run}"),
        format!("ycsb run e {run}"),
        format!("blocks --units 2 --seconds {}", options.seconds),
    ] {
        bench(program, &workload, std::slice::from_ref(&at))?;
    }
    shapes(program, options.records, ports, &folder.path().join("shapes.json"))?;
    node.stop()
}

/// Sends random queries with every term to a new node, so that the compiler considers no term as code that never runs.
fn random_queries(program: &Path, options: &Options) -> Result<()> {
    println!("pgo: random queries");
    let folder = tempfile::tempdir().context("a folder for the node's data")?;
    let mut node = Node::start(program, folder.path(), &["--no-http-admin"])?;
    let at = format!("127.0.0.1:{}", node.wait_until_ready()?.driver);
    let seconds = (2 * options.seconds).to_string();
    let words = ["--seed", "1", "--queries", "1000000", "--seconds", &seconds, "--server", &at];
    let compared = crate::built::run("rekindle-differential", &[], &words.map(str::to_owned));
    ensure!(compared == ExitCode::SUCCESS, "random queries found a difference");
    node.stop()
}

fn several_nodes(program: &Path, options: &Options) -> Result<()> {
    let folder = tempfile::tempdir().context("a folder for the nodes' data")?;
    let cluster = Cluster::start(program, folder.path(), NODES, &["--no-http-admin"])?;
    let at: Vec<String> = cluster.drivers().iter().map(ToString::to_string).collect();
    let (records, run) = (options.records, limits(options));
    for workload in [
        format!("ycsb load a --records {records} --shards {NODES} --replicas 2"),
        format!("ycsb run a {run} --durability soft"),
        format!("ycsb run a {run} --durability hard"),
        format!("ycsb run c {run}"),
        format!("ycsb run c {run} --read-mode outdated"),
        "analytic --runs 3".to_owned(),
    ] {
        bench(program, &workload, &at)?;
    }
    cluster.stop()
}

fn limits(options: &Options) -> String {
    format!("--records {} --connections 128 --warmup 1 --seconds {}", options.records, options.seconds)
}

fn bench(program: &Path, workload: &str, at: &[String]) -> Result<()> {
    println!("pgo: {workload}");
    let hosts = at.iter().flat_map(|host| ["--host", host]);
    succeed(Command::new(program).args(["bench"]).args(workload.split(' ')).args(hosts).arg("--quiet"))
}

/// Queries of the shapes that applications send. An instrumented program misses the bars, which the benchmark reports
/// as a failure; the result file shows that all queries ran.
fn shapes(program: &Path, rows: u64, ports: Ports, result: &Path) -> Result<()> {
    println!("pgo: reql");
    let metrics = format!("http://127.0.0.1:{}/metrics", ports.http.context("a metrics page")?);
    let mut command = Command::new(program);
    command.args(["bench", "reql", "--quiet", "--rows", &rows.to_string(), "--http", &metrics, "--port"]);
    command.arg(ports.driver.to_string()).arg("--json").arg(result);
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(result.is_file(), "{command:?} ended with {status} before all queries had run");
    Ok(())
}

/// The `llvm-profdata` of the same compiler: the format of the counts depends on its version.
fn llvm_profdata() -> Result<PathBuf> {
    let host =
        rustc_output(&["-vV"])?.lines().find_map(|line| line.strip_prefix("host: ").map(str::to_owned));
    let host = host.context("rustc -vV does not name its host")?;
    let folder = Path::new(&rustc_output(&["--print", "sysroot"])?).join("lib/rustlib").join(host);
    let found = folder.join("bin/llvm-profdata");
    ensure!(found.is_file(), "{} is missing: rustup component add llvm-tools", found.display());
    Ok(found)
}

fn rustc_output(words: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(words).output().context("running rustc")?;
    ensure!(output.status.success(), "rustc {words:?} failed with {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Cargo's target folder, which contains the folder of this tool.
fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this tool is")?;
    let folder = own.ancestors().nth(2).context("the folder that cargo builds in")?;
    Ok(folder.to_owned())
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}
