//! A benchmark stops its nodes, whether it succeeds, fails or is interrupted. Its processes are identified by the path of its folder in their
//! command lines.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "../../../tests/support/executable.rs"]
mod executable;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rekindle");
/// Ports of a node before `--port-offset`: driver, cluster, HTTP.
const PORTS: [u16; 3] = [28015, 29015, 8080];
/// Upper bound for steps that take seconds on an unloaded machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_TIMEOUT, "not in {} s: {what}", WAIT_TIMEOUT.as_secs());
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A benchmark with two nodes, in its own process.
struct Bench {
    child: Child,
    folder: TempDir,
    port_offset: u16,
}

impl Bench {
    /// Starts one with `words`, in which FOLDER stands for its folder, through the command `before`. The nodes are
    /// children of a script that keeps running, as when they are started by another program.
    fn start(before: &[&str], words: &str, port_offset: u16) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let target = wrapper(folder.path());
        let errors = fs::File::create(folder.path().join("errors")).expect("a file");
        let line = [before, &[PROGRAM, "bench"]].concat();
        let child = Command::new(line[0])
            .args(&line[1..])
            .args(words.replace("FOLDER", &folder.path().display().to_string()).split_whitespace())
            .args(["--port-offset", &port_offset.to_string(), "--cache-size", "100", "--target-binary"])
            .arg(target)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .expect("the program starts");
        Bench { child, folder, port_offset }
    }

    /// All output so far.
    fn printed(&self) -> String {
        fs::read_to_string(self.folder.path().join("errors")).expect("the output")
    }

    fn wait_until_printed(&self, words: &str) {
        wait_until(words, || self.printed().contains(words));
    }

    fn wait_until_node_listens(&self, number: u16) {
        let port = PORTS[0] + self.port_offset + number;
        wait_until(&format!("node {number} listens"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn send(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill runs");
        assert!(sent.success(), "SIG{signal} to {pid}");
    }

    fn wait_for_end(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the bench ends", || {
            status = self.child.try_wait().expect("its state");
            status.is_some()
        });
        status.expect("it has ended")
    }

    fn has_nothing_left_running(&self) {
        // The kernel takes a moment to remove orphaned processes.
        let all = || processes_that_name(self.folder.path());
        wait_until(&format!("all processes end: {:?}", all()), || all().is_empty());
        let ports = || (0..2).flat_map(|number| PORTS.map(|port| port + self.port_offset + number));
        wait_until("all ports are free", || {
            ports().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        });
    }

    fn has_nothing_left(&self) {
        self.has_nothing_left_running();
        self.has_no_control_groups();
        assert!(!self.folder.path().join("nodes").exists());
    }

    fn has_no_control_groups(&self) {
        let groups = control_groups(Path::new("/sys/fs/cgroup"), self.child.id());
        assert!(groups.is_empty(), "{groups:?}");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let left = processes_that_name(self.folder.path());
        let _ = Command::new("kill").args(["-s", "KILL"]).args(left).stderr(Stdio::null()).status();
    }
}

/// A script that takes RethinkDB's flags and runs this program as its child.
fn wrapper(folder: &Path) -> PathBuf {
    let path = folder.join("target.sh");
    executable::write_executable(&path, &format!("{PROGRAM} \"$@\"\nexit $?"));
    path
}

/// The processes with `folder` in their command line. An ended process has no command line.
fn processes_that_name(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a path of letters");
    let names =
        fs::read_dir("/proc").expect("processes").flatten().filter_map(|e| e.file_name().into_string().ok());
    let lines = names.filter_map(|pid| Some((fs::read(format!("/proc/{pid}/cmdline")).ok()?, pid)));
    lines.filter(|(line, _)| String::from_utf8_lossy(line).contains(folder)).map(|(_, pid)| pid).collect()
}

/// The control groups of the benchmark with this process id, anywhere below `folder`.
fn control_groups(folder: &Path, pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let ours = format!("rekindle-bench-{pid}");
    let found = |entry: fs::DirEntry| match entry.file_name().to_str() == Some(&ours) {
        true => vec![entry.path()],
        false => control_groups(&entry.path(), pid),
    };
    folders.flat_map(found).collect()
}

/// A sweep that measures for ten minutes.
fn sweep(port_offset: u16) -> Bench {
    let words = "sweep --nodes 2 --workloads c-sync --records 400 --seconds 600 --warmup 0 --connections 4 \
                 --core-share 0.2 -o FOLDER";
    Bench::start(&[], words, port_offset)
}

#[test]
fn a_sweep_that_is_terminated_leaves_nothing_behind() {
    let mut bench = sweep(2410);
    bench.wait_until_printed("of 600 s");
    assert!(processes_that_name(bench.folder.path()).len() > 4);
    bench.send("TERM");
    assert_eq!(bench.wait_for_end().code(), Some(128 + 15), "{}", bench.printed());
    bench.has_nothing_left();
    let said = bench.printed();
    let after: Vec<&str> = said.lines().skip_while(|line| !line.contains("of 600 s")).collect();
    assert!(after.last().is_some_and(|line| line.starts_with("bench: ended by SIGTERM")), "{said}");
    assert_eq!(after.iter().filter(|line| !line.contains("of 600 s")).count(), 1, "{said}");
    let results = fs::read_dir(bench.folder.path()).expect("a folder").flatten();
    let results = results.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "json"));
    assert_eq!(results.count(), 1, "the load was measured, nothing else");
}

#[test]
fn a_sweep_that_is_killed_leaves_nothing_running() {
    let mut bench = sweep(2420);
    bench.wait_until_printed("of 600 s");
    bench.send("KILL");
    assert_eq!(bench.wait_for_end().code(), None);
    bench.has_nothing_left_running();
    // The next one must not measure on the data of the killed nodes, and removes their groups.
    let folder = bench.folder.path().to_str().expect("a path of letters");
    let words = ["bench", "sweep", "--nodes", "1", "--port-offset", "2440", "-o", folder];
    let next = Command::new(PROGRAM).args(words).output().expect("the program starts");
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(!next.status.success() && said.contains("the folder is not empty"), "{said}");
    bench.has_no_control_groups();
}

#[test]
fn a_bench_that_starts_its_nodes_ends_by_signals_that_are_not_ignored() {
    let deaf = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let words =
        "idle --nodes 2 --tables 1 --shards 1 --replicas 1 --settle 600 --seconds 1 --folder FOLDER/nodes";
    let mut bench = Bench::start(&deaf, words, 2430);
    bench.wait_until_node_listens(0);
    bench.send("HUP");
    bench.send("TERM");
    assert_eq!(bench.wait_for_end().code(), Some(128 + 15), "{}", bench.printed());
    bench.has_nothing_left();
}
