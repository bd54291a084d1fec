//! Lines: open chains of edges.

use super::ShapeError;
use super::boxes::{Edges, Search, for_each_near};
use super::orientation::{Crossing, crossing, is_on_edge};
use super::sphere::{Point, nearest_edge, nearest_on_edge};
use crate::env::Cancel;

/// At least two points, joined by edges.
#[derive(Clone, Debug)]
pub struct Path(Vec<Point>);

impl Path {
    /// The line through these points. Fails if a point equals the next one or is its antipode.
    pub fn new(vertices: Vec<Point>) -> Result<Self, ShapeError> {
        let is_edge = |pair: &[Point]| pair[0] != pair[1] && pair[0] != pair[1] * -1.0;
        if vertices.windows(2).all(is_edge) { Ok(Path(vertices)) } else { Err(ShapeError::InvalidLine) }
    }

    /// The vertices, in order.
    pub(super) fn vertices(&self) -> &[Point] {
        &self.0
    }

    /// The end points of all edges.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.0.windows(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// The point of the line that is nearest to `point`.
    pub(super) fn project(&self, point: &Point) -> Option<Point> {
        match nearest_edge(self.edges(), point) {
            Some((a, b)) => Some(nearest_on_edge(point, a, b)),
            None => self.0.first().copied(),
        }
    }

    /// Whether the point lies on the line. The projection alone misses some vertices, by rounding.
    #[must_use]
    pub fn touches_point(&self, point: &Point) -> bool {
        self.edges().any(|(a, b)| is_on_edge(point, a, b)) || self.project(point) == Some(*point)
    }

    /// Whether the lines cross or share a vertex.
    pub fn intersects(&self, other: &Path, cancel: &Cancel) -> Result<bool, ShapeError> {
        let edges = |path: &Path| -> Edges { path.edges().map(|(a, b)| (*a, *b)).collect() };
        let (mine, others) = (edges(self), edges(other));
        let mut meets = false;
        for_each_near(&mine, &others, cancel, |i, j| {
            let ((a, b), (c, d)) = (&mine[i], &others[j]);
            meets = crossing(a, b, c, d) != Crossing::Apart;
            if meets { Search::Done } else { Search::Continue }
        })?;
        Ok(meets)
    }
}
