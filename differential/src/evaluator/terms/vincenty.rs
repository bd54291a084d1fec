//! Lengths on an ellipsoid by Vincenty's formulas of 1975, which are independent of the method of the node.

use crate::fault::{Fault, Out};

/// Longitude and latitude in degrees.
pub(super) type LonLat = (f64, f64);

/// Metres between two places: Vincenty's inverse formula.
pub(super) fn between(from: LonLat, to: LonLat, (axis, flattening): (f64, f64)) -> Out<f64> {
    if from == to {
        return Ok(0.0);
    }
    let minor = axis * (1.0 - flattening);
    let reduced = |latitude: f64| ((1.0 - flattening) * latitude.to_radians().tan()).atan();
    let (sin1, cos1) = reduced(from.1).sin_cos();
    let (sin2, cos2) = reduced(to.1).sin_cos();
    let difference = (to.0 - from.0).to_radians();
    let mut lambda = difference;
    for _ in 0..200 {
        let (sin, cos) = lambda.sin_cos();
        let sin_sigma = (cos2 * sin).hypot(cos1 * sin2 - sin1 * cos2 * cos);
        let cos_sigma = sin1 * sin2 + cos1 * cos2 * cos;
        let sigma = sin_sigma.atan2(cos_sigma);
        let sin_alpha = cos1 * cos2 * sin / sin_sigma;
        let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
        let middle = if cos2_alpha < 1e-15 { 0.0 } else { cos_sigma - 2.0 * sin1 * sin2 / cos2_alpha };
        let c = flattening / 16.0 * cos2_alpha * (4.0 + flattening * (4.0 - 3.0 * cos2_alpha));
        let inner = middle + c * cos_sigma * (2.0 * middle * middle - 1.0);
        let next = difference + (1.0 - c) * flattening * sin_alpha * (sigma + c * sin_sigma * inner);
        if (next - lambda).abs() < 1e-13 {
            let (a, b) = series(cos2_alpha, axis, minor);
            return Ok(minor * a * (sigma - bend(b, middle, sin_sigma, cos_sigma)));
        }
        lambda = next;
    }
    Err(Fault::unspecified("nearly antipodal places"))
}

/// Vincenty's A and B.
fn series(cos2_alpha: f64, axis: f64, minor: f64) -> (f64, f64) {
    let u = cos2_alpha * (axis * axis - minor * minor) / (minor * minor);
    let a = 1.0 + u / 16384.0 * (4096.0 + u * (-768.0 + u * (320.0 - 175.0 * u)));
    let b = u / 1024.0 * (256.0 + u * (-128.0 + u * (74.0 - 47.0 * u)));
    (a, b)
}

/// Vincenty's correction of the angle.
fn bend(b: f64, middle: f64, sin_sigma: f64, cos_sigma: f64) -> f64 {
    let square = middle * middle;
    let last = b / 6.0 * middle * (4.0 * sin_sigma * sin_sigma - 3.0) * (4.0 * square - 3.0);
    b * sin_sigma * (middle + b / 4.0 * (cos_sigma * (2.0 * square - 1.0) - last))
}

/// The place some metres away in a direction: Vincenty's direct formula.
pub(super) fn away(from: LonLat, metres: f64, azimuth: f64, (axis, flattening): (f64, f64)) -> LonLat {
    let minor = axis * (1.0 - flattening);
    let (sin_azimuth, cos_azimuth) = match azimuth % 180.0 == 0.0 {
        // Along a meridian, exactly.
        true => (0.0, azimuth.to_radians().cos()),
        false => azimuth.to_radians().sin_cos(),
    };
    let tan1 = (1.0 - flattening) * from.1.to_radians().tan();
    let (sin1, cos1) = tan1.atan().sin_cos();
    let start = tan1.atan2(cos_azimuth);
    let sin_alpha = cos1 * sin_azimuth;
    let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
    let (a, b) = series(cos2_alpha, axis, minor);
    let mut sigma = metres / (minor * a);
    for _ in 0..50 {
        let middle = (2.0 * start + sigma).cos();
        sigma = metres / (minor * a) + bend(b, middle, sigma.sin(), sigma.cos());
    }
    let middle = (2.0 * start + sigma).cos();
    let (sin_sigma, cos_sigma) = sigma.sin_cos();
    let across = sin1 * sin_sigma - cos1 * cos_sigma * cos_azimuth;
    let latitude = (sin1 * cos_sigma + cos1 * sin_sigma * cos_azimuth)
        .atan2((1.0 - flattening) * sin_alpha.hypot(across));
    let lambda = (sin_sigma * sin_azimuth).atan2(cos1 * cos_sigma - sin1 * sin_sigma * cos_azimuth);
    let c = flattening / 16.0 * cos2_alpha * (4.0 + flattening * (4.0 - 3.0 * cos2_alpha));
    let inner = middle + c * cos_sigma * (2.0 * middle * middle - 1.0);
    let turned = lambda - (1.0 - c) * flattening * sin_alpha * (sigma + c * sin_sigma * inner);
    (from.0 + turned.to_degrees(), latitude.to_degrees())
}
