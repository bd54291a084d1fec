//! Finds the pairs of edges of two sets that can meet at all: a sweep over their bounding boxes.

use super::ShapeError;
use super::sphere::Point;
use crate::env::Cancel;

/// Up to this many pairs, comparing all of them is faster than a sweep.
const PAIRS_TRIED_AT_MOST: usize = 4_096;
/// Edges longer than this part of the whole extent are compared one by one.
const WINDOWS: f64 = 64.0;
/// Tolerance for rounding around a box.
const MARGIN: f64 = 1e-15;

/// Tells the search whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// With the next pair.
    Continue,
    /// Stop: the result is known.
    Done,
}

/// Edges given by their end points.
pub(super) type Edges = Vec<(Point, Point)>;

/// Calls `visit` with the indices of each edge of `a` and edge of `b` that may meet, until it returns
/// [`Search::Done`]. Skips pairs with disjoint boxes; the order is unspecified. Fails if `cancel` is set before the
/// end.
pub(super) fn for_each_near(
    a: &Edges,
    b: &Edges,
    cancel: &Cancel,
    mut visit: impl FnMut(usize, usize) -> Search,
) -> Result<(), ShapeError> {
    if a.len().saturating_mul(b.len()) <= PAIRS_TRIED_AT_MOST {
        for i in 0..a.len() {
            for j in 0..b.len() {
                if visit(i, j) == Search::Done {
                    return Ok(());
                }
            }
        }
        return ShapeError::check_cancel(cancel);
    }
    let boxes: Vec<(usize, Bounds)> = b.iter().map(Bounds::of).enumerate().collect();
    let (axis, spread) = widest_axis(&boxes);
    // A few long edges must not widen the window of all others.
    let length_max = spread / WINDOWS;
    let (mut short, long): (Vec<_>, Vec<_>) =
        boxes.into_iter().partition(|(_, x)| x.high[axis] - x.low[axis] <= length_max);
    short.sort_by(|(_, x), (_, y)| x.low[axis].total_cmp(&y.low[axis]));
    for (i, edge) in a.iter().enumerate() {
        ShapeError::check_cancel(cancel)?;
        let bounds = Bounds::of(edge);
        let from = short.partition_point(|(_, x)| x.low[axis] < bounds.low[axis] - length_max);
        let to = short.partition_point(|(_, x)| x.low[axis] <= bounds.high[axis]);
        let window = short.get(from..to).unwrap_or_default();
        for (j, other) in window.iter().chain(&long) {
            if bounds.meets(other) && visit(i, *j) == Search::Done {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The axis with the largest extent of the boxes, and that extent.
fn widest_axis(boxes: &[(usize, Bounds)]) -> (usize, f64) {
    let spread = |axis: usize| {
        let low = boxes.iter().map(|(_, x)| x.low[axis]).fold(f64::INFINITY, f64::min);
        let high = boxes.iter().map(|(_, x)| x.high[axis]).fold(f64::NEG_INFINITY, f64::max);
        (axis, high - low)
    };
    let spreads = [spread(0), spread(1), spread(2)];
    spreads.into_iter().max_by(|x, y| x.1.total_cmp(&y.1)).unwrap_or((0, 0.0))
}

/// The bounding box of an edge.
struct Bounds {
    low: [f64; 3],
    high: [f64; 3],
}

impl Bounds {
    /// The box around the chord, widened by the height of the arc above the chord.
    fn of((a, b): &(Point, Point)) -> Self {
        let half_chord_squared = (a - b).norm2() / 4.0;
        let rise = 1.0 - (1.0 - half_chord_squared).max(0.0).sqrt() + MARGIN;
        let around = |x: f64, y: f64| (x.min(y) - rise, x.max(y) + rise);
        let (x, y, z) = (around(a.x, b.x), around(a.y, b.y), around(a.z, b.z));
        Bounds { low: [x.0, y.0, z.0], high: [x.1, y.1, z.1] }
    }

    fn meets(&self, other: &Bounds) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }
}
