//! Geodesics (shortest paths) on an ellipsoid.
//!
//! Karney's algorithms ("Algorithms for geodesics", J. Geodesy 87, 2013), with the order of operations of his C
//! routines of 2013, Copyright (c) 2012-2013 Charles Karney, MIT licence (see `LICENSE` beside this file).
//! RethinkDB used these routines, and results are compared digit by digit; newer versions, such as the crate
//! geographiclib-rs that the tests compare with, differ in the last two digits. Supports only oblate ellipsoids,
//! and only lengths and end points of paths.

mod inverse;
mod series;

use std::f64::consts::PI;

use super::ellipsoid::Ellipsoid;
use super::sphere::LonLat;
use series::{C1, C3, longitude_coefficients, scale_a3};

/// A degree in radians.
const DEGREE: f64 = PI / 180.0;

/// A negligible cosine that keeps quotients finite at the poles.
fn tiny() -> f64 {
    f64::MIN_POSITIVE.sqrt()
}

/// Measures along geodesics of one ellipsoid.
#[derive(Clone, Debug)]
pub struct Geodesic {
    /// The radius of the equator.
    a: f64,
    /// The distance from the centre to a pole.
    b: f64,
    /// The flattening.
    f: f64,
    /// `b / a`
    f1: f64,
    /// The square of the second eccentricity.
    ep2: f64,
    /// The third flattening.
    n: f64,
    /// Paths with a smaller angle are measured as on a sphere.
    short: f64,
    a3: [f64; 6],
    c3: [f64; 15],
}

impl Geodesic {
    #[must_use]
    pub fn new(ellipsoid: &Ellipsoid) -> Self {
        let (a, f) = (ellipsoid.equator_m, ellipsoid.flattening);
        let f1 = 1.0 - f;
        let e2 = f * (2.0 - f);
        let n = f / (2.0 - f);
        let short = 0.1 * f64::EPSILON.sqrt() / (f.max(0.001) * (1.0 - f / 2.0).min(1.0) / 2.0).sqrt();
        let (a3, c3) = longitude_coefficients(n);
        Geodesic { a, b: a * f1, f, f1, ep2: e2 / (f1 * f1), n, short, a3, c3 }
    }

    /// The sine and cosine of the reduced latitude.
    fn reduced(&self, lat: f64) -> (f64, f64) {
        let phi = lat * DEGREE;
        let cosine = if lat.abs() == 90.0 { tiny() } else { phi.cos() };
        normalized(self.f1 * phi.sin(), cosine)
    }

    /// The parameter of the series, for `k2`.
    fn epsilon(k2: f64) -> f64 {
        k2 / (2.0 * (1.0 + (1.0 + k2).sqrt()) + k2)
    }

    /// The end point of a path of this length and direction, in degrees east of north.
    #[must_use]
    pub fn end(&self, from: LonLat, azimuth: f64, distance_m: f64) -> LonLat {
        let azimuth = round_angle(normalize_angle(azimuth));
        let alp1 = azimuth * DEGREE;
        let salp1 = if azimuth == -180.0 { 0.0 } else { alp1.sin() };
        let calp1 = if azimuth.abs() == 90.0 { 0.0 } else { alp1.cos() };
        let (sbet1, cbet1) = self.reduced(from.lat);
        let (salp0, calp0) = (salp1 * cbet1, hypotenuse(calp1, salp1 * sbet1));
        let comg1 = if sbet1 != 0.0 || calp1 != 0.0 { cbet1 * calp1 } else { 1.0 };
        let somg1 = salp0 * sbet1;
        let (ssig1, csig1) = normalized(sbet1, comg1);
        let k2 = calp0 * calp0 * self.ep2;
        let eps = Self::epsilon(k2);
        let c1 = C1::new(eps);
        let b11 = c1.sum(ssig1, csig1);
        let (s, c) = (b11.sin(), b11.cos());
        let (stau1, ctau1) = (ssig1 * c + csig1 * s, csig1 * c - ssig1 * s);

        let a1 = 1.0 + series::scale_a1(eps);
        let tau12 = distance_m / (self.b * a1);
        let (s, c) = (tau12.sin(), tau12.cos());
        let b12 = -series::reverted(eps, stau1 * c + ctau1 * s, ctau1 * c - stau1 * s);
        let mut sig12 = tau12 - (b12 - b11);
        let (mut ssig12, mut csig12) = (sig12.sin(), sig12.cos());
        if self.f > 0.01 {
            // The reverted series is not accurate enough: add one step of Newton's method.
            let ssig2 = ssig1 * csig12 + csig1 * ssig12;
            let csig2 = csig1 * csig12 - ssig1 * ssig12;
            let b12 = c1.sum(ssig2, csig2);
            let error = a1 * (sig12 + (b12 - b11)) - distance_m / self.b;
            sig12 -= error / (1.0 + k2 * (ssig2 * ssig2)).sqrt();
            (ssig12, csig12) = (sig12.sin(), sig12.cos());
        }
        let ssig2 = ssig1 * csig12 + csig1 * ssig12;
        let mut csig2 = csig1 * csig12 - ssig1 * ssig12;
        let sbet2 = calp0 * ssig2;
        let mut cbet2 = hypotenuse(salp0, calp0 * csig2);
        if cbet2 == 0.0 {
            cbet2 = tiny();
            csig2 = cbet2;
        }
        let (somg2, comg2) = (salp0 * ssig2, csig2);
        let omg12 = (somg2 * comg1 - comg2 * somg1).atan2(comg2 * comg1 + somg2 * somg1);
        let c3 = C3::new(&self.c3, eps);
        let a3c = -self.f * salp0 * scale_a3(&self.a3, eps);
        let lam12 = omg12 + a3c * (sig12 + (c3.sum(ssig2, csig2) - c3.sum(ssig1, csig1)));
        let lon12 = normalize_angle((lam12 / DEGREE) % 360.0);
        LonLat {
            lon: normalize_angle(normalize_angle(from.lon) + lon12),
            lat: sbet2.atan2(self.f1 * cbet2) / DEGREE,
        }
    }
}

fn hypotenuse(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

/// Scales a sine and a cosine so that the sum of their squares is 1.
fn normalized(sine: f64, cosine: f64) -> (f64, f64) {
    let r = hypotenuse(sine, cosine);
    (sine / r, cosine / r)
}

/// Normalises an angle from -540 to less than 540 degrees to -180 to less than 180.
fn normalize_angle(degrees: f64) -> f64 {
    if degrees >= 180.0 {
        degrees - 360.0
    } else if degrees < -180.0 {
        degrees + 360.0
    } else {
        degrees
    }
}

/// Rounds an angle so that its difference from zero cannot underflow.
fn round_angle(degrees: f64) -> f64 {
    const Z: f64 = 1.0 / 16.0;
    let y = degrees.abs();
    let y = if y < Z { Z - (Z - y) } else { y };
    if degrees < 0.0 { -y } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random numbers from -1 to 1, determined by a seed.
    fn chances(seed: u64) -> impl Iterator<Item = f64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        })
    }

    #[test]
    fn agrees_with_another_implementation_to_a_few_nanometres() {
        use geographiclib_rs::{DirectGeodesic, InverseGeodesic};
        let ours = Geodesic::new(&Ellipsoid::WGS84);
        let other = geographiclib_rs::Geodesic::wgs84();
        let mut chance = chances(20_814);
        let mut place = || LonLat {
            lon: chance.next().unwrap_or_default() * 180.0,
            lat: chance.next().unwrap_or_default() * 90.0,
        };
        for _ in 0..20_000 {
            let (a, b) = (place(), place());
            let expected: f64 = other.inverse(a.lat, a.lon, b.lat, b.lon);
            let found = ours.distance_m(a, b);
            assert!((found - expected).abs() < 2e-8, "{a:?} to {b:?}: {found} {expected}");
            let (azimuth, distance) = (b.lon, (b.lat + 90.0) * 50_000.0);
            let (lat, lon): (f64, f64) = other.direct(a.lat, a.lon, azimuth, distance);
            let end = ours.end(a, azimuth, distance);
            let apart = ours.distance_m(end, LonLat { lon, lat });
            assert!(apart < 3e-8, "{a:?} {azimuth} {distance}: {end:?} {lon} {lat}");
        }
    }

    #[test]
    fn nearly_opposite_places_and_flat_ellipsoids_have_a_distance() {
        let mut chance = chances(5);
        let mut next = || chance.next().unwrap_or_default();
        for flattening in [0.0, 1.0 / 298.257_223_563, 0.1, 0.5, 0.99] {
            let ellipsoid = Ellipsoid { equator_m: 1.0, flattening };
            let geodesic = Geodesic::new(&ellipsoid);
            for _ in 0..500 {
                let from = LonLat { lon: next() * 180.0, lat: next() * 90.0 };
                let lon = if from.lon > 0.0 { from.lon - 180.0 } else { from.lon + 180.0 };
                let to = LonLat { lon: lon + next() * 1e-3, lat: -from.lat + next() * 1e-3 };
                let distance = geodesic.distance_m(from, to);
                assert!(distance.is_finite() && distance > 0.0, "{ellipsoid:?} {from:?} {to:?} {distance}");
            }
        }
    }
}
