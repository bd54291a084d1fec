//! A closed chain of edges, whose interior is to its left.

use std::collections::HashSet;
use std::f64::consts::PI;

use super::ShapeError;
use super::boxes::{Edges, Search, for_each_near};
use super::orientation::{Corners, Crosser, Crossing, Overlap, crossing, in_order, turn_angle};
use super::sphere::Point;
use crate::env::Cancel;

/// A ring around a hemisphere has a turning sum of zero, up to this rounding error, in radians.
const HALF_SPHERE_ERROR: f64 = 1e-14;

/// A closed chain of at least three edges that do not cross, without the repeated first vertex.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    vertices: Vec<Point>,
    /// Whether the fixed point from which crossings are counted is inside.
    has_origin: bool,
}

/// The relation of a ring to another whose union with it does not cover the sphere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    /// Their edges cross.
    Crosses,
    /// The second lies inside the first.
    Contains,
    /// Neither contains the second nor crosses it.
    Outside,
}

impl Ring {
    /// The ring through these points, in either direction; the smaller side is its interior. Fails if there are
    /// fewer than three points, two are equal, or edges cross.
    pub(super) fn new(vertices: Vec<Point>, cancel: &Cancel) -> Result<Self, ShapeError> {
        let ring = Ring::oriented(vertices);
        if !ring.is_simple(cancel)? {
            return Err(ShapeError::InvalidRing);
        }
        Ok(ring.smaller_side())
    }

    /// The ring in the direction of its points, not validated.
    pub(super) fn oriented(vertices: Vec<Point>) -> Self {
        let mut ring = Ring { vertices, has_origin: false };
        if ring.vertices.len() >= 3 {
            // Assume that the fixed point is outside, and correct that if a vertex gives the wrong result.
            let (before, vertex, after) = (ring.vertex(0), ring.vertex(1), ring.vertex(2));
            let is_inside = in_order(&vertex.ortho(), before, after, vertex);
            ring.has_origin = is_inside != ring.contains_point(vertex);
        }
        ring
    }

    /// The same edges with the smaller side as interior.
    pub(super) fn smaller_side(self) -> Self {
        if self.is_narrow() || self.turning() >= -HALF_SPHERE_ERROR { self } else { self.inverted() }
    }

    /// The same edges with the other side as interior.
    pub(super) fn inverted(mut self) -> Self {
        self.vertices.reverse();
        self.has_origin = !self.has_origin;
        self
    }

    /// The vertices, in order.
    pub(super) fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    /// Vertex `i`, modulo the number of vertices.
    pub(super) fn vertex(&self, i: usize) -> &Point {
        &self.vertices[i % self.vertices.len()]
    }

    /// The edges, in order.
    pub(super) fn edges(&self) -> Edges {
        (0..self.vertices.len()).map(|i| (*self.vertex(i), *self.vertex(i + 1))).collect()
    }

    fn is_simple(&self, cancel: &Cancel) -> Result<bool, ShapeError> {
        let count = self.vertices.len();
        let different: HashSet<_> = self.vertices.iter().map(bits).collect();
        if count < 3 || different.len() < count {
            return Ok(false);
        }
        let edges = self.edges();
        let mut crosses = false;
        for_each_near(&edges, &edges, cancel, |i, j| {
            if j <= i + 1 {
                return Search::Continue;
            }
            let ((a, b), (c, d)) = (&edges[i], &edges[j]);
            crosses = crossing(a, b, c, d) == Crossing::Proper;
            if crosses { Search::Done } else { Search::Continue }
        })?;
        Ok(!crosses)
    }

    /// Whether the interior spans fewer than 180 degrees of longitude and is away from the poles. It is then the
    /// smaller side, which the turning sum cannot tell for a sliver.
    fn is_narrow(&self) -> bool {
        let longitudes =
            self.vertices.iter().chain(self.vertices.first()).map(|vertex| vertex.y.atan2(vertex.x));
        let (mut at, mut west, mut east, mut last) = (0.0_f64, 0.0_f64, 0.0_f64, None);
        for longitude in longitudes {
            let step = longitude - last.unwrap_or(longitude);
            at += if step > PI {
                step - 2.0 * PI
            } else if step < -PI {
                step + 2.0 * PI
            } else {
                step
            };
            (west, east, last) = (west.min(at), east.max(at), Some(longitude));
        }
        east - west < PI && !self.contains_point(&Point::new(0.0, 0.0, 1.0))
    }

    /// The sum of the turning angles at all vertices: 2π minus the area of the interior.
    fn turning(&self) -> f64 {
        let count = self.vertices.len();
        (0..count).map(|i| turn_angle(self.vertex(i), self.vertex(i + 1), self.vertex(i + 2))).sum()
    }

    /// Whether the point lies inside. Of two rings that share an edge, exactly one contains each point of it.
    pub(super) fn contains_point(&self, point: &Point) -> bool {
        // The point from which crossings are counted. S2 chose it; any point would do.
        let origin = Point::new(0.00457, 1.0, 0.0321).normalize();
        let mut crosser = Crosser::new(&origin, point, self.vertex(0));
        let passes = (1..=self.vertices.len()).filter(|i| crosser.passes(self.vertex(*i))).count();
        self.has_origin ^ (passes % 2 == 1)
    }

    fn has_vertex(&self, point: &Point) -> bool {
        self.vertices.contains(point)
    }

    /// Compares every corner that the rings share. Returns whether edges cross, possibly before all corners were
    /// compared.
    fn compare(
        &self,
        other: &Ring,
        cancel: &Cancel,
        mut corner: impl FnMut(Corners<'_>) -> Search,
    ) -> Result<bool, ShapeError> {
        let (mine, others) = (self.edges(), other.edges());
        let mut crosses = false;
        for_each_near(&mine, &others, cancel, |i, j| {
            let ((a, b), (c, d)) = (&mine[i], &others[j]);
            match crossing(c, d, a, b) {
                Crossing::Apart => Search::Continue,
                Crossing::Proper => {
                    crosses = true;
                    Search::Done
                }
                // Each shared vertex is compared once, where both edges end in it.
                Crossing::AtVertex if b == d => {
                    corner(Corners { at: b, a: (a, self.vertex(i + 2)), b: (c, other.vertex(j + 2)) })
                }
                Crossing::AtVertex => Search::Continue,
            }
        })?;
        Ok(crosses)
    }

    /// Whether the interior of `other` is inside.
    pub(super) fn contains(&self, other: &Ring, cancel: &Cancel) -> Result<bool, ShapeError> {
        let first = other.vertex(0);
        if !self.contains_point(first) && !self.has_vertex(first) {
            return Ok(false);
        }
        let mut has_all = true;
        let crosses = self.compare(other, cancel, |corners| {
            has_all = corners.contains();
            if has_all { Search::Continue } else { Search::Done }
        })?;
        if crosses || !has_all {
            return Ok(false);
        }
        // Each of two rings may contain the other's edges and both together cover the sphere.
        let mine = self.vertex(0);
        Ok(!other.contains_point(mine) || other.has_vertex(mine))
    }

    /// Whether the interiors intersect.
    pub(super) fn intersects(&self, other: &Ring, cancel: &Cancel) -> Result<bool, ShapeError> {
        let first = other.vertex(0);
        if self.contains_point(first) && !self.has_vertex(first) {
            return Ok(true);
        }
        let mut has_common = false;
        let crosses = self.compare(other, cancel, |corners| {
            has_common = corners.intersects();
            if has_common { Search::Done } else { Search::Continue }
        })?;
        if crosses || has_common {
            return Ok(true);
        }
        let mine = self.vertex(0);
        Ok(other.contains_point(mine) && !other.has_vertex(mine))
    }

    /// Whether the other ring lies inside, crosses this one, or neither.
    pub(super) fn nesting(&self, other: &Ring, cancel: &Cancel) -> Result<Nesting, ShapeError> {
        let (mut contains, mut contained, mut disjoint, mut partial) = (false, false, false, false);
        let crosses = self.compare(other, cancel, |corners| {
            match corners.overlap() {
                Overlap::Partial => partial = true,
                Overlap::Contains => contains = true,
                Overlap::Contained => contained = true,
                Overlap::Disjoint => disjoint = true,
                Overlap::Equal => {}
            }
            partial |= contains && contained;
            if partial { Search::Done } else { Search::Continue }
        })?;
        if crosses || partial {
            return Ok(Nesting::Crosses);
        }
        let first = other.vertex(0);
        if disjoint || contained || !(self.contains_point(first) || self.has_vertex(first)) {
            return Ok(Nesting::Outside);
        }
        Ok(Nesting::Contains)
    }

    /// Whether `other` lies inside, for two rings that do not cross and share no edge.
    pub(super) fn has_nested(&self, other: &Ring) -> bool {
        let vertex = other.vertex(1);
        let Some(i) = self.vertices.iter().position(|mine| mine == vertex) else {
            return self.contains_point(vertex);
        };
        let before = i + self.vertices.len() - 1;
        let corners = Corners {
            at: vertex,
            a: (self.vertex(before), self.vertex(i + 1)),
            b: (other.vertex(0), other.vertex(2)),
        };
        corners.contains()
    }
}

/// A hashable form of a point, the same for both zeros.
pub(super) fn bits(point: &Point) -> [u64; 3] {
    [point.x, point.y, point.z].map(|number| (number + 0.0).to_bits())
}
