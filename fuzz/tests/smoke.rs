//! Every target bears its seeds, its committed inputs and a few thousand changed ones.

use std::path::Path;
use std::time::Duration;

use rekindle_fuzz::kept::Kept;
use rekindle_fuzz::run::{self, Plan};
use rekindle_fuzz::targets::{self, Outcome, Target};

#[test]
fn every_target_bears_a_short_run() {
    for target in targets::all() {
        let plan = Plan {
            target,
            seed: 1,
            time: Duration::from_secs(120),
            runs: 4_000,
            home: Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
            trace: None,
            kept: None,
        };
        let tally =
            run::run(plan).unwrap_or_else(|fault| panic!("{} fails on {:?}", target.name(), fault.file));
        assert!(tally.outcomes > 5, "{} sees only {} outcomes", target.name(), tally.outcomes);
    }
}

/// Cannot bear a five after a nine.
struct Fragile;

impl Target for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        vec![b"1234567890".to_vec()]
    }

    fn words(&self) -> &'static [&'static [u8]] {
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
fn a_fault_is_found_made_short_and_written() {
    let home = std::env::temp_dir().join(format!("rekindle-fuzz-{}", std::process::id()));
    let plan = Plan {
        target: &Fragile,
        seed: 3,
        time: Duration::from_secs(120),
        runs: 100_000,
        home: home.clone(),
        trace: None,
        kept: None,
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
fn what_one_run_found_the_next_begins_with() {
    let home = tempfile::tempdir().expect("a folder");
    let kept = Kept::of(home.path(), "row");
    let target = targets::by_name("row").expect("a target");
    let plan = |seed, runs| Plan {
        target,
        seed,
        time: Duration::from_secs(120),
        runs,
        home: Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        trace: None,
        kept: Some(kept.clone()),
    };
    let first = run::run(plan(1, 20_000)).expect("it bears them");
    let found = kept.read();
    assert_eq!(found.len(), first.outcomes, "one input for each outcome");
    // Too few inputs to find anything but what was kept.
    let second = run::run(plan(2, 1)).expect("it bears them");
    assert_eq!(second.outcomes, first.outcomes);
    assert_eq!(kept.read(), found);
}
