//! Shapes as corners and edges on the sphere: intersection, inclusion and distance.

use super::sphere::{self, Arc, Vector, crosses, is_around, is_on};
use super::vincenty::{LonLat, between};
use crate::evaluator::args;
use crate::fault::{Fault, Out};
use crate::value::Val;

/// The type and the coordinates of a shape.
pub(super) fn shape(value: &Val) -> Out<(String, Val)> {
    match value {
        Val::Shape(kind, coordinates) => Ok((kind.clone(), coordinates.as_ref().clone())),
        // Any pseudotype is accepted first and then lacks the field `type`. Source: datum.cc.
        Val::Time(..) => Err(Fault::missing("no such field")),
        Val::Binary(_) => Err(Fault::logic("bytes are no object")),
        _ => Err(Fault::logic("not a GEOMETRY pseudotype")),
    }
}

/// A pair of numbers as a place.
pub(super) fn place(coordinates: &Val) -> Out<LonLat> {
    match coordinates {
        Val::Array(items) if items.len() == 2 => Ok((args::number(&items[0])?, args::number(&items[1])?)),
        _ => Err(Fault::unspecified("strange coordinates")),
    }
}

/// Pairs of numbers as places.
pub(super) fn places(coordinates: &Val) -> Out<Vec<LonLat>> {
    match coordinates {
        Val::Array(items) => items.iter().map(place).collect(),
        _ => Err(Fault::unspecified("strange coordinates")),
    }
}

/// Fails for a ring that intersects itself; no verdict if it nearly does.
pub(super) fn check_ring(ring: &[LonLat]) -> Out<()> {
    let corners = &ring[..ring.len().saturating_sub(1)];
    if corners.len() < 3 {
        return Err(Fault::unspecified("a ring of two places"));
    }
    let mut seen: Vec<LonLat> = Vec::new();
    for corner in corners {
        if seen.contains(corner) {
            return Err(Fault::logic("a place twice"));
        }
        seen.push(*corner);
    }
    let edges = arcs(&points(ring));
    for (i, edge) in edges.iter().enumerate() {
        let apart = |p: &Vector| *p != edge.0 && *p != edge.1;
        if points(corners).into_iter().filter(apart).any(|corner| is_on(corner, *edge)) {
            return Err(Fault::unspecified("a flat corner"));
        }
        if edges[..i]
            .iter()
            .filter(|other| apart(&other.0) && apart(&other.1))
            .any(|other| crosses(*edge, *other))
        {
            return Err(Fault::logic("a ring that crosses itself"));
        }
    }
    Ok(())
}

fn points(places: &[LonLat]) -> Vec<Vector> {
    places.iter().map(|place| sphere::point(*place)).collect()
}

/// The arcs from each point to the next.
fn arcs(points: &[Vector]) -> Vec<Arc> {
    points.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A shape as points, edges, and filled rings.
struct Outline {
    points: Vec<Vector>,
    edges: Vec<Arc>,
    rings: Vec<Vec<Vector>>,
}

impl Outline {
    fn of(value: &Val) -> Out<Outline> {
        let (kind, coordinates) = shape(value)?;
        Ok(match kind.as_str() {
            "Point" => {
                let point = sphere::point(place(&coordinates)?);
                Outline { points: vec![point], edges: Vec::new(), rings: Vec::new() }
            }
            "LineString" => {
                let points = points(&places(&coordinates)?);
                Outline { edges: arcs(&points), points, rings: Vec::new() }
            }
            _ => {
                let Val::Array(rings) = &coordinates else { return Err(Fault::unspecified("strange rings")) };
                let rings: Vec<Vec<Vector>> =
                    rings.iter().map(|ring| Ok(points(&places(ring)?))).collect::<Out<_>>()?;
                Outline {
                    points: rings.concat(),
                    edges: rings.iter().flat_map(|ring| arcs(ring)).collect(),
                    rings,
                }
            }
        })
    }

    /// Whether a point is inside: an odd number of rings is around it.
    fn holds(&self, p: Vector) -> bool {
        self.rings.iter().filter(|ring| is_around(ring, p)).count() % 2 == 1
    }

    /// Fails where a corner of one is on an edge of the other.
    fn check_clear(&self, other: &Outline) -> Out<()> {
        let near =
            |a: &Outline, b: &Outline| a.points.iter().any(|p| b.edges.iter().any(|edge| is_on(*p, *edge)));
        if near(self, other) || near(other, self) { Err(Fault::unspecified("on an edge")) } else { Ok(()) }
    }

    /// Whether an edge of one crosses one of the other.
    fn crosses(&self, other: &Outline) -> bool {
        self.edges.iter().any(|edge| other.edges.iter().any(|other| crosses(*edge, *other)))
    }
}

/// Whether two shapes have a point in common.
pub(super) fn meet(a: &Val, b: &Val) -> Out<bool> {
    let (a, b) = (Outline::of(a)?, Outline::of(b)?);
    if a.edges.is_empty() && b.edges.is_empty() {
        return Ok(a.points == b.points);
    }
    a.check_clear(&b)?;
    let within = |a: &Outline, b: &Outline| a.points.first().is_some_and(|p| b.holds(*p));
    Ok(a.crosses(&b) || within(&a, &b) || within(&b, &a))
}

/// Whether one shape is inside of another.
pub(super) fn contains(outer: &Val, inner: &Val) -> Out<bool> {
    let (outer, inner) = (Outline::of(outer)?, Outline::of(inner)?);
    outer.check_clear(&inner)?;
    if outer.rings.len() > 1 && !inner.rings.is_empty() {
        return Err(Fault::unspecified("a hole inside of a shape"));
    }
    Ok(!outer.crosses(&inner) && inner.points.iter().all(|p| outer.holds(*p)))
}

/// Metres from a point to a shape: zero from inside, otherwise the distance to the nearest point of its edges. That point
/// is the nearest on the sphere; the distance is measured on the ellipsoid.
/// Source: geo/distances.cc.
pub(super) fn far(from: LonLat, other: &Val, earth: (f64, f64)) -> Out<f64> {
    let (kind, coordinates) = shape(other)?;
    if kind == "Point" {
        return between(from, place(&coordinates)?, earth);
    }
    let (p, outline) = (sphere::point(from), Outline::of(other)?);
    if outline.edges.iter().any(|edge| is_on(p, *edge)) {
        return Err(Fault::unspecified("on an edge"));
    }
    if outline.holds(p) {
        return Ok(0.0);
    }
    let feet: Vec<(f64, Vector)> = outline
        .edges
        .iter()
        .map(|edge| sphere::foot(p, *edge))
        .map(|foot| (sphere::angle(p, foot), foot))
        .collect();
    let Some((least, nearest)) = feet.iter().copied().min_by(|(a, _), (b, _)| a.total_cmp(b)) else {
        return Err(Fault::unspecified("a shape without edges"));
    };
    let as_near =
        |(angle, foot): &(f64, Vector)| angle - least < 1e-12 && sphere::angle(*foot, nearest) > 1e-9;
    if feet.iter().any(as_near) {
        return Err(Fault::unspecified("edges at the same distance"));
    }
    between(from, sphere::place(nearest), earth)
}
