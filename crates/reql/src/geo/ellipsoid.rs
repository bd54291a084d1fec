//! The figure of the earth.

/// A reference ellipsoid: its equatorial radius and its flattening.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ellipsoid {
    /// The radius of the equator, in metres.
    pub equator_m: f64,
    /// The flattening, from 0 (a sphere) to less than 1.
    pub flattening: f64,
}

impl Ellipsoid {
    /// The earth.
    pub const WGS84: Ellipsoid = Ellipsoid { equator_m: 6_378_137.0, flattening: 1.0 / 298.257_223_563 };
    /// A sphere of radius 1.
    pub const UNIT_SPHERE: Ellipsoid = Ellipsoid { equator_m: 1.0, flattening: 0.0 };

    /// The distance from the centre to a pole, in metres.
    #[must_use]
    pub fn pole_m(&self) -> f64 {
        (1.0 - self.flattening) * self.equator_m
    }

    /// Upper limit of a circle's radius, in metres: a quarter of the shortest great circle of a sphere with the
    /// smaller of the two radii.
    #[must_use]
    pub fn radius_limit_m(&self) -> f64 {
        0.5 * std::f64::consts::PI * self.equator_m.min(self.pole_m())
    }
}
