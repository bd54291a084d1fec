//! The search for the shapes nearest to a place, in rings that grow outward.
//!
//! The caller looks up what is kept under the cells of a ring and offers it; the search measures,
//! keeps what is near enough and says how to go on. When the last ring is done, or enough was found,
//! the results are in ascending order of their distance. The rings grow as RethinkDB's: from 10 metres
//! on earth, so that each is expected to add a hundred results.

use std::collections::HashSet;
use std::f64::consts::PI;
use std::hash::Hash;

use super::cover::{CellRange, annulus_ranges};
use super::{Ellipsoid, LonLat, Point, Shape, ShapeError, distance};

/// The first ring's radius, for each metre of the equator's.
const FIRST_RADIUS: f64 = 10.0 / 6_378_137.0;
/// How far rings grow when nothing was found.
const GROWTH: f64 = 2.0;
/// How many results a ring should add.
const RESULTS_PER_RING: f64 = 100.0;
/// Corners of the polygon by whose outer radius a search is found to reach too far.
const CORNERS: f64 = 8.0;
/// How much larger than the ring that polygon is.
const LEEWAY: f64 = 1.01;
/// Room for rounding, of an angle.
const MARGIN: f64 = 1e-9;

/// Where a search begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Where distances are measured from.
    pub center: LonLat,
    /// How far away a result may be, in metres.
    pub max_dist_m: f64,
    /// When so many results were found, no further ring is looked at.
    pub max_results: usize,
    /// What distances are measured on.
    pub ellipsoid: Ellipsoid,
}

/// One shape that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<V> {
    /// Its distance from the centre, in metres.
    pub dist_m: f64,
    /// What it was offered with.
    pub value: V,
}

/// A search under way.
pub struct Search<K, V> {
    bounds: Bounds,
    center: Point,
    /// Everything within this many metres was found in earlier rings.
    done_m: f64,
    /// The ring ends so many metres from the centre.
    reach_m: f64,
    found: Vec<Found<V>>,
    /// How many of the found are from earlier rings, and in order.
    ordered: usize,
    keys: HashSet<K>,
}

impl<K: Eq + Hash, V> Search<K, V> {
    /// A search whose first ring is to be looked at.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Search {
            center: bounds.center.to_point(),
            done_m: 0.0,
            // Never none at all, from which no ring grows.
            reach_m: (FIRST_RADIUS * bounds.ellipsoid.equator_m)
                .max(f64::MIN_POSITIVE)
                .min(bounds.max_dist_m),
            found: Vec::new(),
            ordered: 0,
            keys: HashSet::new(),
            bounds,
        }
    }

    /// The cells in which shapes of this ring are kept. Fails if the ring reaches so far that no
    /// circle can be drawn around it.
    pub fn ranges(&self) -> Result<Vec<CellRange>, ShapeError> {
        let (equator, pole) = (self.bounds.ellipsoid.equator_m, self.bounds.ellipsoid.pole_m());
        let distortion = equator.max(pole) / equator.min(pole);
        let radius = self.reach_m * LEEWAY / (PI / CORNERS).cos() * distortion;
        let max = self.bounds.ellipsoid.radius_limit_m();
        if radius >= max {
            return Err(ShapeError::SearchTooFar(Box::new(ShapeError::RadiusTooLarge { radius, max })));
        }
        // The earth is curved between these radii, so that degrees of latitude and longitude, taken
        // for those of a sphere, are no farther apart, and no nearer.
        let (tightest, widest) = (pole * pole / equator, equator * equator / pole);
        let outer = self.reach_m / tightest * (1.0 + MARGIN) + MARGIN;
        let inner = self.done_m / widest * (1.0 - MARGIN) - MARGIN;
        Ok(annulus_ranges(&self.center, outer, inner))
    }

    /// Whether nothing was found under this key yet, so that it is worth offering.
    #[must_use]
    pub fn is_new(&self, key: &K) -> bool {
        !self.keys.contains(key)
    }

    /// Keeps a shape if it lies in this ring and was not found before. Whether it was kept.
    pub fn offer(&mut self, key: K, shape: &Shape, value: V) -> Result<bool, ShapeError> {
        if self.keys.contains(&key) {
            return Ok(false);
        }
        let dist_m = distance(&self.center, shape, &self.bounds.ellipsoid)?;
        if dist_m > self.reach_m {
            return Ok(false);
        }
        self.keys.insert(key);
        self.found.push(Found { dist_m, value });
        Ok(true)
    }

    /// How many were found so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Whether nothing was found so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Ends this ring. Whether there is another one to look at.
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
        // Forward even where the sum did not change.
        self.reach_m = reach_m.max(self.done_m * (1.0 + MARGIN)).min(self.bounds.max_dist_m);
        self.done_m < self.bounds.max_dist_m && self.found.len() < self.bounds.max_results
    }

    /// What was found, nearest first, no more than asked for.
    #[must_use]
    pub fn finish(mut self) -> Vec<Found<V>> {
        self.found[self.ordered..].sort_by(|a, b| a.dist_m.total_cmp(&b.dist_m));
        self.found.truncate(self.bounds.max_results);
        self.found
    }
}
