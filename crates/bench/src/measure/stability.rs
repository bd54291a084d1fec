//! The variation during a run: a mean hides a server that stalls every few seconds.

use crate::result::{Point, Stability};

/// A shorter run has no meaningful variation.
const SECONDS_MIN: usize = 3;

/// Describes the measured seconds among `points`.
pub fn stability(points: &[Point]) -> Option<Stability> {
    let rates: Vec<f64> = points.iter().filter(|point| point.second >= 0).map(|p| p.ok as f64).collect();
    let mean = mean(&rates);
    if rates.len() < SECONDS_MIN || mean == 0.0 {
        return None;
    }
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    let third = rates.len() / 3;
    let (first, last) = (self::mean(&rates[..third]), self::mean(&rates[rates.len() - third..]));
    Some(Stability {
        variation: variance.sqrt() / mean,
        lowest_share: rates.iter().copied().fold(f64::INFINITY, f64::min) / mean,
        last_by_first: (first > 0.0).then(|| last / first),
    })
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rates: &[u64]) -> Vec<Point> {
        let point =
            |(second, ok): (usize, &u64)| Point { second: second as i64 - 1, ok: *ok, ..Point::default() };
        rates.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_warm_up_is_left_out_and_a_fall_is_seen() {
        // The first second is warm-up.
        let even = stability(&points(&[900, 10, 10, 10, 10])).expect("long enough");
        assert_eq!((even.variation, even.lowest_share, even.last_by_first), (0.0, 1.0, Some(1.0)));
        let falls = stability(&points(&[0, 20, 20, 20, 10, 10, 10])).expect("long enough");
        assert!((falls.variation - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(falls.last_by_first, Some(0.5));
        assert_eq!(stability(&points(&[0, 5, 5])), None);
        assert_eq!(stability(&points(&[0, 0, 0, 0])), None);
    }
}
