//! Rows of one shard found by an index of shapes. Its entries only say where to look: every row that
//! is met is asked for its shapes, and those are looked at themselves.

use std::collections::HashSet;

use datum::{Object, PrimaryKey};
use reql::geo::cover::search_ranges;
use reql::geo::nearest::{Bounds, Found, Search};
use reql::geo::{LazyShape, Shape};
use reql::{Cancel, Env, EvalError};
use shard::{GeoIndexHits, GeoIndexReader};

use crate::context::RowCounter;
use crate::table::read_failed;

/// More rows than an array may hold would have to be remembered.
fn too_many_shapes() -> EvalError {
    EvalError::resource("Array size limit exceeded during geospatial index traversal.")
}

/// A walk over the rows under some cells, in which a row comes once.
struct Walk {
    hits: GeoIndexHits,
    /// Rows that can be met again under another cell.
    met: HashSet<PrimaryKey>,
}

/// A row, and the shapes it has in the index; empty where there was none.
struct Met {
    primary: PrimaryKey,
    row: Object,
    shapes: Vec<Option<Shape>>,
}

impl Walk {
    fn new(hits: GeoIndexHits) -> Walk {
        Walk { hits, met: HashSet::new() }
    }

    fn next(
        &mut self,
        part: &GeoIndexReader,
        env: &Env<'_>,
        seen: &RowCounter,
    ) -> Result<Option<Met>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some(primary) = self.hits.next().map_err(|error| read_failed(&error))? else {
                return Ok(None);
            };
            if self.met.contains(&primary) {
                continue;
            }
            let row = part.row(&primary).map_err(|error| read_failed(&error))?;
            seen.rows(1);
            // What is no valid shape, or has no points, is not in the index.
            let of = |value| Shape::of(value, env.cancel).ok().filter(|shape| !shape.is_empty());
            let shapes: Vec<Option<Shape>> = part.index().shapes(&row).iter().map(of).collect();
            env.check_cancel()?;
            // A single point has a single cell.
            if !matches!(&*shapes, [Some(Shape::Point(_))]) {
                if self.met.len() >= env.array_limit {
                    return Err(too_many_shapes());
                }
                self.met.insert(primary.clone());
            }
            return Ok(Some(Met { primary, row, shapes }));
        }
    }
}

/// Rows with shapes that have something in common with one.
pub(super) struct IntersectingRows {
    part: GeoIndexReader,
    wanted: LazyShape,
    walk: Walk,
}

impl IntersectingRows {
    /// Begins to read. Fails if what is wanted is no valid shape.
    pub fn new(
        part: GeoIndexReader,
        wanted: LazyShape,
        cancel: &Cancel,
    ) -> Result<IntersectingRows, EvalError> {
        let walk = Walk::new(part.hits(search_ranges(wanted.get(cancel)?, cancel)?));
        Ok(IntersectingRows { part, wanted, walk })
    }

    /// The next row, and how many of its shapes are wanted.
    pub fn next(&mut self, env: &Env<'_>, seen: &RowCounter) -> Result<Option<(Object, u64)>, EvalError> {
        let wanted = self.wanted.get(env.cancel)?;
        while let Some(Met { row, shapes, .. }) = self.walk.next(&self.part, env, seen)? {
            let mut times = 0;
            for shape in shapes.iter().flatten() {
                times += u64::from(wanted.intersects(shape, env.cancel)?);
            }
            if times > 0 {
                return Ok(Some((row, times)));
            }
        }
        Ok(None)
    }
}

/// Which shape of which row.
type ShapeKey = (PrimaryKey, usize);

/// Rows with the shapes nearest to a place, nearest first, once for every shape.
pub(super) struct NearestRows {
    part: GeoIndexReader,
    bounds: Bounds,
    /// What was found, once somebody looked.
    found: Option<std::vec::IntoIter<Found<Object>>>,
}

impl NearestRows {
    /// The rows within `bounds`, that nobody looked for yet.
    pub fn new(part: GeoIndexReader, bounds: Bounds) -> NearestRows {
        NearestRows { part, bounds, found: None }
    }

    /// The next row, and how far away its shape is.
    pub fn next(&mut self, env: &Env<'_>, seen: &RowCounter) -> Result<Option<Found<Object>>, EvalError> {
        if self.found.is_none() {
            self.found = Some(self.search(env, seen)?.into_iter());
        }
        Ok(self.found.as_mut().and_then(Iterator::next))
    }

    fn search(&self, env: &Env<'_>, seen: &RowCounter) -> Result<Vec<Found<Object>>, EvalError> {
        let mut search = Search::<ShapeKey, Object>::new(self.bounds);
        loop {
            let mut walk = Walk::new(self.part.hits(search.ranges()?));
            while let Some(Met { primary, row, shapes }) = walk.next(&self.part, env, seen)? {
                for (i, shape) in shapes.iter().enumerate() {
                    let (Some(shape), key) = (shape, (primary.clone(), i)) else { continue };
                    if search.offer(key, shape, row.clone())? && search.len() > env.array_limit {
                        return Err(too_many_shapes());
                    }
                }
            }
            if !search.next_ring() {
                return Ok(search.finish());
            }
        }
    }
}
