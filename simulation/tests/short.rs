//! A short form of the simulation; `cargo xtask sim` is the long one.

use std::time::Duration;

use rekindle_simulation::seeds::KEPT;
use rekindle_simulation::{RunOptions, run};

#[test]
fn a_seed_is_deterministic() {
    let options = RunOptions { fault_period: Duration::from_secs(5), ..RunOptions::default() };
    for seed in 0..3 {
        assert_eq!(run(seed, options), run(seed, options), "seed {seed}");
    }
}

#[test]
fn larger_clusters_keep_the_invariants() {
    for nodes in [9, 16] {
        if let Err(failure) = run(1, RunOptions { nodes, ..RunOptions::default() }) {
            panic!("seed 1 with {nodes} machines fails: {}", failure.violation.what);
        }
    }
}

#[test]
fn seeds_that_found_faults_pass() {
    for kept in KEPT {
        if let Err(failure) = run(kept.seed, kept.options()) {
            panic!("seed {} ({}) fails again: {}", kept.seed, kept.found, failure.violation.what);
        }
    }
}

#[test]
fn copies_are_interrupted_and_continue() {
    let interrupted = |seed: u64| match run(seed, RunOptions::default()) {
        Ok(summary) => summary.copies_interrupted,
        Err(failure) => panic!("seed {seed} fails: {}", failure.violation.what),
    };
    // Runs of 500 seeds interrupt 15 to 60.
    let count: u64 = (400..600).map(interrupted).sum();
    assert!(count >= 2, "{count} copies were interrupted in 200 seeds");
}

/// Full seeds that failed once.
#[test]
fn full_seeds_that_found_faults_pass() {
    let seeds = [
        (
            365,
            "the only up-to-date voter was removed, and the remaining one needed a copy that its own vote had to commit",
        ),
        (
            1894,
            "a leader unaware of its removal could not reach the replica that knew, and neither led again",
        ),
        (2571, "founders without rows counted as ready, and a sealed group gives no copies"),
        (
            5494,
            "a follower that lacked entries trimmed from its leader's log counted as ready, and founded a shard alone",
        ),
        (7969, "a group that became one replica waited for the vote of the one that was discarded"),
        (8947, "the same, with a power loss as soon as the catalog had the change"),
        (8297, "a swap that had timed out took effect between the two reads of a pair"),
        (10_000_914, "a full disk kept a group from being opened again, which was retried without a pause"),
        (9611, "writes that a later leader overwrote never got a response, as the group was quiesced"),
    ];
    for (seed, found) in seeds {
        if let Err(failure) = run(seed, RunOptions::default()) {
            panic!("seed {seed} ({found}) fails again: {}", failure.violation.what);
        }
    }
}
