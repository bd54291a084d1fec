//! Sweeps of running clusters, against a toy server: which data they do not touch, and which results they accept.

mod toy;

use std::process::ExitCode;

use clap::Parser;
use rekindle_bench::cli::{BenchArgs, run};
use rekindle_bench::result::RunResult;
use rekindle_bench::sweep::document::SweepResult;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

#[derive(Parser)]
struct Program {
    #[command(subcommand)]
    command: BenchArgs,
}

/// A cluster of one server, and a folder for results that does not exist yet.
struct TestCluster {
    port: u16,
    store: toy::Shared,
    folder: TempDir,
}

impl TestCluster {
    fn new() -> TestCluster {
        let (port, store) = toy::start();
        TestCluster { port, store, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Sweeps over the cluster with these flags; returns whether everything succeeded.
    fn sweep(&self, flags: &str) -> anyhow::Result<bool> {
        let (cluster, out) = (format!("127.0.0.1:{}", self.port), self.folder.path().join("out"));
        let mut all = vec!["bench", "sweep", "--cluster", &cluster, "--quiet", "--output"];
        all.push(out.to_str().expect("a path of letters"));
        all.extend("--warmup 0 --runs 2 --connections 4".split(' '));
        let given: Vec<&str> = flags.split_whitespace().collect();
        let unless_given = [["--records", "60"], ["--seconds", "0.4"]].into_iter();
        all.extend(unless_given.filter(|[flag, _]| !given.contains(flag)).flatten());
        all.extend(given);
        let code = run(Program::try_parse_from(all)?.command)?;
        Ok(format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS))
    }

    #[track_caller]
    fn refuses(&self, flags: &str, with: &str) {
        let why = format!("{:#}", self.sweep(flags).expect_err("it is refused"));
        assert!(why.contains(with), "{why}");
        assert!(!self.folder.path().join("out").exists(), "something was written");
    }

    /// The documents of `format` in the results.
    fn documents<T: DeserializeOwned>(&self, format: &str) -> Vec<T> {
        let Ok(entries) = std::fs::read_dir(self.folder.path().join("out")) else { return Vec::new() };
        let texts = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        let all = texts.filter_map(|text| serde_json::from_str::<Value>(&text).ok());
        let wanted = all.filter(|document| document["format"] == format);
        wanted.map(|document| serde_json::from_value(document).expect("a whole document")).collect()
    }

    fn sweeps(&self) -> Vec<SweepResult> {
        self.documents("rekindle-bench-sweep")
    }
}

#[test]
fn a_table_that_was_there_before_is_not_replaced_unasked() {
    let place = TestCluster::new();
    assert!(place.sweep("--workloads c-sync --rounds 2").expect("swept"));
    let series = place.sweeps().remove(0).series.remove(0);
    assert_eq!(series.points[0].rounds.len(), 2, "the table of its first round is its own");

    let place = TestCluster { folder: tempfile::tempdir().expect("a folder"), ..place };
    let rows = |place: &TestCluster| {
        place
            .store
            .lock()
            .expect("store")
            .rows("ycsb", "usertable")
            .map(|rows| rows.keys().cloned().collect())
    };
    let before: Option<Vec<String>> = rows(&place);
    place.refuses("--records 30", "the table ycsb.usertable exists already");
    assert_eq!(rows(&place), before);
    assert!(place.sweep("--records 30 --workloads c-sync --drop").expect("swept"));
    assert_eq!(rows(&place).map(|rows| rows.len()), Some(30));
}

#[test]
fn a_sweep_of_a_cluster_with_a_password_needs_the_password() {
    let place = TestCluster::new();
    place.store.lock().expect("store").password = "se cret".to_owned();
    place.refuses("", "could not log in at 127.0.0.1:");
    let words =
        "bench sweep --quiet --user somebody --records 60 --seconds 0.4 --warmup 0 --runs 2 --connections 4";
    let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let out = place.folder.path().join("out").display().to_string();
    words.extend(["--password".to_owned(), "se cret".to_owned(), "--output".to_owned(), out]);
    words.extend(["--cluster".to_owned(), format!("127.0.0.1:{}", place.port)]);
    run(Program::try_parse_from(words).expect("flags that exist").command).expect("swept");
    let sweep = place.sweeps().remove(0);
    assert_eq!((sweep.series.len(), sweep.notes.len()), (4, 0), "{:?}", sweep.notes);
    assert!(!serde_json::to_string(&sweep).expect("JSON").contains("se cret"));
    assert_eq!(sweep.settings["workloads"], serde_json::json!(["c-sync", "c-outdated", "analytic", "a"]));
    assert_eq!(sweep.settings["nodes"], serde_json::json!([1]));
}

#[test]
fn addresses_are_those_of_all_servers_of_a_cluster() {
    let (place, other) = (TestCluster::new(), TestCluster::new());
    let same = format!("127.0.0.1:{0},localhost:{0}", place.port);
    place.refuses(&format!("--cluster {same}"), "are one server");
    let insert = |id: &str, place: &TestCluster| {
        let mut store = place.store.lock().expect("store");
        store.rows("rethinkdb", "server_status").expect("a table").insert(id.to_owned(), json!({"id": id}));
    };
    insert("1-1", &place);
    place.refuses("", "the cluster has 2 servers, not 1");
    other.store.lock().expect("store").rows("rethinkdb", "server_status").expect("a table").clear();
    insert("2-2", &other);
    other.refuses("", "is a proxy, or not in the cluster");
    assert_eq!(place.store.lock().expect("store").rows("ycsb", "usertable").map(|rows| rows.len()), None);
}

#[test]
fn a_server_that_goes_leaves_no_figure() {
    let place = TestCluster::new();
    place.store.lock().expect("store").reads_left = Some(100);
    // The query reads no single rows, so it is measured before the server fails.
    assert!(!place.sweep("--seconds 1 --workloads analytic,a").expect("an end"));
    let sweep = place.sweeps().remove(0);
    let workloads: Vec<&str> = sweep.series.iter().map(|one| one.workload.as_str()).collect();
    assert_eq!(workloads, ["analytic"]);
    let said = sweep.notes.join("\n");
    assert!(said.starts_with("1 node: YCSB A") && said.contains(&place.port.to_string()), "{said}");
    let runs: Vec<RunResult> = place.documents("rekindle-bench-result");
    assert!(
        runs.iter().any(|run| run.alarms.iter().any(|alarm| alarm.kind == "cut-short")),
        "it is told why"
    );
}

#[test]
fn a_sweep_without_a_figure_leaves_no_document() {
    let place = TestCluster::new();
    place.store.lock().expect("store").reads_left = Some(10);
    assert!(!place.sweep("--seconds 20 --workloads c-sync").expect("an end"));
    assert_eq!(place.sweeps().len(), 0);
    assert!(!place.folder.path().join("out/report.html").exists());
}

#[test]
fn clusters_that_do_not_answer_are_named_before_anything_is_written() {
    let place = TestCluster::new();
    place.refuses("--cluster 127.0.0.1:1,127.0.0.1:2", "no server answers at 127.0.0.1:1");
    place.refuses("--http 127.0.0.1:1", "--http: no metrics page is served at http://127.0.0.1:1/metrics");
    assert_eq!(place.store.lock().expect("store").rows("ycsb", "usertable").map(|rows| rows.len()), None);
}
