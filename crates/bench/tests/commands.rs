//! Whole commands against a toy server: their effects on it, and the results they write.

mod toy;

use std::process::ExitCode;

use clap::Parser;
use rekindle_bench::cli::{BenchArgs, run};
use rekindle_bench::result::RunResult;
use tempfile::TempDir;

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: BenchArgs,
}

struct TestBench {
    port: u16,
    store: toy::Shared,
    folder: TempDir,
}

impl TestBench {
    fn new() -> Self {
        let (port, store) = toy::start();
        TestBench { port, store, folder: tempfile::tempdir().expect("a folder") }
    }

    fn try_bench(&self, arguments: &str) -> anyhow::Result<(ExitCode, RunResult)> {
        let file = self.folder.path().join("result.json");
        let port = self.port.to_string();
        let json = file.to_string_lossy().into_owned();
        let mut all = vec!["bench"];
        all.extend(arguments.split_whitespace());
        all.extend(["--port", &port, "--json", &json, "--quiet"]);
        all.extend(["--http", "http://127.0.0.1:1/", "--format", "ycsb"]);
        let code = run(Program::try_parse_from(all)?.command)?;
        Ok((code, serde_json::from_slice(&std::fs::read(file)?)?))
    }

    #[track_caller]
    fn bench(&self, arguments: &str) -> RunResult {
        let (code, result) = self.try_bench(arguments).expect("a result");
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "{:?}", result.alarms);
        result
    }

    #[track_caller]
    fn fails(&self, arguments: &str, with: &str) {
        let error = self.try_bench(arguments).map(|_| ()).expect_err("an error");
        let text = format!("{error:#}");
        assert!(text.contains(with), "{text}");
    }
}

fn operation<'a>(result: &'a RunResult, name: &str) -> &'a rekindle_bench::result::OperationResult {
    result.operations.iter().find(|o| o.name == name).expect("the operation occurred")
}

#[test]
fn a_load_a_run_and_the_analytic_query_agree() {
    let bench = TestBench::new();
    let load = bench.bench("ycsb load --records 500 --batch 30 --durability soft");
    assert_eq!(load.throughput.units[0].total, 500);
    assert_eq!(operation(&load, "INSERT").ok, 17);
    assert_eq!(bench.store.lock().expect("store").rows("ycsb", "usertable").map(|r| r.len()), Some(500));

    let run = bench.bench("ycsb run c --operations 640 --connections 8 --read-mode outdated");
    assert_eq!(operation(&run, "READ").ok, run.throughput.operations);
    assert_eq!(run.throughput.operations, 640);
    assert_eq!(run.verification.parsed, 10);
    assert_eq!(run.published, None);
    assert!(run.notes.iter().any(|n| n.contains("8 connections instead of 128")), "{:?}", run.notes);
    let like = bench.bench("ycsb run c --operations 640 --connections 128 --read-mode outdated");
    assert_eq!(like.published.map(|p| p.workload), Some("c-outdated".to_owned()));
    assert_eq!(run.versions.server.as_deref(), Some("0.0.0-toy"));
    assert!(run.errors.is_empty());

    let analytic = bench.bench("analytic --runs 3");
    assert_eq!(analytic.runs.len(), 3);
    assert!(analytic.checks[0].ok && analytic.checks[0].source.contains("usertable_loaded"));
    assert_eq!(analytic.throughput.units[0].total, 1_500);
    let longer = bench.bench("analytic --runs 1 --seconds 0.7");
    assert!(longer.time.measured_seconds >= 0.6 && longer.runs.len() > 1, "{:?}", longer.time);

    let update = bench.bench("ycsb run a --operations 300 --connections 4 --durability hard");
    assert!(operation(&update, "UPDATE").ok > 100);
    for (durability, beside) in [("soft", None), ("hard", Some("a".to_owned()))] {
        let flags = format!("--operations 640 --connections 128 --durability {durability}");
        assert_eq!(bench.bench(&format!("ycsb run a {flags}")).published.map(|p| p.workload), beside);
    }
    let flags = "--operations 640 --connections 128";
    let soft_table = bench.bench(&format!("ycsb run a {flags}"));
    assert_eq!(soft_table.published, None, "the table was made soft");
    assert_eq!(soft_table.settings["durability"], "soft");
    let recounted = bench.bench("analytic --runs 1");
    assert!(recounted.checks[0].ok && recounted.checks[0].source.contains("recount"));
}

#[test]
fn every_workload_runs_without_an_error() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 200 -p dataintegrity=true");
    for workload in ["a", "b", "c", "d", "e", "f"] {
        // The parameters of values are known from the load.
        let common = "--operations 400 --connections 4 --pipeline 3";
        let result = bench.bench(&format!("ycsb run {workload} {common}"));
        assert_eq!(result.throughput.operations, 400, "workload {workload}");
        assert!(result.errors.is_empty(), "workload {workload}: {:?}", result.errors);
        let integrity = result.verification.integrity.clone().expect("integrity was checked");
        assert_eq!((integrity.unexpected_state, integrity.error), (0, 0), "workload {workload}");
        if workload == "f" {
            let whole = operation(&result, "READ-MODIFY-WRITE");
            assert_eq!(whole.ok, operation(&result, "UPDATE").ok);
            assert!(whole.service.mean_us > operation(&result, "UPDATE").service.mean_us);
        }
    }
}

#[test]
fn lost_and_damaged_rows_are_found() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 50 -p dataintegrity=true");
    {
        let mut store = bench.store.lock().expect("store");
        let rows = store.rows("ycsb", "usertable").expect("rows");
        let keys: Vec<String> = rows.keys().cloned().collect();
        rows.get_mut(&keys[10]).expect("a row")["field3"] = serde_json::json!("x".repeat(100));
        rows.remove(&keys[20]);
    }
    let run = "ycsb run c --operations 2000 --connections 4 -p requestdistribution=uniform";
    let (code, result) = bench.try_bench(&format!("{run} -p dataintegrity=true")).expect("a result");
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
    let integrity = result.verification.integrity.expect("integrity was checked");
    assert!(integrity.unexpected_state > 10 && integrity.error > 10);
    let kinds: Vec<&str> = result.errors.iter().map(|e| e.kind.as_str()).collect();
    assert!(kinds.contains(&"WRONG_ANSWER") && kinds.contains(&"NOT_FOUND"), "{kinds:?}");
    assert!(result.alarms.iter().any(|a| a.kind == "wrong-answers"));
}

#[test]
fn a_workload_inserts_after_the_existing_records_or_fails_with_a_reason() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 200");
    let first = bench.bench("ycsb run d --operations 400 --connections 4");
    let inserted = operation(&first, "INSERT").ok;
    assert!(inserted > 0);
    let has = format!("recordcount is 200, but ycsb.usertable has {} records", 200 + inserted);
    bench.fails("ycsb run e --operations 400 -p recordcount=200", &has);
    bench.bench("ycsb run c --operations 100 --connections 2 -p recordcount=200");
    assert!(bench.bench("ycsb run e --operations 400 --connections 4").errors.is_empty());
    {
        // As after a run that was killed before it could record its inserts.
        let mut store = bench.store.lock().expect("store");
        store.rows("ycsb", "usertable_loaded").expect("rows").retain(|id, _| id == "0-200");
    }
    bench.fails("ycsb run e --operations 400", "is in ycsb.usertable already");
    bench.bench("ycsb load --records 200 --drop");
    bench.bench("ycsb run e --operations 400 --connections 4");
}

#[test]
fn errors_name_the_remedy() {
    let bench = TestBench::new();
    bench.fails("ycsb run a", "run `rekindle bench ycsb load` first");
    bench.fails("analytic", "run `rekindle bench ycsb load` first");
    bench.bench("ycsb load --records 100");
    bench.fails("ycsb load --records 100", "--drop");
    bench.fails("ycsb run a --records 200", "recordcount is 200");
    bench.fails("ycsb run a -p fieldalphabet=ycsb014", "fieldalphabet");
    bench.fails("ycsb run nonsense.properties", "neither a workload");
    bench.fails("ycsb run a -p requestdistribution=zipf", "uniform, zipfian");
    bench.bench("ycsb load --records 150 -p insertstart=100");
    let both = bench.bench("ycsb run c --operations 100 --connections 2");
    assert_eq!(both.settings["recordcount"], 150);
    bench.bench("ycsb load --records 30 --drop");
}

#[test]
fn blocks_are_inserted_fresh_generated_or_constant() {
    let bench = TestBench::new();
    let fresh = bench.bench("blocks --units 3 --tx 5 --operations 20 --schema 0.9");
    let count = |bench: &TestBench| {
        bench.store.lock().expect("store").rows("bigchain", "bigchain").map(|rows| rows.len())
    };
    assert_eq!(count(&bench), Some(20));
    let units: Vec<(&str, u64)> = fresh.throughput.units.iter().map(|u| (u.name.as_str(), u.total)).collect();
    assert_eq!(units[..2], [("blocks", 20), ("transactions", 100)]);
    assert!(units[2].1 > 20 * 5 * 600);
    assert_eq!(fresh.published, None);
    assert!(fresh.notes[0].contains("schema 0.9 instead of 0.0.1"), "{:?}", fresh.notes);
    let like = bench.bench("blocks --units 1 --operations 2 --table like");
    assert_eq!(like.published.map(|p| p.report), Some("bigchaindb-0.0.1".to_owned()));
    bench.bench("blocks --units 2 --tx 5 --operations 10 --ids generated");
    assert_eq!(count(&bench), Some(30));
    let constant = bench.bench("blocks --units 2 --tx 5 --operations 10 --ids constant");
    assert_eq!(count(&bench), Some(31));
    assert!(constant.notes[0].starts_with("9 inserts"), "{:?}", constant.notes);
}

#[test]
fn nonsense_is_refused_before_anything_is_measured() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 100");
    for flag in ["--seconds", "--operations", "--connections", "--pipeline", "--target"] {
        bench.fails(&format!("ycsb run c {flag} 0"), "0");
    }
    bench.fails("blocks --units 0", "at least 1");
    bench.fails("blocks --tx 0", "at least 1");
    bench.fails("blocks --block-bytes 0", "at least 1");
    bench.fails("ycsb load --batch 0", "at least 1");
    bench.fails("ycsb load -p batch.size=0 --drop", "at least 1");
    bench.fails("ycsb run c -p threadcount=0", "at least 1");
    bench.fails("analytic --runs 0", "at least 1");
    bench.fails("ycsb run c --server-pid 4294967295", "no such process");
    bench.fails("ycsb run", "no workload named");
}

/// Runs a command that starts nodes; FOLDER is a folder that does not exist yet. Asserts that it fails with this text
/// and writes nothing.
#[track_caller]
fn refuses_nodes(arguments: &str, with: &str) {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("out");
    let words = arguments.replace("FOLDER", &folder.to_string_lossy());
    let program = Program::try_parse_from(words.split_whitespace()).expect("flags that exist");
    let why = format!("{:#}", run(program.command).map(|_| ()).expect_err("it is refused"));
    assert!(why.contains(with), "{why}");
    assert!(!folder.exists(), "there is something in {}", folder.display());
}

#[test]
fn nodes_that_the_machine_cannot_have_are_refused_before_one_starts() {
    // A program that fails if it is started.
    let sweep = "bench sweep --target-binary /bin/false --quiet -o FOLDER";
    refuses_nodes(&format!("{sweep} --nodes 1,2 --core-share 99"), "--core-share 99: 2 nodes would have 198");
    refuses_nodes(&format!("{sweep} --nodes 1000 --no-quota --cache-size 4000000"), "--cache-size");
    refuses_nodes(&format!("{sweep} --nodes 1 --port-offset 60000"), "--port-offset 60000");
    refuses_nodes("bench sweep --target-binary /nope --nodes 1 -o FOLDER", "--target-binary /nope");
    refuses_nodes("bench units --target-binary /nope -o FOLDER", "--target-binary /nope");
    refuses_nodes("bench units --core-share 99 -o FOLDER", "4 nodes would have 396");
    refuses_nodes("bench units -o /dev/null/FOLDER", "--output /dev/null//");
    for factor in ["3", "32", "64"] {
        let why = Program::try_parse_from(["bench", "units", "--factor", factor]).map(|_| ());
        assert!(why.expect_err("it leaves no halves").to_string().contains("by 1, 2, 4, 8 or 16"));
    }
    refuses_nodes("bench idle --target-binary /nope --folder FOLDER", "--target-binary /nope");
    refuses_nodes("bench idle --nodes 2000 --folder FOLDER", "at most 1000");
}

#[test]
fn nodes_that_are_not_limited_have_no_share() {
    for command in ["idle", "hop"] {
        for flags in [&["--core-share", "0.5"][..], &["--no-quota"]] {
            let line = [&["bench", command], flags].concat();
            let why =
                Program::try_parse_from(line).map(|_| ()).expect_err("there is no such flag").to_string();
            assert!(why.contains("unexpected argument '--"), "{why}");
        }
    }
}

#[test]
fn times_below_nothing_are_refused_before_a_node_starts() {
    for words in
        ["bench sweep --warmup=-5", "bench idle --settle=-1", "bench ycsb run c --warmup=-1 --drain=-1"]
    {
        let why =
            Program::try_parse_from(words.split(' ')).map(|_| ()).expect_err("it is refused").to_string();
        assert!(why.contains("at least 0"), "{why}");
    }
}

#[test]
fn a_broken_result_is_skipped_and_named() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 100");
    let folder = bench.folder.path();
    std::fs::write(folder.join("broken.json"), "{").expect("written");
    let format = r#"{"format": "rekindle-bench-result", "format_version": 1}"#;
    std::fs::write(folder.join("half.json"), format).expect("written");
    std::fs::write(folder.join("other.json"), r#"{"x": 1}"#).expect("written");
    let found = rekindle_bench::report::collect(folder).expect("one result");
    assert_eq!((found.runs.len(), found.skipped.len()), (1, 3));
    assert!(found.skipped[0].to_string().contains("broken.json is not JSON"));
    assert!(found.skipped[2].to_string().contains("other.json is JSON but not a result"));
    std::fs::remove_file(folder.join("result.json")).expect("removed");
    assert!(rekindle_bench::report::collect(folder).is_err());
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let bench = TestBench::new();
    bench.bench("ycsb load --records 100");
    let flags = "--target 500 --seconds 1 --warmup 0.3 --arrivals poisson --connections 4";
    let result = bench.bench(&format!("ycsb run c {flags}"));
    assert_eq!(result.pacing.kind, "open");
    let arrivals = result.pacing.arrivals_total.expect("arrivals");
    assert!((400..600).contains(&arrivals), "{arrivals}");
    assert!(operation(&result, "READ").intended.is_some());
    assert!(result.series.points.iter().any(|p| p.second == -1));
}

#[test]
fn shapes_are_asked_over_connections_that_never_insert_the_same_row() {
    let bench = TestBench::new();
    // The cost on this toy, and thus the exit code, does not matter.
    let arguments = "reql --rows 300 --times 640 --scans 2 --connections 8 --warmup 0";
    let (_, result) = bench.try_bench(arguments).expect("a result");
    assert_eq!((result.pacing.connections, result.operations.len()), (8, 7));
    for operation in &result.operations {
        let is_scan = operation.name.contains("group") || operation.name.contains("row(");
        assert_eq!(operation.ok, if is_scan { 2 } else { 640 }, "{}", operation.name);
    }
    // One response in 64 of a thread is parsed, and the first of each thread.
    let judged = result.verification.parsed + result.verification.checked_by_type;
    assert_eq!((judged, result.verification.wrong), (4 * 640 + 3 * 2, 0));
    assert!(result.verification.parsed >= 4 * 10 + 3);
    assert!(result.notes.iter().any(|note| note.contains("use 8 connections")), "{:?}", result.notes);
    assert!(result.notes.iter().any(|note| note.contains("is not known")), "{:?}", result.notes);
    let inserted = bench.store.lock().expect("store").rows("bench_reql", "written").map(|rows| rows.len());
    // The trial and the measured run.
    assert_eq!(inserted, Some(2 * 640));
}

#[test]
fn a_shape_with_a_wrong_answer_has_no_cost() {
    let bench = TestBench::new();
    bench.bench("reql --rows 30 --times 1 --warmup 0 --only get_all");
    for row in bench.store.lock().expect("store").rows("bench_reql", "rows").expect("rows").values_mut() {
        row["id"] = serde_json::Value::Null;
    }
    bench.fails("reql --rows 30 --times 1 --warmup 0 --only get_all", "WRONG_ANSWER: expected Rows(20)");
}
