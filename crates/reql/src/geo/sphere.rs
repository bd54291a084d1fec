//! Points of the unit sphere, and measurements of the edges between them.
//!
//! An edge is the shorter arc of the great circle through two points. The formulas follow S2 as RethinkDB used it,
//! operation for operation: whether a point lies *on* an edge is decided by comparing coordinates, so that sums in
//! another order would give other results.

use s2::r3::vector::Vector;

/// A point of the unit sphere: a vector of length one.
pub type Point = Vector;

/// A position in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LonLat {
    /// Degrees east, from -180 to 180.
    pub lon: f64,
    /// Degrees north, from -90 to 90.
    pub lat: f64,
}

impl LonLat {
    /// The point of the sphere at this position; 180° east becomes 180° west.
    #[must_use]
    pub fn to_point(self) -> Point {
        let lon = if self.lon == 180.0 { -180.0 } else { self.lon };
        let (lat, lon) = (radians(self.lat), radians(lon));
        let radius = lat.cos();
        Point::new(lon.cos() * radius, lon.sin() * radius, lat.sin())
    }

    /// The position of a point.
    #[must_use]
    pub fn of_point(point: &Point) -> Self {
        let lat = point.z.atan2((point.x * point.x + point.y * point.y).sqrt());
        LonLat { lon: degrees(point.y.atan2(point.x)), lat: degrees(lat) }
    }
}

fn radians(degrees: f64) -> f64 {
    degrees * (std::f64::consts::PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians * (180.0 / std::f64::consts::PI)
}

/// A vector perpendicular to both points, accurate also for points that nearly coincide.
pub(super) fn normal(a: &Point, b: &Point) -> Vector {
    let cross = (b + a).cross(&(b - a));
    if cross == Vector::default() { a.ortho() } else { cross }
}

/// The angle between two vectors, in radians.
pub(super) fn angle(a: &Vector, b: &Vector) -> f64 {
    a.cross(b).norm().atan2(a.dot(b))
}

/// Whether three vectors turn left. Not exact: subject to rounding.
pub(super) fn turns_left(a: &Vector, b: &Vector, c: &Vector) -> bool {
    c.cross(a).dot(b) > 0.0
}

/// The distance of `x` from the edge `ab`, in radians.
pub(super) fn distance_to_edge(x: &Point, a: &Point, b: &Point) -> f64 {
    let normal = normal(a, b);
    if turns_left(&normal, a, x) && turns_left(x, b, &normal) {
        let sine = x.dot(&normal).abs() / normal.norm();
        return sine.min(1.0).asin();
    }
    let nearest = (x - a).norm2().min((x - b).norm2());
    2.0 * (0.5 * nearest.sqrt()).min(1.0).asin()
}

/// The point of the edge `ab` that is nearest to `x`.
pub(super) fn nearest_on_edge(x: &Point, a: &Point, b: &Point) -> Point {
    let normal = normal(a, b);
    let foot = x - &(normal * (x.dot(&normal) / normal.norm2()));
    if turns_left(&normal, a, &foot) && turns_left(&foot, b, &normal) {
        return foot.normalize();
    }
    if (x - a).norm2() <= (x - b).norm2() { *a } else { *b }
}

/// The fraction, from 0 to 1, of the edge `ab` at which its point `x` lies.
pub(super) fn fraction_along(x: &Point, a: &Point, b: &Point) -> f64 {
    let (from_a, from_b) = (angle(x, a), angle(x, b));
    from_a / (from_a + from_b)
}

/// The edge nearest to a point.
pub(super) fn nearest_edge<'a>(
    edges: impl Iterator<Item = (&'a Point, &'a Point)>,
    point: &Point,
) -> Option<(&'a Point, &'a Point)> {
    let mut nearest = None;
    let mut distance_min = f64::INFINITY;
    for (a, b) in edges {
        let distance = distance_to_edge(point, a, b);
        if distance < distance_min {
            distance_min = distance;
            nearest = Some((a, b));
        }
    }
    nearest
}
