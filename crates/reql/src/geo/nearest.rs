//! The search for the shapes nearest to a point, in rings of increasing radius.
//!
//! The caller looks up the shapes in the cells of a ring and offers them. The search measures their distance, keeps
//! the near ones, and decides whether another ring is needed. After the last ring the results are in
//! ascending order of their distance. The radii are RethinkDB's: the first is 10 metres on earth, and each ring is
//! sized to add about a hundred results.

use std::collections::HashSet;
use std::f64::consts::PI;
use std::hash::Hash;

use super::cover::{CellRange, annulus_ranges};
use super::{Ellipsoid, LonLat, Point, Shape, ShapeError, distance};

/// Radius of the first ring, per metre of the equator's radius.
const FIRST_RADIUS: f64 = 10.0 / 6_378_137.0;
/// Growth of the radius if nothing was found.
const GROWTH: f64 = 2.0;
/// Expected results of a ring.
const RESULTS_PER_RING: f64 = 100.0;
/// Corners of RethinkDB's polygon around a ring. A search fails if the outer radius of this polygon exceeds the limit of
/// circles.
const CORNERS: f64 = 8.0;
/// Factor by which that polygon is larger than the ring.
const LEEWAY: f64 = 1.01;
/// Tolerance for rounding of an angle.
const MARGIN: f64 = 1e-9;

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Where distances are measured from.
    pub center: LonLat,
    /// Maximum distance of a result, in metres.
    pub max_dist_m: f64,
    /// Number of results after which no further ring is searched.
    pub max_results: usize,
    /// The ellipsoid on which distances are measured.
    pub ellipsoid: Ellipsoid,
}

/// A shape that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct NearbyShape<V> {
    /// Its distance from the centre, in metres.
    pub dist_m: f64,
    /// The value it was offered with.
    pub value: V,
}

/// A search in progress.
pub struct Search<K, V> {
    bounds: Bounds,
    center: Point,
    /// Outer radius of the previous rings, in metres: every shape within it was found.
    done_m: f64,
    /// Outer radius of the current ring, in metres.
    reach_m: f64,
    found: Vec<NearbyShape<V>>,
    /// The number of results from previous rings, which are sorted.
    ordered: usize,
    keys: HashSet<K>,
}

impl<K: Eq + Hash, V> Search<K, V> {
    /// A search before its first ring.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Search {
            center: bounds.center.to_point(),
            done_m: 0.0,
            // Never zero, from which no ring can grow.
            reach_m: (FIRST_RADIUS * bounds.ellipsoid.equator_m)
                .max(f64::MIN_POSITIVE)
                .min(bounds.max_dist_m),
            found: Vec::new(),
            ordered: 0,
            keys: HashSet::new(),
            bounds,
        }
    }

    /// The cells in which the shapes of this ring are kept. Fails if the ring is too large for a circle around it.
    pub fn ranges(&self) -> Result<Vec<CellRange>, ShapeError> {
        let (equator, pole) = (self.bounds.ellipsoid.equator_m, self.bounds.ellipsoid.pole_m());
        let distortion = equator.max(pole) / equator.min(pole);
        let radius = self.reach_m * LEEWAY / (PI / CORNERS).cos() * distortion;
        let max = self.bounds.ellipsoid.radius_limit_m();
        if radius >= max {
            return Err(ShapeError::SearchTooFar(Box::new(ShapeError::RadiusTooLarge { radius, max })));
        }
        // The radius of curvature lies between these values: the smaller one gives the largest possible angle of a
        // distance, the larger one the smallest.
        let (tightest, widest) = (pole * pole / equator, equator * equator / pole);
        let outer = self.reach_m / tightest * (1.0 + MARGIN) + MARGIN;
        let inner = self.done_m / widest * (1.0 - MARGIN) - MARGIN;
        Ok(annulus_ranges(&self.center, outer, inner))
    }

    /// Whether no shape was found under this key yet, so that it is worth offering.
    #[must_use]
    pub fn is_new(&self, key: &K) -> bool {
        !self.keys.contains(key)
    }

    /// Keeps a shape if it lies in this ring and was not found before. Returns whether it was kept.
    pub fn offer(&mut self, key: K, shape: &Shape, value: V) -> Result<bool, ShapeError> {
        if self.keys.contains(&key) {
            return Ok(false);
        }
        let dist_m = distance(&self.center, shape, &self.bounds.ellipsoid)?;
        if dist_m > self.reach_m {
            return Ok(false);
        }
        self.keys.insert(key);
        self.found.push(NearbyShape { dist_m, value });
        Ok(true)
    }

    /// The number of results so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether nothing was found so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Ends this ring. Returns whether there is another one.
    pub fn next_ring(&mut self) -> bool {
        let fresh = &mut self.found[self.ordered..];
        fresh.sort_by(|a, b| a.dist_m.total_cmp(&b.dist_m));
        let area = PI * (self.reach_m * self.reach_m - self.done_m * self.done_m);
        let density = fresh.len() as f64 / area;
        self.ordered = self.found.len();
        self.done_m = self.reach_m;
        let reach_m = if density > 0.0 {
            (RESULTS_PER_RING / PI / density + self.done_m * self.done_m).sqrt()
        } else {
            self.done_m * GROWTH
        };
        // Always grow, even if the sum is unchanged by rounding.
        self.reach_m = reach_m.max(self.done_m * (1.0 + MARGIN)).min(self.bounds.max_dist_m);
        self.done_m < self.bounds.max_dist_m && self.found.len() < self.bounds.max_results
    }

    /// The results, nearest first, at most as many as requested.
    #[must_use]
    pub fn finish(mut self) -> Vec<NearbyShape<V>> {
        self.found[self.ordered..].sort_by(|a, b| a.dist_m.total_cmp(&b.dist_m));
        self.found.truncate(self.bounds.max_results);
        self.found
    }
}
