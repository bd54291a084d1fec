//! Areas: rings with holes, and tests of containment.

use std::collections::{HashMap, HashSet};

use super::ShapeError;
use super::orientation::{Crosser, Crossing, in_order, intersection, is_on_edge, vertex_crossing};
use super::path::Path;
use super::ring::{Nesting, Ring, bits};
use super::sphere::{Point, fraction_along, nearest_edge, nearest_on_edge};
use crate::env::Cancel;

/// A set of rings that do not cross: a point belongs to the area if it is inside an odd number of them.
#[derive(Clone, Debug)]
pub struct Polygon {
    rings: Vec<NestedRing>,
}

#[derive(Clone, Debug)]
struct NestedRing {
    ring: Ring,
    /// Whether the inside of the ring is cut out.
    is_hole: bool,
}

impl Polygon {
    /// The area inside the first ring and outside the others, each given by its vertices without the repeated first
    /// one. Edges shared by a hole and the outer ring vanish. Fails if a ring crosses itself or another.
    pub fn new(rings: Vec<Vec<Point>>, cancel: &Cancel) -> Result<Self, ShapeError> {
        let of = |vertices| Ring::new(vertices, cancel);
        let mut rings = rings.into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
        if shares_vertices(&rings) {
            rings = reassembled(rings, cancel)?;
        }
        if shares_edges(&rings) {
            return Err(ShapeError::UnusedEdges);
        }
        for (i, ring) in rings.iter().enumerate() {
            for other in &rings[i + 1..] {
                if ring.nesting(other, cancel)? == Nesting::Crosses {
                    return Err(ShapeError::UnusedEdges);
                }
            }
        }
        let depth = |i: usize| {
            ShapeError::check_cancel(cancel)?;
            let others = rings.iter().enumerate().filter(|(j, _)| *j != i);
            Ok(others.filter(|(_, other)| other.has_nested(&rings[i])).count())
        };
        let depths: Vec<usize> = (0..rings.len()).map(depth).collect::<Result<_, ShapeError>>()?;
        let holes = depths.into_iter().map(|depth| depth % 2 == 1);
        let nested = rings.into_iter().zip(holes).map(|(ring, is_hole)| NestedRing { ring, is_hole });
        Ok(Polygon { rings: nested.collect() })
    }

    /// Whether the area is empty: a polygon without rings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// The end points of all edges.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&Point, &Point)> {
        self.rings.iter().flat_map(|NestedRing { ring, .. }| {
            (0..ring.vertices().len()).map(|i| (ring.vertex(i), ring.vertex(i + 1)))
        })
    }

    fn has_holes(&self) -> bool {
        self.rings.iter().any(|ring| ring.is_hole)
    }

    fn shells(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(|ring| !ring.is_hole).map(|ring| &ring.ring)
    }

    fn holes(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter(|ring| ring.is_hole).map(|ring| &ring.ring)
    }

    fn rings(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().map(|ring| &ring.ring)
    }

    /// Whether the point lies inside. The result is unspecified for points on the border.
    #[must_use]
    pub fn contains_point(&self, point: &Point) -> bool {
        self.rings().filter(|ring| ring.contains_point(point)).count() % 2 == 1
    }

    /// The point of the area, border included, that is nearest to `point`: `point` itself if it is inside. `None`
    /// if the area is empty.
    pub(super) fn project(&self, point: &Point) -> Option<Point> {
        if self.contains_point(point) {
            return Some(*point);
        }
        nearest_edge(self.edges(), point).map(|(a, b)| nearest_on_edge(point, a, b))
    }

    /// Whether the point lies inside or on the border. The projection alone misses some vertices, by rounding.
    #[must_use]
    pub fn touches_point(&self, point: &Point) -> bool {
        self.edges().any(|(a, b)| is_on_edge(point, a, b)) || self.project(point) == Some(*point)
    }

    /// Whether all of `other` lies inside. Fails when cancelled.
    pub fn contains(&self, other: &Polygon, cancel: &Cancel) -> Result<bool, ShapeError> {
        if let ([mine], [others]) = (&*self.rings, &*other.rings) {
            return mine.ring.contains(&others.ring, cancel);
        }
        if !self.has_holes() && !other.has_holes() {
            return all(other.rings(), |ring| any(self.rings(), |mine| mine.contains(ring, cancel)));
        }
        Ok(all(other.shells(), |shell| Ok(self.nesting(shell, cancel)? == Nesting::Contains))?
            && all(self.holes(), |hole| Ok(other.nesting(hole, cancel)? == Nesting::Outside))?)
    }

    fn nesting(&self, ring: &Ring, cancel: &Cancel) -> Result<Nesting, ShapeError> {
        let mut inside = false;
        for mine in self.rings() {
            match mine.nesting(ring, cancel)? {
                Nesting::Crosses => return Ok(Nesting::Crosses),
                Nesting::Contains => inside = !inside,
                Nesting::Outside => {}
            }
        }
        Ok(if inside { Nesting::Contains } else { Nesting::Outside })
    }

    /// Whether the interiors intersect.
    pub fn intersects(&self, other: &Polygon, cancel: &Cancel) -> Result<bool, ShapeError> {
        if !self.has_holes() && !other.has_holes() {
            return any(self.rings(), |mine| any(other.rings(), |ring| mine.intersects(ring, cancel)));
        }
        Ok(any(other.shells(), |shell| self.intersects_ring(shell, cancel))?
            || any(self.shells(), |shell| other.intersects_ring(shell, cancel))?)
    }

    fn intersects_ring(&self, ring: &Ring, cancel: &Cancel) -> Result<bool, ShapeError> {
        let mut inside = false;
        for mine in self.rings() {
            ShapeError::check_cancel(cancel)?;
            if mine.contains(ring, cancel)? {
                inside = !inside;
            } else if !ring.contains(mine, cancel)? && mine.intersects(ring, cancel)? {
                return Ok(true);
            }
        }
        Ok(inside)
    }

    /// Whether part of the line lies inside.
    pub fn intersects_path(&self, path: &Path, cancel: &Cancel) -> Result<bool, ShapeError> {
        Ok(!self.is_empty() && self.has_piece(path, Side::Inside, cancel)?)
    }

    /// Whether no part of the line lies outside.
    pub fn contains_path(&self, path: &Path, cancel: &Cancel) -> Result<bool, ShapeError> {
        Ok(!self.has_piece(path, Side::Outside, cancel)?)
    }

    /// Whether some part of the line, longer than a point, lies on this side of the border.
    fn has_piece(&self, path: &Path, side: Side, cancel: &Cancel) -> Result<bool, ShapeError> {
        let Some(first) = path.vertices().first() else { return Ok(false) };
        let mut wanted = self.contains_point(first) == (side == Side::Inside);
        for (a, b) in path.edges() {
            ShapeError::check_cancel(cancel)?;
            let mut cuts = self.cuts(a, b);
            if wanted {
                cuts.push((0.0, *a));
            }
            wanted = cuts.len() % 2 == 1;
            if wanted {
                cuts.push((1.0, *b));
            }
            cuts.sort_by(|(s, p), (t, q)| s.total_cmp(t).then_with(|| p.cmp(q)));
            if cuts.chunks_exact(2).any(|pair| pair[0] != pair[1]) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The points where the border meets the edge `ab`, each with its fraction of the edge's length.
    fn cuts(&self, a: &Point, b: &Point) -> Vec<(f64, Point)> {
        let mut cuts = Vec::new();
        for NestedRing { ring, is_hole } in &self.rings {
            let mut crosser = Crosser::new(a, b, ring.vertex(0));
            for i in 0..ring.vertices().len() {
                let (from, to) = (ring.vertex(i), ring.vertex(i + 1));
                let crossing = crosser.crossing(to);
                // The interior of the polygon is to the left of every edge.
                let (from, to) = if *is_hole { (to, from) } else { (from, to) };
                match crossing {
                    Crossing::Apart => {}
                    Crossing::Proper => {
                        let at = intersection(a, b, from, to);
                        cuts.push((fraction_along(&at, a, b), at));
                    }
                    Crossing::AtVertex if vertex_crossing(a, b, from, to) => {
                        let at_start = a == from || a == to;
                        cuts.push(if at_start { (0.0, *a) } else { (1.0, *b) });
                    }
                    Crossing::AtVertex => {}
                }
            }
        }
        cuts
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inside,
    Outside,
}

fn any<'a>(
    mut rings: impl Iterator<Item = &'a Ring>,
    holds: impl Fn(&'a Ring) -> Result<bool, ShapeError>,
) -> Result<bool, ShapeError> {
    rings.try_fold(false, |found, ring| Ok(found || holds(ring)?))
}

fn all<'a>(
    rings: impl Iterator<Item = &'a Ring>,
    holds: impl Fn(&'a Ring) -> Result<bool, ShapeError>,
) -> Result<bool, ShapeError> {
    Ok(!any(rings, |ring| Ok(!holds(ring)?))?)
}

fn shares_vertices(rings: &[Ring]) -> bool {
    let mut seen = HashSet::new();
    rings.len() > 1 && !rings.iter().flat_map(Ring::vertices).all(|vertex| seen.insert(bits(vertex)))
}

/// Whether an edge belongs to two rings, in either direction.
fn shares_edges(rings: &[Ring]) -> bool {
    let mut seen = HashSet::new();
    let ends = |(a, b): (Point, Point)| {
        let (a, b) = (bits(&a), bits(&b));
        if a < b { (a, b) } else { (b, a) }
    };
    rings.len() > 1 && !rings.iter().flat_map(Ring::edges).all(|edge| seen.insert(ends(edge)))
}

/// The rings of the area inside the first ring and outside the others, where they touch: edges in opposite
/// directions cancel, and the rest is traversed by always turning left.
fn reassembled(rings: Vec<Ring>, cancel: &Cancel) -> Result<Vec<Ring>, ShapeError> {
    let mut edges = EdgeSet::default();
    for (i, ring) in rings.into_iter().enumerate() {
        let ring = if i == 0 { ring } else { ring.inverted() };
        for (from, to) in ring.edges() {
            edges.add(from, to);
        }
    }
    let mut assembled = Vec::new();
    for start in std::mem::take(&mut edges.starts) {
        while let Some(vertices) = edges.take_ring(&start, cancel)? {
            let ring = Ring::oriented(vertices);
            assembled.push(ring.smaller_side());
        }
    }
    Ok(assembled)
}

/// Directed edges by their start points.
#[derive(Default)]
struct EdgeSet {
    ends: HashMap<[u64; 3], Vec<Point>>,
    /// Start points of edges, in the order of their addition.
    starts: Vec<Point>,
}

impl EdgeSet {
    /// Adds an edge, or removes the opposite edge if there is one.
    fn add(&mut self, from: Point, to: Point) {
        if !self.remove(&to, &from) {
            self.starts.push(from);
            self.ends.entry(bits(&from)).or_default().push(to);
        }
    }

    fn remove(&mut self, from: &Point, to: &Point) -> bool {
        let Some(ends) = self.ends.get_mut(&bits(from)) else { return false };
        let Some(i) = ends.iter().position(|end| end == to) else { return false };
        ends.remove(i);
        true
    }

    /// Removes and returns a ring through `start`; `None` if no edge leaves it. Fails at a vertex without an
    /// outgoing edge.
    fn take_ring(&mut self, start: &Point, cancel: &Cancel) -> Result<Option<Vec<Point>>, ShapeError> {
        let Some(next) = self.ends.get(&bits(start)).and_then(|ends| ends.iter().min()) else {
            return Ok(None);
        };
        let mut path = vec![*start, *next];
        let mut positions = HashMap::from([(bits(next), 1)]);
        loop {
            ShapeError::check_cancel(cancel)?;
            let (before, at) = (path[path.len() - 2], path[path.len() - 1]);
            let next = self.leftmost(&before, &at).ok_or(ShapeError::UnusedEdges)?;
            if let Some(first) = positions.get(&bits(&next)).copied() {
                let ring = path.split_off(first);
                for (i, from) in ring.iter().enumerate() {
                    self.remove(from, &ring[(i + 1) % ring.len()]);
                }
                return Ok(Some(ring));
            }
            positions.insert(bits(&next), path.len());
            path.push(next);
        }
    }

    fn leftmost(&self, before: &Point, at: &Point) -> Option<Point> {
        let mut best: Option<Point> = None;
        for end in self.ends.get(&bits(at))?.iter().filter(|end| *end != before) {
            if best.is_none_or(|best| in_order(before, &best, end, at)) {
                best = Some(*end);
            }
        }
        best
    }
}
