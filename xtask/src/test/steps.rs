//! The steps of `make test`, in the order in which a fault is cheapest to see.

use std::env;
use std::path::PathBuf;

use torture::harness::checkout::root;

/// One group of tests.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// A command that is started while earlier steps run, such as a build. This step's first command is the same: it waits
    /// for that run and finds its work done.
    pub(super) early: Option<Vec<String>>,
    /// Commands run from the repository's root, one after another.
    pub(super) commands: Vec<Vec<String>>,
    /// Why the step cannot run here, if it cannot.
    pub(super) skip: Option<String>,
}

pub(super) fn all() -> Vec<Step> {
    vec![
        step(
            "style",
            "layout, what tidy checks, and clippy",
            [
                cargo("fmt --all --check"),
                xtask("tidy"),
                cargo("clippy --release --workspace --all-targets --quiet -- --deny warnings"),
            ],
        ),
        // The slowest tests wait for clusters: run more at once than there are processors.
        step(
            "unit",
            "tests of every crate",
            [
                // A library to preload, which a test of its package does not build.
                cargo("build --release --quiet --package rekindle-powercut-recorder"),
                cargo("test --release --workspace --no-fail-fast --quiet -- --test-threads 5"),
            ],
        ),
        step("program", "the program itself builds", [cargo("build --release --package rekindle")]),
        drivers(),
        console(),
        conformance(),
        step(
            "differential",
            "a minute of random queries against a plain evaluator, in memory; then the program on its disk",
            [
                xtask("differential --seed 1 --queries 1000000 --seconds 60"),
                cargo("build --release --package rekindle"),
                xtask("differential --program --seed 100001 --queries 1000000 --seconds 20"),
            ],
        ),
        step(
            "fuzz",
            "half a minute of each fuzz target, as many at once as there are processors",
            // A build of the package alone would compile every crate again, with other features.
            [
                cargo("build --release --quiet --workspace --bin rekindle-fuzz"),
                beside("rekindle-fuzz", "all --seconds 30"),
            ],
        ),
        step(
            "crash",
            "kill -9 and power cuts of one node, also at failpoints, and of a leader among three; lost writes are detected",
            [
                cargo("build --release --package rekindle --features ack-before-append"),
                xtask("crash --cycles 300 --soft-cycles 0 --expect-loss"),
                cargo("build --release --package rekindle --features failpoints"),
                xtask("crash --cycles 40 --soft-cycles 20 --failpoints"),
                cargo("build --release --quiet --package rekindle-powercut-recorder"),
                xtask("crash --cycles 30 --soft-cycles 10 --failpoints --power-cuts"),
                xtask("crash --cycles 40 --soft-cycles 0 --power-cuts --ignore-syncs log --expect-loss"),
                xtask(
                    "crash --cycles 40 --soft-cycles 0 --power-cuts --ignore-syncs directories --expect-loss",
                ),
                cargo("build --release --package rekindle"),
                xtask("crash --cycles 20 --soft-cycles 10"),
                xtask("failover --kills 6"),
            ],
        ),
        feeds(),
        linearizable(),
        simulation(),
        step(
            "index-build",
            "indexes built under writes and kill -9 equal their functions over the rows",
            // The slowdown of writes is only printed: here the machine does other work, too.
            [xtask("index-build --rows 100000 --kills 5 --kill-after 400 --pairs 1 --ratio 1000")],
        ),
    ]
}

fn drivers() -> Step {
    // Most of its time is linking, on one thread.
    let build = vec![root().join("tools/build").display().to_string()];
    let tests = program_in_cache("venv/bin/python", "tests/drivers/python/run.py");
    let what = "the official Python and JavaScript drivers against the program as it is handed out";
    Step { early: Some(build.clone()), ..step("drivers", what, [build, tests, node_tests()]) }
}

/// The console in a browser, against real nodes; and its bundled files, made anew.
fn console() -> Step {
    let tests = ["node", "--test", "tests/console/"].map(str::to_owned).into();
    let skip = which("chromium").is_none().then(|| "no chromium".to_owned());
    let commands = [cargo("build --release --package rekindle"), tests];
    Step { skip, ..step("console", "the console's pages, logins and refusals in a browser", commands) }
}

/// A slice of the test of completeness, and short runs that must detect mutants of elements.
fn feeds() -> Step {
    let short = "feeds --changes 8000 --feeds 30 --kills 0 --restarts 0 --reshards 1 --rests 3 --first-rows-changes 0";
    let commands = [
        cargo("build --release --package rekindle"),
        xtask("feeds --seconds 80 --feeds 100 --kills 4 --restarts 4 --reshards 5 --rests 50"),
        xtask(&format!("{short} --mutant drop")),
        xtask(&format!("{short} --mutant repeat")),
    ];
    step("feeds", "feeds of all kinds have every change once through kills, restarts and reshards", commands)
}

/// Short forms: each nemesis for a few seconds, other modes of writes, detection of stale reads where these are allowed,
/// and Jepsen's test of a shard that moves during partitions.
fn linearizable() -> Step {
    let skip = which("go").is_none().then(|| "no go, which the checker of histories needs".to_owned());
    let commands = [
        ["go", "-C", "tests/histories", "test", "./..."].map(str::to_owned).to_vec(),
        xtask("histories --seconds 6 --operations 60"),
        xtask("histories --seconds 5 --operations 40 --nemesis kill --durability soft --pinned"),
        xtask("histories --seconds 5 --operations 40 --nemesis calm --read-mode single --pinned"),
        xtask("histories --seconds 5 --operations 40 --nemesis stop --write-acks single --read-mode single"),
        xtask(
            "histories --seconds 12 --operations 60 --nemesis stop --read-mode outdated --expect-violation --runs 6",
        ),
        xtask("histories --seconds 28 --nemesis replay --nodes 5 --seed 7 --if-allowed"),
    ];
    Step { skip, ..step("linearizable", "histories of clients under faults are linearizable", commands) }
}

fn simulation() -> Step {
    let commands = [
        xtask("sim --seeds 150"),
        // Few: a seed with sixteen machines takes more than half a second.
        xtask("sim --seeds 40 --nodes 9"),
        xtask("sim --seeds 12 --nodes 16"),
        xtask("sim --mutant ack-before-fsync --mutant skip-read-index"),
    ];
    step("simulation", "whole clusters by seed keep the invariants; mutants are detected", commands)
}

fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

fn conformance() -> Step {
    let found = crate::conformance::folder();
    let skip = found.is_none().then(|| "no conformance cases beside the checkout".to_owned());
    Step { skip, ..step("conformance", "ReQL cases, no fewer than before", [xtask("conformance")]) }
}

fn program_in_cache(program: &str, argument: &str) -> Vec<String> {
    vec![torture::harness::checkout::cache().join(program).display().to_string(), argument.to_owned()]
}

fn node_tests() -> Vec<String> {
    ["node", "--test", "tests/drivers/javascript/"].map(str::to_owned).into()
}

fn step<const N: usize>(name: &'static str, what: &'static str, commands: [Vec<String>; N]) -> Step {
    Step { name, what, early: None, commands: commands.into(), skip: None }
}

fn cargo(words: &str) -> Vec<String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    std::iter::once(cargo).chain(words.split(' ').map(str::to_owned)).collect()
}

fn xtask(words: &str) -> Vec<String> {
    let program = env::current_exe().map_or_else(|_| "xtask".to_owned(), |path| path.display().to_string());
    std::iter::once(program).chain(words.split(' ').map(str::to_owned)).collect()
}

/// A program of the workspace, which cargo puts beside this one.
fn beside(program: &str, words: &str) -> Vec<String> {
    let path = env::current_exe().map(|own| own.with_file_name(program).display().to_string());
    let program = path.unwrap_or_else(|_| program.to_owned());
    std::iter::once(program).chain(words.split(' ').map(str::to_owned)).collect()
}
