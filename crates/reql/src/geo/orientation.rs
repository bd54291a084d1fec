//! Exact predicates: the orientation of three points, crossings of edges, and the relation of corners.
//!
//! Orientations are exact. Three points on one great circle are resolved as if each had been moved by its own
//! infinitesimal amount, so that results never contradict one another.
//!
//! Source: Edelsbrunner and Mücke, "Simulation of Simplicity"; S2's predicates.

use robust::{Coord, Coord3D, orient2d, orient3d};
use s2::r3::vector::Vector;

use super::sphere::{Point, angle, normal, turns_left};

/// A computed determinant farther from zero than this has the right sign.
const DETERMINANT_ERROR: f64 = 1.6e-15;

/// The orientation of `abc`: 1 for a left turn, -1 for a right turn, 0 if and only if two of the points are equal.
pub(super) fn orientation(a: &Point, b: &Point, c: &Point) -> i32 {
    orientation_with(a, b, c, &a.cross(b))
}

fn orientation_with(a: &Point, b: &Point, c: &Point, a_cross_b: &Vector) -> i32 {
    let determinant = a_cross_b.dot(c);
    if determinant > DETERMINANT_ERROR {
        1
    } else if determinant < -DETERMINANT_ERROR {
        -1
    } else {
        exact_turn(a, b, c)
    }
}

fn exact_turn(a: &Point, b: &Point, c: &Point) -> i32 {
    if a == b || b == c || c == a {
        return 0;
    }
    let mut points = [*a, *b, *c];
    let mut swaps = 1;
    for (i, j) in [(0, 1), (1, 2), (0, 1)] {
        if points[i] > points[j] {
            points.swap(i, j);
            swaps = -swaps;
        }
    }
    let [a, b, c] = points;
    let sign = match sign(exact_determinant(&a, &b, &c)) {
        0 => perturbed_orientation(&a, &b, &c),
        sign => sign,
    };
    swaps * sign
}

/// The determinant of three points, with an exact sign: zero if they are on one great circle.
fn exact_determinant(a: &Point, b: &Point, c: &Point) -> f64 {
    let coordinates = |v: &Vector| Coord3D { x: v.x, y: v.y, z: v.z };
    let origin = Coord3D { x: 0.0, y: 0.0, z: 0.0 };
    orient3d(coordinates(a), coordinates(b), coordinates(c), origin)
}

/// Whether `x` is exactly on the edge `ab`, its ends included.
pub(super) fn is_on_edge(x: &Point, a: &Point, b: &Point) -> bool {
    if x == a || x == b {
        return true;
    }
    let may_be = a.cross(b).dot(x).abs() <= DETERMINANT_ERROR;
    let normal = normal(a, b);
    may_be && turns_left(&normal, a, x) && turns_left(x, b, &normal) && sign(exact_determinant(a, b, x)) == 0
}

/// The orientation of three different points of one great circle, in ascending order: the sign of the first
/// non-zero coefficient of the determinant, in descending order of the perturbations they belong to.
fn perturbed_orientation(a: &Point, b: &Point, c: &Point) -> i32 {
    let coefficients: [&dyn Fn() -> f64; 12] = [
        &|| minor((b.x, b.y), (c.x, c.y)),
        &|| minor((b.z, b.x), (c.z, c.x)),
        &|| minor((b.y, b.z), (c.y, c.z)),
        &|| minor((c.x, c.y), (a.x, a.y)),
        &|| c.x,
        &|| -c.y,
        &|| minor((c.z, c.x), (a.z, a.x)),
        &|| c.z,
        &|| minor((a.x, a.y), (b.x, b.y)),
        &|| -b.x,
        &|| b.y,
        &|| a.x,
    ];
    coefficients.iter().map(|coefficient| sign(coefficient())).find(|sign| *sign != 0).unwrap_or(1)
}

/// `p.0 * q.1 - p.1 * q.0`, with an exact sign.
fn minor(p: (f64, f64), q: (f64, f64)) -> f64 {
    let at = |(x, y)| Coord { x, y };
    orient2d(at(p), at(q), at((0.0, 0.0)))
}

fn sign(number: f64) -> i32 {
    i32::from(number > 0.0) - i32::from(number < 0.0)
}

/// Whether a counterclockwise sweep around `o` that starts at `a` reaches `b` no later than `c`.
pub(super) fn in_order(a: &Point, b: &Point, c: &Point, o: &Point) -> bool {
    let steps = [orientation(b, o, a) >= 0, orientation(c, o, b) >= 0, orientation(a, o, c) > 0];
    steps.into_iter().filter(|step| *step).count() >= 2
}

/// The turning angle of the path `abc` at `b`, in radians; positive to the left.
pub(super) fn turn_angle(a: &Point, b: &Point, c: &Point) -> f64 {
    let angle = angle(&normal(b, a), &normal(c, b));
    if orientation(a, b, c) > 0 { angle } else { -angle }
}

/// The relation of two edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    /// They do not meet.
    Apart,
    /// They share an end point.
    AtVertex,
    /// They cross in the interior of both.
    Proper,
}

/// Compares one edge with the edges of a chain.
pub(super) struct Crosser {
    a: Point,
    b: Point,
    a_cross_b: Vector,
    c: Point,
    /// The orientation of `a`, `c`, `b`.
    acb: i32,
}

impl Crosser {
    /// For the edge `ab`, and a chain that begins at `c`.
    pub(super) fn new(a: &Point, b: &Point, c: &Point) -> Self {
        let a_cross_b = a.cross(b);
        Crosser { a: *a, b: *b, a_cross_b, c: *c, acb: -orientation_with(a, b, c, &a_cross_b) }
    }

    /// The relation of the edge to the chain's next edge, which ends at `d`.
    pub(super) fn crossing(&mut self, d: &Point) -> Crossing {
        let bda = orientation_with(&self.a, &self.b, d, &self.a_cross_b);
        let crossing = if bda == 0 || self.acb == 0 {
            Crossing::AtVertex
        } else if bda != self.acb {
            Crossing::Apart
        } else {
            self.crossing_of_sides(d)
        };
        self.c = *d;
        self.acb = -bda;
        crossing
    }

    fn crossing_of_sides(&self, d: &Point) -> Crossing {
        let c_cross_d = self.c.cross(d);
        let turns = |p| orientation_with(&self.c, d, p, &c_cross_d);
        if -turns(&self.b) == self.acb && turns(&self.a) == self.acb {
            Crossing::Proper
        } else {
            Crossing::Apart
        }
    }

    /// Whether the edge crosses the chain at its next edge, which ends at `d`. Where only end points meet, exactly
    /// one of the edges around the vertex counts.
    pub(super) fn passes(&mut self, d: &Point) -> bool {
        let c = self.c;
        match self.crossing(d) {
            Crossing::Apart => false,
            Crossing::Proper => true,
            Crossing::AtVertex => vertex_crossing(&self.a, &self.b, &c, d),
        }
    }
}

/// The relation of the edges `ab` and `cd`.
pub(super) fn crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> Crossing {
    Crosser::new(a, b, c).crossing(d)
}

/// Whether edges that share an end point count as crossing there: if `ab` comes after `cd` in a sweep around that
/// point from a fixed direction.
pub(super) fn vertex_crossing(a: &Point, b: &Point, c: &Point, d: &Point) -> bool {
    if a == b || c == d {
        return false;
    }
    if a == d {
        return in_order(&a.ortho(), c, b, a);
    }
    if b == c {
        return in_order(&b.ortho(), d, a, b);
    }
    if a == c {
        return in_order(&a.ortho(), d, b, a);
    }
    b == d && in_order(&b.ortho(), c, a, b)
}

/// The point where the edges `ab` and `cd`, which cross properly, intersect.
pub(super) fn intersection(a: &Point, b: &Point, c: &Point, d: &Point) -> Point {
    let (ab, cd) = (normal(a, b).normalize(), normal(c, d).normalize());
    let mut x = normal(&ab, &cd).normalize();
    if x.dot(&((a + b) + (c + d))) < 0.0 {
        x = x * -1.0;
    }
    if in_order(a, &x, b, &ab) && in_order(c, &x, d, &cd) {
        return x;
    }
    // The great circles are nearly the same: use the nearest end point that lies on the other edge.
    let ends = [
        (a, in_order(c, a, d, &cd)),
        (b, in_order(c, b, d, &cd)),
        (c, in_order(a, c, b, &ab)),
        (d, in_order(a, d, b, &ab)),
    ];
    let mut nearest = (10.0, x);
    for (end, _) in ends.into_iter().filter(|(_, lies_on)| *lies_on) {
        let distance = (x - *end).norm2();
        if distance < nearest.0 || (distance == nearest.0 && *end < nearest.1) {
            nearest = (distance, *end);
        }
    }
    nearest.1
}

/// Two corners at the same vertex: the incoming and outgoing edges of a ring `a` and a ring `b`, each with its
/// interior to the left.
pub(super) struct Corners<'a> {
    /// The vertex.
    pub(super) at: &'a Point,
    /// The vertices before and after it in `a`.
    pub(super) a: (&'a Point, &'a Point),
    /// The vertices before and after it in `b`.
    pub(super) b: (&'a Point, &'a Point),
}

/// The relation of two corners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    Equal,
    /// The first contains the second.
    Contains,
    /// The second contains the first.
    Contained,
    /// They intersect, but neither contains the other.
    Partial,
    /// They do not intersect.
    Disjoint,
}

impl Corners<'_> {
    /// Whether the corner of `a` contains that of `b`.
    pub(super) fn contains(&self) -> bool {
        let ((a0, a2), (b0, b2)) = (self.a, self.b);
        in_order(a2, b2, b0, self.at) && in_order(b0, a0, a2, self.at)
    }

    pub(super) fn intersects(&self) -> bool {
        let ((a0, a2), (b0, b2)) = (self.a, self.b);
        !(in_order(a0, b2, b0, self.at) && in_order(b0, a2, a0, self.at))
    }

    /// The relation of the corners.
    pub(super) fn overlap(&self) -> Overlap {
        let ((a0, a2), (b0, b2)) = (self.a, self.b);
        if a0 == b0 && a2 == b2 {
            return Overlap::Equal;
        }
        if in_order(a0, a2, b2, self.at) {
            if in_order(b2, b0, a0, self.at) {
                return Overlap::Contains;
            }
            return if a2 == b2 { Overlap::Contained } else { Overlap::Partial };
        }
        if in_order(a0, b0, b2, self.at) {
            return Overlap::Contained;
        }
        if in_order(a0, b0, a2, self.at) { Overlap::Disjoint } else { Overlap::Partial }
    }
}
