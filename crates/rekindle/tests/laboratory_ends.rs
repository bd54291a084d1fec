//! However a laboratory ends, its nodes end with it: what it started is found by its folder, in the
//! command lines of all processes.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[path = "../../../tests/support/executable.rs"]
mod executable;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rekindle");
/// Ports of a node before `--port-offset`: drivers', nodes', HTTP.
const PORTS: [u16; 3] = [28015, 29015, 8080];
/// For what takes seconds on a machine that has time.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not in {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(PAUSE);
    }
}

/// A laboratory with two nodes, in a process of its own.
struct Laboratory {
    child: Child,
    folder: TempDir,
    port_offset: u16,
}

impl Laboratory {
    /// Starts one with `words`, in which FOLDER is its folder, through `before` if that is more than its path. The
    /// nodes are children of a script that stays, as somebody has them who measures under another program.
    fn start(before: &[&str], words: &str, port_offset: u16) -> Laboratory {
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
        Laboratory { child, folder, port_offset }
    }

    /// Every line that was said so far.
    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("errors")).expect("what was said")
    }

    fn wait_until_said(&self, words: &str) {
        wait_until(words, || self.said().contains(words));
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
        wait_until("the laboratory ends", || {
            status = self.child.try_wait().expect("its state");
            status.is_some()
        });
        status.expect("it has ended")
    }

    fn has_nothing_left_running(&self) {
        // The kernel takes a moment for those that nobody waits for.
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

impl Drop for Laboratory {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let left = processes_that_name(self.folder.path());
        let _ = Command::new("kill").args(["-s", "KILL"]).args(left).stderr(Stdio::null()).status();
    }
}

/// A program that takes RethinkDB's flags and has ours as its child.
fn wrapper(folder: &Path) -> PathBuf {
    let path = folder.join("target.sh");
    executable::write_executable(&path, &format!("{PROGRAM} \"$@\"\nexit $?"));
    path
}

/// The processes whose command line has `folder` in it. One that has ended has no command line.
fn processes_that_name(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a path of letters");
    let names =
        fs::read_dir("/proc").expect("processes").flatten().filter_map(|e| e.file_name().into_string().ok());
    let lines = names.filter_map(|pid| Some((fs::read(format!("/proc/{pid}/cmdline")).ok()?, pid)));
    lines.filter(|(line, _)| String::from_utf8_lossy(line).contains(folder)).map(|(_, pid)| pid).collect()
}

/// The groups that the laboratory with this process id has anywhere below `folder`.
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
fn sweep(port_offset: u16) -> Laboratory {
    let words = "sweep --nodes 2 --workloads c-sync --records 400 --seconds 600 --warmup 0 --connections 4 \
                 --core-share 0.2 -o FOLDER";
    Laboratory::start(&[], words, port_offset)
}

#[test]
fn a_sweep_that_is_terminated_leaves_nothing_behind() {
    let mut laboratory = sweep(2410);
    laboratory.wait_until_said("of 600 s");
    assert!(processes_that_name(laboratory.folder.path()).len() > 4);
    laboratory.send("TERM");
    assert_eq!(laboratory.wait_for_end().code(), Some(128 + 15), "{}", laboratory.said());
    laboratory.has_nothing_left();
    let said = laboratory.said();
    let after: Vec<&str> = said.lines().skip_while(|line| !line.contains("of 600 s")).collect();
    assert!(after.last().is_some_and(|line| line.starts_with("bench: ended by SIGTERM")), "{said}");
    assert_eq!(after.iter().filter(|line| !line.contains("of 600 s")).count(), 1, "{said}");
    let results = fs::read_dir(laboratory.folder.path()).expect("a folder").flatten();
    let results = results.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "json"));
    assert_eq!(results.count(), 1, "the load was measured, nothing else");
}

#[test]
fn a_sweep_that_is_killed_leaves_nothing_running() {
    let mut laboratory = sweep(2420);
    laboratory.wait_until_said("of 600 s");
    laboratory.send("KILL");
    assert_eq!(laboratory.wait_for_end().code(), None);
    laboratory.has_nothing_left_running();
    // The next one measures nothing on the data of the nodes that were killed, and removes their groups.
    let folder = laboratory.folder.path().to_str().expect("a path of letters");
    let words = ["bench", "sweep", "--nodes", "1", "--port-offset", "2440", "-o", folder];
    let next = Command::new(PROGRAM).args(words).output().expect("the program starts");
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(!next.status.success() && said.contains("there is something in it already"), "{said}");
    laboratory.has_no_control_groups();
}

#[test]
fn a_laboratory_that_starts_its_nodes_ends_by_signals_that_are_not_ignored() {
    let deaf = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let words =
        "idle --nodes 2 --tables 1 --shards 1 --replicas 1 --settle 600 --seconds 1 --folder FOLDER/nodes";
    let mut laboratory = Laboratory::start(&deaf, words, 2430);
    laboratory.wait_until_node_listens(0);
    laboratory.send("HUP");
    laboratory.send("TERM");
    assert_eq!(laboratory.wait_for_end().code(), Some(128 + 15), "{}", laboratory.said());
    laboratory.has_nothing_left();
}
