//! Lengths: units, distances and circles.

use super::ellipsoid::Ellipsoid;
use super::geodesic::Geodesic;
use super::sphere::{LonLat, Point};
use super::{Shape, ShapeError};

/// A unit of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `m`
    Metre,
    /// `km`
    Kilometre,
    /// `mi`: international mile
    Mile,
    /// `nm`
    NauticalMile,
    /// `ft`: international foot
    Foot,
}

impl Unit {
    /// The unit of this name.
    pub fn named(name: &str) -> Result<Self, ShapeError> {
        Ok(match name {
            "m" => Unit::Metre,
            "km" => Unit::Kilometre,
            "mi" => Unit::Mile,
            "nm" => Unit::NauticalMile,
            "ft" => Unit::Foot,
            _ => return Err(ShapeError::Unit(name.to_owned())),
        })
    }

    fn metres(self) -> f64 {
        match self {
            Unit::Metre => 1.0,
            Unit::Kilometre => 1000.0,
            Unit::Mile => 1609.344,
            Unit::NauticalMile => 1852.0,
            Unit::Foot => 0.3048,
        }
    }

    /// A length of this unit in metres.
    #[must_use]
    pub fn to_m(self, length: f64) -> f64 {
        length * self.metres()
    }

    /// A length in metres in this unit.
    #[must_use]
    pub fn of_m(self, metres: f64) -> f64 {
        // The factor is computed first: the last digits of RethinkDB's results depend on it.
        metres * (1.0 / self.metres())
    }
}

/// The distance between a point and a shape in metres: 0 if the point lies in the shape or on its border. The
/// nearest point of a line or area is found on the sphere, so large distances may be slightly too long.
pub fn distance(point: &Point, shape: &Shape, ellipsoid: &Ellipsoid) -> Result<f64, ShapeError> {
    let nearest = match shape {
        Shape::Point(other) => Some(*other),
        Shape::Line(line) => line.project(point).filter(|nearest| nearest != point),
        Shape::Polygon(area) => {
            if area.is_empty() {
                return Err(ShapeError::EmptyPolygon);
            }
            area.project(point).filter(|nearest| nearest != point)
        }
    };
    let Some(nearest) = nearest else { return Ok(0.0) };
    let (from, to) = (LonLat::of_point(point), LonLat::of_point(&nearest));
    Ok(Geodesic::new(ellipsoid).distance_m(from, to))
}

/// Fails if a circle may not have this radius.
pub fn check_radius(radius_m: f64, ellipsoid: &Ellipsoid) -> Result<(), ShapeError> {
    let max = ellipsoid.radius_limit_m();
    if radius_m <= 0.0 {
        return Err(ShapeError::RadiusNotPositive);
    }
    if radius_m >= max {
        return Err(ShapeError::RadiusTooLarge { radius: radius_m, max });
    }
    Ok(())
}

/// The vertices of a circle, starting and ending due south.
pub fn circle(
    center: LonLat,
    radius_m: f64,
    vertices: usize,
    ellipsoid: &Ellipsoid,
) -> Result<Vec<LonLat>, ShapeError> {
    check_radius(radius_m, ellipsoid)?;
    let geodesic = Geodesic::new(ellipsoid);
    let azimuth = |i: usize| -180.0 + (360.0 / vertices as f64 * i as f64);
    let mut ring: Vec<LonLat> = (0..vertices).map(|i| geodesic.end(center, azimuth(i), radius_m)).collect();
    ring.extend(ring.first().copied());
    Ok(ring)
}
