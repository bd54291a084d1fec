//! Benchmarks that start their own clusters: real nodes of this program, few documents.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

#[path = "../../../tests/support/executable.rs"]
mod executable;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rekindle");

fn bench(folder: &Path, words: &str) -> Output {
    let words = words.split_whitespace();
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder).arg("bench").args(words).arg("--quiet");
    command.output().expect("the program starts")
}

/// The documents of `format` that a command wrote to `folder`.
fn documents(folder: &Path, format: &str) -> Vec<Value> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let read = texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok());
    read.filter(|document| document["format"] == format).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A script that takes RethinkDB's flags, records them, and runs this program with them.
fn wrapper(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("target.sh");
    let script = format!("echo \"$@\" >> {}/flags\nexec {PROGRAM} \"$@\"", folder.display());
    executable::write_executable(&path, &script);
    path
}

#[test]
fn a_sweep_measures_clusters_of_another_program_and_reports_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = wrapper(folder.path());
    let output = bench(
        folder.path(),
        &format!(
            "sweep --nodes 1,2 --records 400 --seconds 1 --warmup 0 --runs 1 --connections 4 \
             --core-share 0.2 --port-offset 2100 --cache-size 100 -o out --target-binary {}",
            target.display()
        ),
    );
    assert!(output.status.success(), "{}", said(&output));

    let sweeps = documents(&folder.path().join("out"), "rekindle-bench-sweep");
    let [sweep] = &sweeps[..] else { panic!("one sweep, not {}", sweeps.len()) };
    let names: Vec<&Value> =
        sweep["series"].as_array().expect("series").iter().map(|s| &s["workload"]).collect();
    assert_eq!(names, ["a", "c-sync", "c-outdated", "analytic"]);
    for series in sweep["series"].as_array().expect("series") {
        let points = series["points"].as_array().expect("points");
        assert_eq!(points.iter().map(|p| p["nodes"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert!(points.iter().all(|p| p["per_second"].as_f64() > Some(0.0) && p["failed"] == 0), "{series}");
        assert_eq!(points[1]["by_node"].as_array().map(Vec::len), Some(2));
        assert_eq!((&points[0]["replicas"], &points[1]["replicas"]), (&1.into(), &2.into()));
    }
    let has_quota = sweep["quota"]["kind"] != "none";
    assert!(has_quota || sweep["quota"]["why_none"].is_string());
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a page");
    assert!(page.contains("rekindle-bench-sweep"));
    let runs = documents(&folder.path().join("out"), "rekindle-bench-result");
    assert_eq!(runs.len(), 10);
    let noted = |run: &&Value| run["notes"].to_string().contains("2 shards, balanced after the load: ");
    assert_eq!(runs.iter().filter(noted).count(), 1, "the load of the two nodes");

    let flags = std::fs::read_to_string(folder.path().join("flags")).expect("flags were recorded");
    let lines: Vec<&str> = flags.lines().collect();
    assert_eq!(lines.len(), 3, "{flags}");
    assert!(lines.iter().all(|line| line.starts_with("--directory ") && line.contains("--cache-size 100")));
    assert!(lines[2].contains("--server-name node1 --port-offset 2101") && lines[2].contains("--join"));
    assert!(!folder.path().join("out/nodes").exists());
}

#[test]
fn clusters_of_all_sizes_are_measured_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "sweep --together --rounds 2 --nodes 2,1 --workloads c-sync,a --records 400 --seconds 1 \
                 --warmup 0 --connections 4 --no-quota --port-offset 2120 --cache-size 100 -o out";
    let output = bench(folder.path(), words);
    assert!(output.status.success(), "{}", said(&output));
    let sweep = documents(&folder.path().join("out"), "rekindle-bench-sweep").remove(0);
    assert_eq!(sweep["series"].as_array().map(Vec::len), Some(2));
    let series = sweep["series"].as_array().expect("series").iter();
    for point in series.filter_map(|one| one["points"].as_array()).flatten() {
        let rounds = point["rounds"].as_array().expect("rounds");
        assert!(rounds.len() == 2 && rounds.iter().all(Value::is_f64), "{point}");
    }
    let mut runs = documents(&folder.path().join("out"), "rekindle-bench-result");
    runs.retain(|run| run["kind"] == "ycsb-run");
    // Ids begin with the time of the start.
    runs.sort_by_key(|run| run["id"].as_str().map(str::to_owned));
    let asked: Vec<&str> = runs.iter().filter_map(|run| run["settings"]["hosts"].as_str()).collect();
    let (one, two) = ("127.0.0.1:30135", "127.0.0.1:30136,127.0.0.1:30137");
    assert_eq!(asked, [one, two, one, two, one, two, one, two], "by turns");
}

#[test]
fn hop_measures_four_kinds_and_ends_as_its_bars_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "hop --records 300 --seconds 2 --rounds 1 --port-offset 2350 --cache-size 100 --json out/";
    let output = bench(folder.path(), words);
    let [hop] = &documents(&folder.path().join("out"), "rekindle-bench-result")[..] else {
        panic!("no result: {}", said(&output));
    };
    let operations = hop["operations"].as_array().expect("operations").iter();
    let names: Vec<&Value> = operations.clone().map(|one| &one["name"]).collect();
    assert_eq!(names, ["GET-LOCAL", "GET-FORWARDED", "UPDATE-ONE", "UPDATE-TWO"]);
    let costs = operations.map(|one| one["server_cpu_us_per_operation"].as_f64());
    assert!(costs.clone().all(|cost| cost > Some(0.0)), "{:?}", costs.collect::<Vec<_>>());
    let notes = hop["notes"].as_array().expect("notes").iter().filter_map(Value::as_str);
    let verdicts: Vec<&str> = notes.filter(|note| note.contains("times the server CPU")).collect();
    let is_held = verdicts.iter().all(|verdict| verdict.ends_with(": held"));
    assert_eq!((verdicts.len(), output.status.success()), (2, is_held), "{verdicts:?}");
}

#[test]
fn write_units_keep_their_promises_on_small_clusters() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "units --factor 16 --seconds 1 --block-bytes 20000 --overload 4 --no-quota \
                 --port-offset 2200 --cache-size 100 -o out";
    let output = bench(folder.path(), words);
    assert!(output.status.success(), "{}", said(&output));
    let tests = documents(&folder.path().join("out"), "rekindle-bench-result");
    assert_eq!(tests.len(), 8, "six tests, the overload and the replicated one");
    let checks: Vec<&Value> = tests.iter().flat_map(|t| t["checks"].as_array().expect("checks")).collect();
    assert!(checks.iter().all(|check| check["ok"] == true));
    for name in ["nodes with primaries alone", "nodes with secondaries alone", "nodes that hold both"] {
        assert!(checks.iter().any(|check| check["name"] == name), "{name}");
    }
    let untold = tests.iter().flat_map(|t| t["units"]["untold"].as_array().expect("what cannot be told"));
    let whys: Vec<&str> = untold.filter_map(|check| check["why"].as_str()).collect();
    assert!(whys.iter().any(|why| why.contains("too little written")), "{whys:?}");
}

#[test]
fn an_idle_cluster_reports_its_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "idle --nodes 2 --tables 2 --shards 2 --replicas 2 --settle 0 --seconds 0.5 \
                 --port-offset 2300 --cache-size 100 --json out/";
    let output = bench(folder.path(), words);
    assert!(output.status.success(), "{}", said(&output));
    let found = documents(&folder.path().join("out"), "rekindle-bench-result");
    assert_eq!(found[0]["kind"], "idle");
    assert_eq!(found[0]["servers"].as_array().map(Vec::len), Some(2));
    assert_eq!(found[0]["operations"][0]["ok"], 2);
}

#[test]
fn a_program_that_is_no_server_is_quoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let words =
        "sweep --nodes 1 --records 10 --no-quota --port-offset 2400 -o out --target-binary /bin/false";
    let output = bench(folder.path(), words);
    assert!(!output.status.success() && said(&output).contains("node0 ended with"), "{}", said(&output));
}

#[test]
fn two_clusters_of_one_size_are_refused_before_either_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = "sweep --cluster 127.0.0.1:1,127.0.0.1:2 --cluster 127.0.0.1:3,127.0.0.1:4 -o out";
    let output = bench(folder.path(), words);
    let said = said(&output);
    assert!(!output.status.success() && said.contains("two clusters have 2 servers"), "{said}");
    assert!(!folder.path().join("out").join("report.html").exists());
}
