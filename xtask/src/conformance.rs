//! `conformance`: runs a suite of ReQL cases, in a folder beside the checkout or named by `REKINDLE_CONFORMANCE`, against
//! a new cluster; no area may pass fewer cases than before.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use torture::harness::checkout::{cache, root};
use torture::harness::cluster::Cluster;
use torture::harness::node::default_program;

use crate::outside::{self, Outside};

const FLOOR: &str = "tests/conformance/floor.txt";
/// The area with cases that need a server on the internet that does not respond, and the number of these cases.
const NEEDS_INTERNET: (&str, u64) = ("timeout", 1);

#[derive(Default)]
struct Area {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// Failures that are a dropped connection, a crash or a timeout rather than a wrong answer.
    lost: u64,
}

/// The folder that holds the runner, if there is one.
pub(crate) fn folder() -> Option<PathBuf> {
    if let Some(named) = env::var_os("REKINDLE_CONFORMANCE") {
        return Some(PathBuf::from(named));
    }
    let beside = root().join("..");
    let folders = fs::read_dir(beside).ok()?.flatten().map(|entry| entry.path().join("conformance"));
    folders.into_iter().find(|folder| folder.join("run.py").is_file())
}

/// Options of a run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Raise the floor to what passes now
    #[arg(long)]
    update: bool,
    /// Nodes of the cluster; queries go to the first
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Shards of each table
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    shards: u16,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match outside::enter().and_then(|outside| check(options, outside)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(options: &Options, outside: Outside) -> Result<u64> {
    let suite = folder().context("no folder with run.py found; name it with REKINDLE_CONFORMANCE")?;
    let areas = measure(&suite, options)?;
    let floor_path = root().join(FLOOR);
    let floor = read_floor(&fs::read_to_string(&floor_path).unwrap_or_default())?;
    let (mut below, mut passed, mut lost) = (0, 0, 0);
    println!("{:<24}{:>8}{:>8}{:>8}{:>8}{:>8}", "area", "passed", "failed", "lost", "skipped", "floor");
    for (name, area) in &areas {
        let asks = if outside == Outside::Missing && name == NEEDS_INTERNET.0 { NEEDS_INTERNET.1 } else { 0 };
        let least = floor.get(name).copied().unwrap_or(0).saturating_sub(asks);
        println!(
            "{name:<24}{:>8}{:>8}{:>8}{:>8}{least:>8}",
            area.passed, area.failed, area.lost, area.skipped
        );
        below += least.saturating_sub(area.passed);
        passed += area.passed;
        lost += area.lost;
    }
    if options.update && outside == Outside::Missing {
        println!("the floor is not updated: it belongs to runs with the stand-in server");
    } else if options.update {
        let text: String = areas.iter().map(|(name, area)| format!("{name} {}\n", area.passed)).collect();
        fs::write(&floor_path, text).with_context(|| format!("writing {}", floor_path.display()))?;
    }
    println!("{lost} cases were lost to a crash, a dropped connection or a timeout");
    println!("{} cases fewer than the floor in {FLOOR}", below);
    println!("{passed} passed, {} failed", below + lost);
    Ok(below + lost)
}

fn measure(suite: &Path, options: &Options) -> Result<BTreeMap<String, Area>> {
    let folder = tempfile::tempdir().context("a folder for the data")?;
    let flags = ["--no-http-admin", "--enable-js"];
    let cluster = Cluster::start(&default_program(), folder.path(), options.nodes.into(), &flags)?;
    let port = cluster.drivers()[0].port().to_string();
    let report = folder.path().join("outcomes.json");
    let python = cache().join("venv/bin/python");
    let status = Command::new(&python)
        .arg(suite.join("run.py"))
        .args(["--no-known-failures", "--clean", "--port", &port])
        .args(["--shards", &options.shards.to_string(), "--json"])
        .arg(&report)
        .stdout(fs::File::create(folder.path().join("stdout"))?)
        .status()
        .with_context(|| format!("running run.py with {}", python.display()))?;
    let text = fs::read(&report).with_context(|| format!("run.py left {status} and no outcomes"))?;
    drop(cluster);
    areas(&serde_json::from_slice(&text)?)
}

/// Outcomes by the first folder of a case file, or the file's name for those at the top.
fn areas(report: &Value) -> Result<BTreeMap<String, Area>> {
    let files = report["files"].as_object().context("outcomes without files")?;
    let mut areas: BTreeMap<String, Area> = BTreeMap::new();
    for (file, outcomes) in files {
        let inner = file.trim_start_matches("cases/");
        let name = inner.split('/').next().unwrap_or(inner).trim_end_matches(".yaml");
        let area = areas.entry(name.to_owned()).or_default();
        for case in outcomes["cases"].as_array().into_iter().flatten() {
            match case["status"].as_str() {
                Some("passed") => area.passed += 1,
                Some("skipped") => area.skipped += 1,
                _ => area.failed += 1,
            }
            if case["status"] == "failed" && is_lost(case["detail"].as_str().unwrap_or_default()) {
                area.lost += 1;
            }
        }
    }
    Ok(areas)
}

/// Whether the actual result names a crash, a dropped connection or a timeout. The expected result may name one.
fn is_lost(detail: &str) -> bool {
    let got = detail.rsplit_once(", got ").map_or(detail, |(_, got)| got);
    ["Connection", "connection lost", "timed out", "timeout", "Broken pipe"]
        .iter()
        .any(|sign| got.contains(sign))
}

fn read_floor(text: &str) -> Result<BTreeMap<String, u64>> {
    let mut floor = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some((name, number)) = line.rsplit_once(' ') else { bail!("{FLOOR}: {line:?} is no floor") };
        floor.insert(name.to_owned(), number.parse().with_context(|| format!("{FLOOR}: {line:?}"))?);
    }
    Ok(floor)
}

#[cfg(test)]
mod tests {
    use super::is_lost;

    #[test]
    fn only_the_actual_result_counts_as_lost() {
        assert!(is_lost("expected 1, got the query timed out"));
        assert!(is_lost("Connection is closed."));
        assert!(!is_lost("expected 'timed out after 1.000 seconds', got 'no such host'"));
    }
}
