//! Where to begin new shards over rows of which only the size of pieces is known.

use datum::Bytes;

/// A new shard may be so much smaller or greater than the others, as a share of their size, if that lets it
/// begin where an old one did: then nobody need bring the rows of two old ones together for it.
const SLACK: f64 = 0.2;

/// A piece of a table, in key order.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Its first encoded key.
    pub(crate) start: Bytes,
    /// About how many rows it has.
    pub(crate) rows: f64,
    /// Whether a shard begins there now.
    pub(crate) is_old: bool,
}

/// The starts of `shards` shards of about the same number of rows each, of which the first is empty.
/// `None` if there are too few pieces.
pub(crate) fn even_boundaries_of(pieces: &[Piece], shards: usize) -> Option<Vec<Bytes>> {
    let all: f64 = pieces.iter().map(|piece| piece.rows).sum();
    if pieces.len() < shards || all < shards as f64 {
        return None;
    }
    let share = all / shards as f64;
    let before: Vec<f64> = pieces
        .iter()
        .scan(0.0, |sum, piece| {
            let before = *sum;
            *sum += piece.rows;
            Some(before)
        })
        .collect();
    let mut starts = vec![Bytes::new()];
    let mut last = 0;
    for nth in 1..shards {
        let wanted = share * nth as f64;
        // So many are left for those that follow.
        let possible = last + 1..pieces.len() - (shards - nth) + 1;
        let far = |at: &usize| (before[*at] - wanted).abs();
        let nearest = possible.clone().min_by(|a, b| far(a).total_cmp(&far(b)))?;
        let old = possible.filter(|at| pieces[*at].is_old && far(at) <= share * SLACK);
        last = old.min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(nearest);
        starts.push(pieces[last].start.clone());
    }
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards of so many rows, each in ten pieces.
    fn table(shards: &[f64]) -> Vec<Piece> {
        let piece = |shard: usize, rows: f64, i: usize| Piece {
            start: if shard + i == 0 { Bytes::new() } else { Bytes::from(format!("{shard:02}{i}")) },
            rows: rows / 10.0,
            is_old: i == 0,
        };
        let pieces = shards.iter().enumerate();
        pieces.flat_map(|(shard, rows)| (0..10).map(move |i| piece(shard, *rows, i))).collect()
    }

    #[track_caller]
    fn check(shards: &[f64], wanted: usize, starts: &[&str]) {
        assert_eq!(even_boundaries_of(&table(shards), wanted).unwrap(), starts);
    }

    #[test]
    fn one_shard_is_cut_evenly() {
        check(&[100.0], 2, &["", "005"]);
        check(&[100.0], 5, &["", "002", "004", "006", "008"]);
    }

    #[test]
    fn shards_begin_where_others_did_if_that_is_nearly_as_even() {
        check(&[100.0, 100.0], 4, &["", "005", "010", "015"]);
        check(&[90.0, 110.0], 2, &["", "010"]);
        check(&[50.0, 150.0], 2, &["", "013"]);
        check(&[10.0, 10.0, 10.0, 10.0], 2, &["", "020"]);
        check(&[60.0, 45.0, 55.0], 2, &["", "014"]);
        check(&[100.0, 100.0, 100.0], 1, &[""]);
    }

    #[test]
    fn shards_are_never_empty_however_uneven_the_pieces_are() {
        let pieces = table(&[1000.0, 0.0]);
        for shards in 1..=20 {
            let starts = even_boundaries_of(&pieces, shards).unwrap();
            assert_eq!(starts.len(), shards);
            assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
        }
        assert_eq!(even_boundaries_of(&pieces, 21), None);
        assert_eq!(even_boundaries_of(&table(&[1.0]), 2), None, "one row");
    }
}
