//! The distance between two points: finds the direction of the shortest path by Newton's method, starting on the
//! sphere or, for nearly antipodal points, from the astroid of conjugate points.

use std::f64::consts::PI;

use super::series::{C1, C2, C3, scale_a1, scale_a2, scale_a3};
use super::{DEGREE, Geodesic, LonLat, hypotenuse, normalize_angle, normalized, round_angle, tiny};

/// Steps of Newton's method before only bisection is used.
const NEWTON_STEPS_MAX: usize = 20;
/// Steps in total.
const STEPS_MAX: usize = NEWTON_STEPS_MAX + 53 + 10;
const TOL0: f64 = f64::EPSILON;

/// Two points in a form with fewer cases: the first is at least as far from the equator and not north of it, the
/// second is to its east.
struct Places {
    sbet1: f64,
    cbet1: f64,
    dn1: f64,
    sbet2: f64,
    cbet2: f64,
    dn2: f64,
    /// The longitude between them, in radians.
    lam12: f64,
}

/// The starting direction, or the whole length of a short path.
enum Start {
    Direction(f64, f64),
    /// The angle of the path, and the radius to use.
    Short(f64, f64),
}

/// An arc of a geodesic on the auxiliary sphere.
struct Arc {
    sig12: f64,
    ssig1: f64,
    csig1: f64,
    ssig2: f64,
    csig2: f64,
}

impl Geodesic {
    /// The distance between two points, in metres.
    #[must_use]
    pub fn distance_m(&self, from: LonLat, to: LonLat) -> f64 {
        let (lat1, lat2, lon12) = canonical(from, to);
        let places = self.places(lat1, lat2, lon12);
        let slam12 = if lon12 == 180.0 { 0.0 } else { places.lam12.sin() };
        if lat1 == -90.0 || slam12 == 0.0 {
            let (ssig1, csig1) = (places.sbet1, places.lam12.cos() * places.cbet1);
            let (ssig2, csig2) = (places.sbet2, places.cbet2);
            let arc = Arc { sig12: arc_angle(ssig1, csig1, ssig2, csig2), ssig1, csig1, ssig2, csig2 };
            let (length, reduced) = self.lengths(self.n, &arc, &places);
            // Between nearly antipodal points the meridian may not be the shortest path.
            if arc.sig12 < 1.0 || reduced >= 0.0 {
                return length * self.b + 0.0;
            }
        }
        if places.sbet1 == 0.0 && places.lam12 <= PI - self.f * PI {
            return self.a * places.lam12 + 0.0;
        }
        match self.start(&places) {
            Start::Short(sig12, radius) => sig12 * self.b * radius + 0.0,
            Start::Direction(salp1, calp1) => self.length_from(&places, salp1, calp1) * self.b + 0.0,
        }
    }

    fn places(&self, lat1: f64, lat2: f64, lon12: f64) -> Places {
        let (sbet1, cbet1) = self.reduced(lat1);
        let (mut sbet2, mut cbet2) = self.reduced(lat2);
        // Latitudes that are equal up to rounding are made equal.
        if cbet1 < -sbet1 {
            if cbet2 == cbet1 {
                sbet2 = if sbet2 < 0.0 { sbet1 } else { -sbet1 };
            }
        } else if sbet2.abs() == -sbet1 {
            cbet2 = cbet1;
        }
        let dn = |sbet: f64| (1.0 + self.ep2 * (sbet * sbet)).sqrt();
        Places { sbet1, cbet1, dn1: dn(sbet1), sbet2, cbet2, dn2: dn(sbet2), lam12: lon12 * DEGREE }
    }

    /// The length of an arc and its reduced length, both for `b` = 1.
    fn lengths(&self, eps: f64, arc: &Arc, places: &Places) -> (f64, f64) {
        let Arc { sig12, ssig1, csig1, ssig2, csig2 } = *arc;
        let (c1, c2) = (C1::new(eps), C2::new(eps));
        let (a1, a2) = (scale_a1(eps), scale_a2(eps));
        let ab1 = (1.0 + a1) * (c1.sum(ssig2, csig2) - c1.sum(ssig1, csig1));
        let ab2 = (1.0 + a2) * (c2.sum(ssig2, csig2) - c2.sum(ssig1, csig1));
        let j12 = (a1 - a2) * sig12 + (ab1 - ab2);
        let reduced = places.dn2 * (csig1 * ssig2) - places.dn1 * (ssig1 * csig2) - csig1 * csig2 * j12;
        ((1.0 + a1) * sig12 + ab1, reduced)
    }

    fn start(&self, places: &Places) -> Start {
        let Places { sbet1, cbet1, sbet2, cbet2, lam12, .. } = *places;
        let sbet12 = sbet2 * cbet1 - cbet2 * sbet1;
        let cbet12 = cbet2 * cbet1 + sbet2 * sbet1;
        let sbet12a = sbet2 * cbet1 + cbet2 * sbet1;
        let is_short = cbet12 >= 0.0 && sbet12 < 0.5 && cbet2 * lam12 < 0.5;
        let mut omg12 = lam12;
        let mut dnm = 0.0;
        if is_short {
            let sum = (sbet1 + sbet2) * (sbet1 + sbet2);
            let sbetm2 = sum / (sum + (cbet1 + cbet2) * (cbet1 + cbet2));
            dnm = (1.0 + self.ep2 * sbetm2).sqrt();
            omg12 /= self.f1 * dnm;
        }
        let (somg12, comg12) = (omg12.sin(), omg12.cos());
        let mut salp1 = cbet2 * somg12;
        let mut calp1 = if comg12 >= 0.0 {
            sbet12 + cbet2 * sbet1 * (somg12 * somg12) / (1.0 + comg12)
        } else {
            sbet12a - cbet2 * sbet1 * (somg12 * somg12) / (1.0 - comg12)
        };
        let ssig12 = hypotenuse(salp1, calp1);
        let csig12 = sbet1 * sbet2 + cbet1 * cbet2 * comg12;
        if is_short && ssig12 < self.short {
            return Start::Short(ssig12.atan2(csig12), dnm);
        }
        let is_plain = self.n > 0.1 || csig12 >= 0.0 || ssig12 >= 6.0 * self.n * PI * (cbet1 * cbet1);
        if !is_plain {
            (salp1, calp1) = self.antipodal_start(places, sbet12a);
        }
        if salp1 > 0.0 {
            let (salp1, calp1) = normalized(salp1, calp1);
            Start::Direction(salp1, calp1)
        } else {
            Start::Direction(1.0, 0.0)
        }
    }

    /// The starting direction towards a nearly antipodal point.
    fn antipodal_start(&self, places: &Places, sbet12a: f64) -> (f64, f64) {
        let Places { sbet1, cbet1, cbet2, lam12, .. } = *places;
        let eps = Self::epsilon(sbet1 * sbet1 * self.ep2);
        let lamscale = self.f * cbet1 * scale_a3(&self.a3, eps) * PI;
        let betscale = lamscale * cbet1;
        let x = (lam12 - PI) / lamscale;
        let y = sbet12a / betscale;
        if y > -200.0 * TOL0 && x > -1.0 - 1000.0 * TOL0.sqrt() {
            let salp1 = (-x).min(1.0);
            return (salp1, -(1.0 - salp1 * salp1).sqrt());
        }
        let k = astroid(x, y);
        let omg12a = lamscale * (-x * k / (1.0 + k));
        let (somg12, comg12) = (omg12a.sin(), -omg12a.cos());
        (cbet2 * somg12, sbet12a - cbet2 * sbet1 * (somg12 * somg12) / (1.0 - comg12))
    }

    /// The length, for `b` = 1, of the path found from this starting direction.
    fn length_from(&self, places: &Places, mut salp1: f64, mut calp1: f64) -> f64 {
        let tolb = TOL0 * TOL0.sqrt();
        // Directions too far west and too far east.
        let (mut west, mut east) = ((tiny(), 1.0), (tiny(), -1.0));
        let (mut is_near, mut is_bracketed) = (false, false);
        let mut step = 0;
        let (eps, arc) = loop {
            let aim = self.aim(places, salp1, calp1);
            let miss = aim.lam12 - places.lam12;
            let tolerance = if is_near { 8.0 } else { 2.0 } * TOL0;
            let is_done = is_bracketed || miss.is_nan() || miss.abs() < tolerance;
            if is_done || step == STEPS_MAX {
                break (aim.eps, aim.arc);
            }
            if miss > 0.0 && (step > NEWTON_STEPS_MAX || calp1 / salp1 > east.1 / east.0) {
                east = (salp1, calp1);
            } else if miss < 0.0 && (step > NEWTON_STEPS_MAX || calp1 / salp1 < west.1 / west.0) {
                west = (salp1, calp1);
            }
            let slope = if step < NEWTON_STEPS_MAX { self.slope(places, &aim) } else { 0.0 };
            step += 1;
            if slope > 0.0 {
                let turn = -miss / slope;
                let (sine, cosine) = (turn.sin(), turn.cos());
                let next = salp1 * cosine + calp1 * sine;
                if next > 0.0 && turn.abs() < PI {
                    calp1 = calp1 * cosine - salp1 * sine;
                    (salp1, calp1) = normalized(next, calp1);
                    is_near = miss.abs() <= 16.0 * TOL0;
                    continue;
                }
            }
            (salp1, calp1) = normalized((west.0 + east.0) / 2.0, (west.1 + east.1) / 2.0);
            is_near = false;
            is_bracketed = (west.0 - salp1).abs() + (west.1 - calp1) < tolb
                || (salp1 - east.0).abs() + (calp1 - east.1) < tolb;
        };
        self.lengths(eps, &arc, places).0
    }

    /// Follows a direction to the second point's latitude.
    fn aim(&self, places: &Places, salp1: f64, mut calp1: f64) -> Aim {
        let Places { sbet1, cbet1, sbet2, cbet2, .. } = *places;
        if sbet1 == 0.0 && calp1 == 0.0 {
            calp1 = -tiny();
        }
        let (salp0, calp0) = (salp1 * cbet1, hypotenuse(calp1, salp1 * sbet1));
        let (somg1, comg1) = (salp0 * sbet1, calp1 * cbet1);
        let (ssig1, csig1) = normalized(sbet1, comg1);
        let calp2 = if cbet2 != cbet1 || sbet2.abs() != -sbet1 {
            let across = if cbet1 < -sbet1 {
                (cbet2 - cbet1) * (cbet1 + cbet2)
            } else {
                (sbet1 - sbet2) * (sbet1 + sbet2)
            };
            ((calp1 * cbet1) * (calp1 * cbet1) + across).sqrt() / cbet2
        } else {
            calp1.abs()
        };
        let (somg2, comg2) = (salp0 * sbet2, calp2 * cbet2);
        let (ssig2, csig2) = normalized(sbet2, comg2);
        let sig12 = arc_angle(ssig1, csig1, ssig2, csig2);
        let omg12 = arc_angle(somg1, comg1, somg2, comg2);
        let eps = Self::epsilon(calp0 * calp0 * self.ep2);
        let c3 = C3::new(&self.c3, eps);
        let b312 = c3.sum(ssig2, csig2) - c3.sum(ssig1, csig1);
        let h0 = -self.f * scale_a3(&self.a3, eps);
        let domg12 = salp0 * h0 * (sig12 + b312);
        Aim { lam12: omg12 + domg12, eps, calp2, arc: Arc { sig12, ssig1, csig1, ssig2, csig2 } }
    }

    /// The derivative of an aim's longitude with respect to its direction.
    fn slope(&self, places: &Places, aim: &Aim) -> f64 {
        if aim.calp2 == 0.0 {
            return -2.0 * self.f1 * places.dn1 / places.sbet1;
        }
        let (_, reduced) = self.lengths(aim.eps, &aim.arc, places);
        reduced * (self.f1 / (aim.calp2 * places.cbet2))
    }
}

struct Aim {
    /// The longitude reached.
    lam12: f64,
    eps: f64,
    calp2: f64,
    arc: Arc,
}

fn arc_angle(s1: f64, c1: f64, s2: f64, c2: f64) -> f64 {
    (c1 * s2 - s1 * c2).max(0.0).atan2(c1 * c2 + s1 * s2)
}

/// The latitudes, with the one farther from the equator first and in the south, and the longitude between them.
fn canonical(from: LonLat, to: LonLat) -> (f64, f64, f64) {
    let lon12 = round_angle(difference(normalize_angle(from.lon), normalize_angle(to.lon))).abs();
    let (mut lat1, mut lat2) = (round_angle(from.lat), round_angle(to.lat));
    if lat1.abs() < lat2.abs() {
        std::mem::swap(&mut lat1, &mut lat2);
    }
    if lat1 >= 0.0 {
        (lat1, lat2) = (-lat1, -lat2);
    }
    (lat1, lat2, lon12)
}

/// `y - x` in degrees, from more than -180 to 180, including the rounding error of the sum.
fn difference(x: f64, y: f64) -> f64 {
    let (u, v) = (-x, y);
    let sum = u + v;
    let up = sum - v;
    let vpp = sum - up;
    let lost = -((up - u) + (vpp - v));
    let mut sum = sum;
    if (sum - 180.0) + lost > 0.0 {
        sum -= 360.0;
    } else if (sum + 180.0) + lost <= 0.0 {
        sum += 360.0;
    }
    sum + lost
}

/// The positive root of `k⁴ + 2k³ - (x² + y² - 1)k² - 2y²k - y²`.
fn astroid(x: f64, y: f64) -> f64 {
    let (p, q) = (x * x, y * y);
    let r = (p + q - 1.0) / 6.0;
    if q == 0.0 && r <= 0.0 {
        return 0.0;
    }
    let s = p * q / 4.0;
    let r2 = r * r;
    let r3 = r * r2;
    let discriminant = s * (s + 2.0 * r3);
    let mut u = r;
    if discriminant >= 0.0 {
        let mut t3 = s + r3;
        t3 += if t3 < 0.0 { -discriminant.sqrt() } else { discriminant.sqrt() };
        let root = t3.abs().powf(1.0 / 3.0);
        let t = if t3 < 0.0 { -root } else { root };
        u += t + if t != 0.0 { r2 / t } else { 0.0 };
    } else {
        let angle = (-discriminant).sqrt().atan2(-(s + r3));
        u += 2.0 * r * (angle / 3.0).cos();
    }
    let v = (u * u + q).sqrt();
    let uv = if u < 0.0 { q / (v - u) } else { u + v };
    let w = (uv - q) / (2.0 * v);
    uv / ((uv + w * w).sqrt() + w)
}
