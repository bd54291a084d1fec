//! Areas: a ring with holes, and what has what inside it.

use std::collections::{HashMap, HashSet};

use super::ShapeError;
use super::path::Path;
use super::ring::{Nesting, Ring, bits};
use super::sphere::{Point, fraction_along, nearest_edge, nearest_on_edge};
use super::turn::{Crosser, Crossing, in_order, intersection, vertex_crossing};

/// A set of rings that do not cross: what is inside an odd number of them belongs to it.
#[derive(Clone, Debug)]
pub struct Polygon {
    rings: Vec<NestedRing>,
}

#[derive(Clone, Debug)]
struct NestedRing {
    ring: Ring,
    /// Whether what is inside the ring is cut out.
    is_hole: bool,
}

impl Polygon {
    /// The area inside the first ring and outside the others, each given by its vertices without
    /// the repeated first one. Edges that a hole shares with the outer ring vanish. Fails if a ring
    /// crosses itself or another.
    pub fn new(rings: Vec<Vec<Point>>) -> Result<Self, ShapeError> {
        let mut rings = rings.into_iter().map(Ring::new).collect::<Result<Vec<_>, _>>()?;
        if shares_vertices(&rings) {
            rings = reassembled(rings)?;
        }
        if shares_edges(&rings) {
            return Err(ShapeError::UnusedEdges);
        }
        for (i, ring) in rings.iter().enumerate() {
            let others = &rings[i + 1..];
            if others.iter().any(|other| ring.nesting(other) == Nesting::Crosses) {
                return Err(ShapeError::UnusedEdges);
            }
        }
        let depth = |i: usize| {
            let others = rings.iter().enumerate().filter(|(j, _)| *j != i);
            others.filter(|(_, other)| other.has_nested(&rings[i])).count()
        };
        let holes: Vec<bool> = (0..rings.len()).map(|i| depth(i) % 2 == 1).collect();
        let nested = rings.into_iter().zip(holes).map(|(ring, is_hole)| NestedRing { ring, is_hole });
        Ok(Polygon { rings: nested.collect() })
    }

    /// Whether there is nothing in it: a polygon of no rings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// The ends of all edges.
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

    /// Whether the point lies inside. A point of the border may or may not.
    #[must_use]
    pub fn contains_point(&self, point: &Point) -> bool {
        self.rings().filter(|ring| ring.contains_point(point)).count() % 2 == 1
    }

    /// The point of the area, border included, that is nearest to `point`: itself if it lies in it.
    /// `None` if the area is empty.
    pub(super) fn project(&self, point: &Point) -> Option<Point> {
        if self.contains_point(point) {
            return Some(*point);
        }
        nearest_edge(self.edges(), point).map(|(a, b)| nearest_on_edge(point, a, b))
    }

    /// Whether the point lies inside or on the border.
    #[must_use]
    pub fn touches_point(&self, point: &Point) -> bool {
        self.project(point) == Some(*point)
    }

    /// Whether everything in `other` is in it.
    #[must_use]
    pub fn contains(&self, other: &Polygon) -> bool {
        if let ([mine], [others]) = (&*self.rings, &*other.rings) {
            return mine.ring.contains(&others.ring);
        }
        if !self.has_holes() && !other.has_holes() {
            return other.rings().all(|ring| self.rings().any(|mine| mine.contains(ring)));
        }
        other.shells().all(|shell| self.nesting(shell) == Nesting::Contains)
            && self.holes().all(|hole| other.nesting(hole) == Nesting::Outside)
    }

    fn nesting(&self, ring: &Ring) -> Nesting {
        let mut inside = false;
        for mine in self.rings() {
            match mine.nesting(ring) {
                Nesting::Crosses => return Nesting::Crosses,
                Nesting::Contains => inside = !inside,
                Nesting::Outside => {}
            }
        }
        if inside { Nesting::Contains } else { Nesting::Outside }
    }

    /// Whether the insides have something in common.
    #[must_use]
    pub fn intersects(&self, other: &Polygon) -> bool {
        if !self.has_holes() && !other.has_holes() {
            return self.rings().any(|mine| other.rings().any(|ring| mine.intersects(ring)));
        }
        other.shells().any(|shell| self.intersects_ring(shell))
            || self.shells().any(|shell| other.intersects_ring(shell))
    }

    fn intersects_ring(&self, ring: &Ring) -> bool {
        let mut inside = false;
        for mine in self.rings() {
            if mine.contains(ring) {
                inside = !inside;
            } else if !ring.contains(mine) && mine.intersects(ring) {
                return true;
            }
        }
        inside
    }

    /// Whether a piece of the line lies inside.
    #[must_use]
    pub fn intersects_path(&self, path: &Path) -> bool {
        !self.is_empty() && self.has_piece(path, Side::Inside)
    }

    /// Whether no piece of the line lies outside.
    #[must_use]
    pub fn contains_path(&self, path: &Path) -> bool {
        !self.has_piece(path, Side::Outside)
    }

    /// Whether some piece of the line, longer than a point, lies on this side of the border.
    fn has_piece(&self, path: &Path, side: Side) -> bool {
        let Some(first) = path.vertices().first() else { return false };
        let mut wanted = self.contains_point(first) == (side == Side::Inside);
        for (a, b) in path.edges() {
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
                return true;
            }
        }
        false
    }

    /// Where the border meets the edge `ab`: how far along, and the point.
    fn cuts(&self, a: &Point, b: &Point) -> Vec<(f64, Point)> {
        let mut cuts = Vec::new();
        for NestedRing { ring, is_hole } in &self.rings {
            let mut crosser = Crosser::new(a, b, ring.vertex(0));
            for i in 0..ring.vertices().len() {
                let (from, to) = (ring.vertex(i), ring.vertex(i + 1));
                let crossing = crosser.crossing(to);
                // The inside of the polygon is on the left of every edge.
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

fn shares_vertices(rings: &[Ring]) -> bool {
    let mut seen = HashSet::new();
    rings.len() > 1 && !rings.iter().flat_map(Ring::vertices).all(|vertex| seen.insert(bits(vertex)))
}

/// Whether an edge belongs to two rings, whichever way it goes.
fn shares_edges(rings: &[Ring]) -> bool {
    let mut seen = HashSet::new();
    let ends = |(a, b): (Point, Point)| {
        let (a, b) = (bits(&a), bits(&b));
        if a < b { (a, b) } else { (b, a) }
    };
    rings.len() > 1 && !rings.iter().flat_map(Ring::edges).all(|edge| seen.insert(ends(edge)))
}

/// The rings of the area that is inside the first and outside the others, which meet in vertices:
/// edges that go both ways cancel, the rest is walked along its leftmost turns.
fn reassembled(rings: Vec<Ring>) -> Result<Vec<Ring>, ShapeError> {
    let mut edges = EdgeSet::default();
    for (i, ring) in rings.into_iter().enumerate() {
        let ring = if i == 0 { ring } else { ring.inverted() };
        for (from, to) in ring.edges() {
            edges.add(from, to);
        }
    }
    let mut assembled = Vec::new();
    for start in std::mem::take(&mut edges.starts) {
        while let Some(vertices) = edges.take_ring(&start)? {
            let ring = Ring::oriented(vertices);
            assembled.push(ring.smaller_side());
        }
    }
    Ok(assembled)
}

/// Directed edges by where they begin.
#[derive(Default)]
struct EdgeSet {
    ends: HashMap<[u64; 3], Vec<Point>>,
    /// Where edges begin, as they were added.
    starts: Vec<Point>,
}

impl EdgeSet {
    /// Adds an edge, or takes away the one that goes the other way.
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

    /// A ring found by leaving `start`, whose edges are taken out; `None` when no edge leaves it.
    /// Fails if an edge leads nowhere.
    fn take_ring(&mut self, start: &Point) -> Result<Option<Vec<Point>>, ShapeError> {
        let Some(next) = self.ends.get(&bits(start)).and_then(|ends| ends.iter().min()) else {
            return Ok(None);
        };
        let mut path = vec![*start, *next];
        let mut positions = HashMap::from([(bits(next), 1)]);
        loop {
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
