//! `random`: numbers from the query's random source.

use datum::Datum;

use crate::EvalError;
use crate::args::Args;
use crate::env::RandomSource;
use crate::printf::g20;

/// Largest magnitude of integers that convert exactly: 2^53.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// `random`: a number from `[0, 1)`, an integer from `[0, a)` or `[a, b)`, or with `float` a
/// number between bounds in either order.
pub fn random(args: &Args<'_>) -> Result<Datum, EvalError> {
    match (args.flag("float")?, args.len()) {
        (Some(false), 0) => Err(EvalError::logic("Generating a random integer requires one or two bounds.")),
        (_, 0) => Ok(Datum::Number(unit(args.env.random))),
        (Some(true), 1) => Ok(Datum::Number(between(0.0, args.number(0)?, args.env.random))),
        (Some(true), _) => Ok(Datum::Number(between(args.number(0)?, args.number(1)?, args.env.random))),
        (_, 1) => integer_below(0, bound(args, 0, "Upper")?, args),
        (_, _) => integer_below(bound(args, 0, "Lower")?, bound(args, 1, "Upper")?, args),
    }
}

/// A float from `[0, 1)` with 53 random bits.
fn unit(random: &dyn RandomSource) -> f64 {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    (random.next_u64() >> 11) as f64 * STEP
}

/// A float from `lower`, included, to `upper`, excluded unless it equals `lower`.
fn between(lower: f64, upper: f64, random: &dyn RandomSource) -> f64 {
    let part = unit(random);
    let width = upper - lower;
    let drawn = if width.is_finite() { lower + width * part } else { lower * (1.0 - part) + upper * part };
    // Rounding may give the excluded bound.
    if drawn == upper { lower } else { drawn }
}

fn bound(args: &Args<'_>, i: usize, which: &str) -> Result<i64, EvalError> {
    let number = args.number(i)?;
    if number.abs() > INTEGER_MAX || number.fract() != 0.0 {
        let message = format!("{which} bound ({}) could not be safely converted to an integer.", g20(number));
        return Err(EvalError::logic(message));
    }
    // The number is in range and has no fraction, so the cast is exact.
    Ok(number as i64)
}

fn integer_below(lower: i64, upper: i64, args: &Args<'_>) -> Result<Datum, EvalError> {
    if lower >= upper {
        return Err(EvalError::logic(format!(
            "Lower bound ({lower}) is not less than upper bound ({upper})."
        )));
    }
    let drawn = lower + below(upper.abs_diff(lower), args.env.random) as i64;
    Ok(Datum::Number(drawn as f64))
}

/// An integer from `[0, end)`, uniformly distributed by rejection sampling.
fn below(end: u64, random: &dyn RandomSource) -> u64 {
    let uneven = end.wrapping_neg() % end;
    loop {
        let product = u128::from(random.next_u64()) * u128::from(end);
        if product as u64 >= uneven {
            return (product >> 64) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SeededRandom;

    #[test]
    fn integers_of_a_range_are_all_drawn_about_equally_often() {
        let random = SeededRandom::new(7);
        let mut drawn = [0_u32; 6];
        for _ in 0..60_000 {
            drawn[below(6, &random) as usize] += 1;
        }
        assert!(drawn.iter().all(|&times| (9_500..10_500).contains(&times)), "{drawn:?}");
    }

    #[test]
    fn floats_stay_within_their_bounds_in_either_order() {
        let random = SeededRandom::new(7);
        for (a, b) in [(0.0, 1.0), (1.0, 0.0), (-f64::MAX, f64::MAX), (31415926.1, 31415926.0)] {
            for _ in 0..1_000 {
                let drawn = between(a, b, &random);
                assert!(drawn != b && (a.min(b)..=a.max(b)).contains(&drawn), "{drawn}");
            }
        }
        assert_eq!(between(5.0, 5.0, &random), 5.0);
    }
}
