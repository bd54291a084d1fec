//! The series of the integrals along a geodesic, to the sixth order of a small parameter.
//!
//! Uses the names and numbers of Karney's article (sections 3 and 4 of its addenda).

/// The sum of `c[i] * sin(2 (i + 1) x)`, by Clenshaw's method.
fn sine_series(sine: f64, cosine: f64, c: &[f64]) -> f64 {
    let ar = 2.0 * (cosine - sine) * (cosine + sine);
    let mut rest = c.iter().rev();
    let (mut y0, mut y1) = (0.0, 0.0);
    if c.len() % 2 == 1 {
        y0 = rest.next().copied().unwrap_or_default();
    }
    while let (Some(first), Some(second)) = (rest.next(), rest.next()) {
        y1 = ar * y0 - y1 + first;
        y0 = ar * y1 - y0 + second;
    }
    2.0 * sine * cosine * y0
}

/// `A1 - 1`: the scale of distances.
pub(super) fn scale_a1(eps: f64) -> f64 {
    let eps2 = eps * eps;
    let t = eps2 * (eps2 * (eps2 + 4.0) + 64.0) / 256.0;
    (t + eps) / (1.0 - eps)
}

/// `A2 - 1`: the scale of reduced lengths.
pub(super) fn scale_a2(eps: f64) -> f64 {
    let eps2 = eps * eps;
    let t = eps2 * (eps2 * (25.0 * eps2 + 36.0) + 64.0) / 256.0;
    t * (1.0 - eps) - eps
}

/// `A3`: the scale of longitudes, from its coefficients for an ellipsoid.
pub(super) fn scale_a3(coefficients: &[f64; 6], eps: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| eps * sum + coefficient)
}

/// The first six powers of `eps`.
fn powers(eps: f64) -> [f64; 6] {
    let mut power = 1.0;
    [(); 6].map(|()| {
        power *= eps;
        power
    })
}

/// The series of distances.
pub(super) struct C1([f64; 6]);

impl C1 {
    pub(super) fn new(eps: f64) -> Self {
        let eps2 = eps * eps;
        let d = powers(eps);
        C1([
            d[0] * ((6.0 - eps2) * eps2 - 16.0) / 32.0,
            d[1] * ((64.0 - 9.0 * eps2) * eps2 - 128.0) / 2048.0,
            d[2] * (9.0 * eps2 - 16.0) / 768.0,
            d[3] * (3.0 * eps2 - 5.0) / 512.0,
            -7.0 * d[4] / 1280.0,
            -7.0 * d[5] / 2048.0,
        ])
    }

    pub(super) fn sum(&self, sine: f64, cosine: f64) -> f64 {
        sine_series(sine, cosine, &self.0)
    }
}

/// The reverted series of distances.
pub(super) fn reverted(eps: f64, sine: f64, cosine: f64) -> f64 {
    let eps2 = eps * eps;
    let d = powers(eps);
    let c = [
        d[0] * (eps2 * (205.0 * eps2 - 432.0) + 768.0) / 1536.0,
        d[1] * (eps2 * (4005.0 * eps2 - 4736.0) + 3840.0) / 12288.0,
        d[2] * (116.0 - 225.0 * eps2) / 384.0,
        d[3] * (2695.0 - 7173.0 * eps2) / 7680.0,
        3467.0 * d[4] / 7680.0,
        38081.0 * d[5] / 61440.0,
    ];
    sine_series(sine, cosine, &c)
}

/// The series of reduced lengths.
pub(super) struct C2([f64; 6]);

impl C2 {
    pub(super) fn new(eps: f64) -> Self {
        let eps2 = eps * eps;
        let d = powers(eps);
        C2([
            d[0] * (eps2 * (eps2 + 2.0) + 16.0) / 32.0,
            d[1] * (eps2 * (35.0 * eps2 + 64.0) + 384.0) / 2048.0,
            d[2] * (15.0 * eps2 + 80.0) / 768.0,
            d[3] * (7.0 * eps2 + 35.0) / 512.0,
            63.0 * d[4] / 1280.0,
            77.0 * d[5] / 2048.0,
        ])
    }

    pub(super) fn sum(&self, sine: f64, cosine: f64) -> f64 {
        sine_series(sine, cosine, &self.0)
    }
}

/// The series of longitudes.
pub(super) struct C3([f64; 5]);

impl C3 {
    /// From its coefficients for an ellipsoid.
    pub(super) fn new(coefficients: &[f64; 15], eps: f64) -> Self {
        let mut c = [0.0; 5];
        let mut power = 1.0;
        let mut rest = &coefficients[..];
        for (i, value) in c.iter_mut().enumerate() {
            let (mine, others) = rest.split_at(5 - i);
            rest = others;
            power *= eps;
            *value = mine.iter().rev().fold(0.0, |sum, coefficient| eps * sum + coefficient) * power;
        }
        C3(c)
    }

    pub(super) fn sum(&self, sine: f64, cosine: f64) -> f64 {
        sine_series(sine, cosine, &self.0)
    }
}

/// The coefficients of `A3` and `C3` for an ellipsoid of third flattening `n`.
pub(super) fn longitude_coefficients(n: f64) -> ([f64; 6], [f64; 15]) {
    let a3 = [
        1.0,
        (n - 1.0) / 2.0,
        (n * (3.0 * n - 1.0) - 2.0) / 8.0,
        ((-n - 3.0) * n - 1.0) / 16.0,
        (-2.0 * n - 3.0) / 64.0,
        -3.0 / 128.0,
    ];
    let c3 = [
        (1.0 - n) / 4.0,
        (1.0 - n * n) / 8.0,
        ((3.0 - n) * n + 3.0) / 64.0,
        (2.0 * n + 5.0) / 128.0,
        3.0 / 128.0,
        ((n - 3.0) * n + 2.0) / 32.0,
        ((-3.0 * n - 2.0) * n + 3.0) / 64.0,
        (n + 3.0) / 128.0,
        5.0 / 256.0,
        (n * (5.0 * n - 9.0) + 5.0) / 192.0,
        (9.0 - 10.0 * n) / 384.0,
        7.0 / 512.0,
        (7.0 - 14.0 * n) / 512.0,
        7.0 / 512.0,
        21.0 / 2560.0,
    ];
    (a3, c3)
}
