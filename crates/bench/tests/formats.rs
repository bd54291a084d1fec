//! The documents in `docs/formats` name every member that a sweep of running clusters writes.

mod toy;

use clap::Parser;
use rekindle_bench::cli::{BenchArgs, run};
use serde_json::Value;

const SWEEPS: &str = include_str!("../../../docs/formats/bench-sweep.md");
const RESULTS: &str = include_str!("../../../docs/formats/bench-result.md");

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: BenchArgs,
}

/// The paths of members of `value` that `document` does not name.
fn unnamed(value: &Value, path: &str, document: &'static str) -> Vec<String> {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(all) => return all.iter().flat_map(|one| unnamed(one, path, document)).collect(),
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for (name, member) in members {
        let path = format!("{path}.{name}");
        let ways = [format!("`{name}`"), format!("\"{name}\""), format!(".{name}`")];
        if !ways.iter().any(|way| document.contains(way)) {
            found.push(path.clone());
        }
        match name.as_str() {
            // Members that a sweep copies from its results are described with the results.
            "alarms" | "machine" | "service" => found.extend(unnamed(member, &path, RESULTS)),
            // The settings of a result are flags and YCSB's properties, under their names.
            "settings" if document == RESULTS => {}
            _ => found.extend(unnamed(member, &path, document)),
        }
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn every_member_of_a_sweep_and_of_its_results_is_named() {
    let (port, store) = toy::start();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").display().to_string();
    let words = "--quiet --records 60 --seconds 0.4 --warmup 0 --runs 2 --connections 4";
    let cluster = format!("127.0.0.1:{port}");
    let all = ["bench", "sweep", "--cluster", &cluster, "--output", &out].into_iter().chain(words.split(' '));
    run(Program::parse_from(all).command).expect("swept");
    drop(store);
    let files = std::fs::read_dir(&out).expect("results").flatten();
    let texts = files.map(|file| std::fs::read_to_string(file.path()));
    let documents = texts.filter_map(|text| serde_json::from_str::<Value>(&text.ok()?).ok());
    let (mut sweeps, mut runs) = (0, 0);
    for document in documents {
        let is_sweep = document["format"] == "rekindle-bench-sweep";
        *(if is_sweep { &mut sweeps } else { &mut runs }) += 1;
        let described = if is_sweep { SWEEPS } else { RESULTS };
        assert_eq!(unnamed(&document, "", described), Vec::<String>::new());
    }
    assert!(sweeps == 1 && runs > 3, "{sweeps} sweeps of {runs} runs");
}
