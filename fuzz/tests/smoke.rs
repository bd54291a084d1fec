//! Every target bears its seeds, its committed inputs and a few thousand changed ones.

use std::path::Path;
use std::time::Duration;

use rekindle_fuzz::run::{self, Plan};
use rekindle_fuzz::targets;

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
        };
        let tally =
            run::run(plan).unwrap_or_else(|fault| panic!("{} fails on {:?}", target.name(), fault.file));
        assert!(tally.outcomes > 5, "{} sees only {} outcomes", target.name(), tally.outcomes);
    }
}
