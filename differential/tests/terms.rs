//! Every term of the language is in a query with a verdict.

use rekindle_differential::term_coverage::{EXCLUDED, TermCoverage};
use rekindle_differential::{TestTables, query_of, verdict};

/// The seeds of the test.
const SEEDS: std::ops::Range<u64> = 1..9;
/// Queries per seed; a run has more.
const QUERIES: u64 = 1_500;

#[test]
fn every_term_is_in_a_query_that_is_compared() {
    let mut coverage = TermCoverage::default();
    for seed in SEEDS {
        let tables = TestTables::of(seed);
        for n in 0..QUERIES {
            let query = query_of(seed, n);
            let compared = verdict::verdict(&query, &tables.database).is_ok();
            coverage.add(&query.term, compared);
        }
    }
    assert_eq!(coverage.missing(), Vec::<&str>::new(), "seeds {SEEDS:?}\n{coverage}");
}

#[test]
fn excluded_terms_have_a_reason() {
    for (id, why) in EXCLUDED {
        let row = reql::signature::all().iter().find(|row| row.id == id);
        assert!(row.is_some_and(|row| why.starts_with(row.name)), "{id}: {why}");
    }
}
