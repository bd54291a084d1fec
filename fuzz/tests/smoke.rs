//! Every target passes its seeds, its committed inputs and a few thousand mutated ones.

use std::path::Path;
use std::time::Duration;

use rekindle_fuzz::corpus_cache::CorpusCache;
use rekindle_fuzz::run::{self, Plan};
use rekindle_fuzz::targets::{self, Outcome, Target};

#[test]
fn every_target_passes_a_short_run() {
    for target in targets::all() {
        let plan = Plan {
            target,
            seed: 1,
            time: Duration::from_secs(120),
            runs: 4_000,
            home: Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
            trace: None,
            cache: None,
        };
        let tally =
            run::run(plan).unwrap_or_else(|fault| panic!("{} fails on {:?}", target.name(), fault.file));
        assert!(tally.outcomes > 5, "{} sees only {} outcomes", target.name(), tally.outcomes);
    }
}

/// Fails on a five after a nine.
struct Fragile;

impl Target for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![b"1234567890".to_vec()]
    }

    fn dictionary(&self) -> &'static [&'static [u8]] {
        &[b"1", b"5", b"9"]
    }

    fn check(&self, input: &[u8]) -> Outcome {
        let nine = input.iter().position(|&byte| byte == b'9');
        let five = nine.and_then(|nine| input[nine..].iter().position(|&byte| byte == b'5'));
        assert!(five.is_none(), "a five after a nine");
        Outcome::of(nine)
    }
}

#[test]
fn a_fault_is_found_shortened_and_written() {
    let home = std::env::temp_dir().join(format!("rekindle-fuzz-{}", std::process::id()));
    let plan = Plan {
        target: &Fragile,
        seed: 3,
        time: Duration::from_secs(120),
        runs: 100_000,
        home: home.clone(),
        trace: None,
        cache: None,
    };
    let fault = run::run(plan).expect_err("five after nine comes soon");
    assert_eq!(fault.input, b"95");
    let file = fault.file.expect("written");
    assert_eq!(std::fs::read(&file).expect("readable"), b"95");
    assert!(!run::check_one(&Fragile, b"0905".to_vec()));
    assert!(run::check_one(&Fragile, b"0509".to_vec()));
    std::fs::remove_dir_all(home).expect("removable");
}

#[test]
fn a_run_begins_with_the_inputs_of_the_previous_one() {
    let home = tempfile::tempdir().expect("a folder");
    let cache = CorpusCache::of(home.path(), "row");
    let target = targets::by_name("row").expect("a target");
    let plan = |seed, runs| Plan {
        target,
        seed,
        time: Duration::from_secs(120),
        runs,
        home: Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        trace: None,
        cache: Some(cache.clone()),
    };
    let first = run::run(plan(1, 20_000)).expect("all inputs pass");
    let found = cache.read();
    assert_eq!(found.len(), first.outcomes, "one input for each outcome");
    // Too few inputs to find more than the stored ones.
    let second = run::run(plan(2, 1)).expect("all inputs pass");
    assert_eq!(second.outcomes, first.outcomes);
    assert_eq!(cache.read(), found);
}
