//! The sphere on which edges are drawn: the shorter arcs of great circles, as vectors.
//!
//! Relations of shapes and the nearest points of edges are computed on the sphere (S2 in RethinkDB); lengths are measured
//! on the ellipsoid. Degrees become angles without a correction for the ellipsoid.

use super::vincenty::LonLat;

/// A point of the unit sphere, or a direction.
pub(super) type Vector = [f64; 3];

/// An arc from one point to another.
pub(super) type Arc = (Vector, Vector);

/// The distance in radians within which another rounding may put a point on an arc: six millimetres.
const NEAR: f64 = 1e-9;

pub(super) fn point((longitude, latitude): LonLat) -> Vector {
    let (sin, cos) = longitude.to_radians().sin_cos();
    let (up, out) = latitude.to_radians().sin_cos();
    [out * cos, out * sin, up]
}

/// A point as a place.
pub(super) fn place([x, y, z]: Vector) -> LonLat {
    (y.atan2(x).to_degrees(), z.atan2(x.hypot(y)).to_degrees())
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

fn sum(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn times(a: Vector, n: f64) -> Vector {
    a.map(|part| part * n)
}

fn length(a: Vector) -> f64 {
    dot(a, a).sqrt()
}

/// The angle between two points.
pub(super) fn angle(a: Vector, b: Vector) -> f64 {
    length(cross(a, b)).atan2(dot(a, b))
}

/// The point of an arc that is nearest to `p`.
pub(super) fn foot(p: Vector, (from, to): Arc) -> Vector {
    // The arc by its angle t, up to `whole`: cos(t) from + sin(t) ahead.
    let whole = angle(from, to);
    let ahead = sum(to, times(from, -dot(from, to)));
    let ahead = times(ahead, 1.0 / length(ahead));
    let t = dot(p, ahead).atan2(dot(p, from));
    if (0.0..=whole).contains(&t) {
        return sum(times(from, t.cos()), times(ahead, t.sin()));
    }
    if angle(p, from) <= angle(p, to) { from } else { to }
}

/// Whether a point lies on an arc, within the rounding.
pub(super) fn is_on(p: Vector, arc: Arc) -> bool {
    angle(p, foot(p, arc)) < NEAR
}

/// Whether two arcs of less than a quarter of the earth cross, where no end of one is on the other.
pub(super) fn crosses(a: Arc, b: Arc) -> bool {
    let side = |arc: Arc, p: Vector| dot(cross(arc.0, arc.1), p);
    let apart = |arc: Arc, other: Arc| side(arc, other.0) * side(arc, other.1) < 0.0;
    // Great circles intersect twice, also on the other side of the earth.
    apart(a, b) && apart(b, a) && dot(sum(a.0, a.1), sum(b.0, b.1)) > 0.0
}

/// Whether a small ring goes around a point: the turns from corner to corner, as seen from the point, add up to a full
/// turn.
pub(super) fn is_around(ring: &[Vector], p: Vector) -> bool {
    let turn = |pair: &[Vector]| {
        let (a, b) = (pair[0], pair[1]);
        dot(p, cross(a, b)).atan2(dot(a, b) - dot(a, p) * dot(b, p))
    };
    let turns: f64 = ring.windows(2).map(turn).sum();
    // The antipodal point sees the same turns.
    let middle = ring.iter().copied().fold([0.0; 3], sum);
    turns.abs() > std::f64::consts::PI && dot(p, middle) > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_point_of_a_parallel_of_latitude_lies_further_north() {
        // Of the arc between two places at 40° north the middle is nearest to the pole.
        let arc = (point((0.0, 40.0)), point((40.0, 40.0)));
        let (longitude, latitude) = place(foot(point((20.0, 80.0)), arc));
        assert!((longitude - 20.0).abs() < 1e-9, "{longitude}");
        assert!((latitude - 41.7633).abs() < 1e-4, "{latitude}");
        assert_eq!(foot(point((-30.0, 40.0)), arc), arc.0);
    }

    #[test]
    fn arcs_cross_on_one_side_of_the_earth() {
        let arc = |a, b| (point(a), point(b));
        let equator = arc((0.0, 0.0), (10.0, 0.0));
        assert!(crosses(equator, arc((5.0, -5.0), (5.0, 5.0))));
        assert!(!crosses(equator, arc((-175.0, -5.0), (-175.0, 5.0))));
        assert!(!crosses(equator, arc((12.0, -5.0), (12.0, 5.0))));
    }

    #[test]
    fn a_ring_is_around_what_is_in_it_and_not_around_the_other_side() {
        let ring = [(0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 0.0)].map(point);
        assert!(is_around(&ring, point((8.0, 3.0))));
        assert!(!is_around(&ring, point((3.0, 8.0))));
        assert!(!is_around(&ring, point((-172.0, -3.0))));
    }
}
