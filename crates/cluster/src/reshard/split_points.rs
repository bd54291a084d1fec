//! Chooses the start keys of new shards from estimated row counts of key ranges.

use datum::Bytes;

/// How far a boundary may be from the even one, as a fraction of an even shard's size, to coincide with an old
/// boundary. A new shard that begins at an old boundary does not need the rows of two old shards on one server.
const BOUNDARY_SLACK: f64 = 0.2;

/// A key range of a table and its estimated size.
#[derive(Clone, Debug)]
pub(crate) struct RangeEstimate {
    /// Its first encoded key.
    pub(crate) start: Bytes,
    /// About how many rows it has.
    pub(crate) rows: f64,
    /// Whether a present shard begins there.
    pub(crate) is_old: bool,
}

/// The start keys of `shards` shards with about the same number of rows each; the first key is empty. `ranges` are in
/// key order. `None` if there are fewer ranges or rows than shards.
pub(crate) fn even_boundaries_of(ranges: &[RangeEstimate], shards: usize) -> Option<Vec<Bytes>> {
    let all: f64 = ranges.iter().map(|range| range.rows).sum();
    if ranges.len() < shards || all < shards as f64 {
        return None;
    }
    let share = all / shards as f64;
    let before: Vec<f64> = ranges
        .iter()
        .scan(0.0, |sum, range| {
            let before = *sum;
            *sum += range.rows;
            Some(before)
        })
        .collect();
    let mut boundaries = vec![Bytes::new()];
    let mut last = 0;
    for nth in 1..shards {
        let wanted = share * nth as f64;
        // Leaves at least one range for each later shard.
        let possible = last + 1..ranges.len() - (shards - nth) + 1;
        let distance = |at: &usize| (before[*at] - wanted).abs();
        let nearest = possible.clone().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let old = possible.filter(|at| ranges[*at].is_old && distance(at) <= share * BOUNDARY_SLACK);
        last = old.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(nearest);
        boundaries.push(ranges[last].start.clone());
    }
    Some(boundaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards with these row counts, each divided into ten ranges.
    fn table(shards: &[f64]) -> Vec<RangeEstimate> {
        let range = |shard: usize, rows: f64, i: usize| RangeEstimate {
            start: if shard + i == 0 { Bytes::new() } else { Bytes::from(format!("{shard:02}{i}")) },
            rows: rows / 10.0,
            is_old: i == 0,
        };
        let shards = shards.iter().enumerate();
        shards.flat_map(|(shard, rows)| (0..10).map(move |i| range(shard, *rows, i))).collect()
    }

    #[track_caller]
    fn check(shards: &[f64], wanted: usize, boundaries: &[&str]) {
        assert_eq!(even_boundaries_of(&table(shards), wanted).unwrap(), boundaries);
    }

    #[test]
    fn one_shard_is_split_evenly() {
        check(&[100.0], 2, &["", "005"]);
        check(&[100.0], 5, &["", "002", "004", "006", "008"]);
    }

    #[test]
    fn old_boundaries_are_kept_if_that_is_nearly_as_even() {
        check(&[100.0, 100.0], 4, &["", "005", "010", "015"]);
        check(&[90.0, 110.0], 2, &["", "010"]);
        check(&[50.0, 150.0], 2, &["", "013"]);
        check(&[10.0, 10.0, 10.0, 10.0], 2, &["", "020"]);
        check(&[60.0, 45.0, 55.0], 2, &["", "014"]);
        check(&[100.0, 100.0, 100.0], 1, &[""]);
    }

    #[test]
    fn shards_are_never_empty_however_uneven_the_ranges_are() {
        let ranges = table(&[1000.0, 0.0]);
        for shards in 1..=20 {
            let boundaries = even_boundaries_of(&ranges, shards).unwrap();
            assert_eq!(boundaries.len(), shards);
            assert!(boundaries.windows(2).all(|pair| pair[0] < pair[1]), "{boundaries:?}");
        }
        assert_eq!(even_boundaries_of(&ranges, 21), None);
        assert_eq!(even_boundaries_of(&table(&[1.0]), 2), None, "one row");
    }
}
