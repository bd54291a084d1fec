//! Rows of one shard found by a geospatial index. Entries of the index are approximate: the shapes of each row that
//! they point to are checked.

use std::collections::HashSet;

use datum::{Object, PrimaryKey};
use reql::geo::cover::search_ranges;
use reql::geo::nearest::{Bounds, NearbyShape, Search};
use reql::geo::{LazyShape, Shape};
use reql::{Cancel, Env, EvalError};
use shard::{GeoIndexHits, GeoIndexReader};

use crate::context::RowCounter;
use crate::table::read_failed;

/// More rows than an array may have would be remembered.
fn too_many_shapes() -> EvalError {
    EvalError::resource("Array size limit exceeded during geospatial index traversal.")
}

/// The rows under some cells of the index, each once.
struct IndexWalk {
    hits: GeoIndexHits,
    /// Rows that may come again under another cell.
    visited: HashSet<PrimaryKey>,
}

/// A row and its shapes in the index; `None` for an invalid or empty one.
struct VisitedRow {
    primary: PrimaryKey,
    row: Object,
    shapes: Vec<Option<Shape>>,
}

impl IndexWalk {
    fn new(hits: GeoIndexHits) -> IndexWalk {
        IndexWalk { hits, visited: HashSet::new() }
    }

    fn next(
        &mut self,
        part: &GeoIndexReader,
        env: &Env<'_>,
        seen: &RowCounter,
    ) -> Result<Option<VisitedRow>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some(primary) = self.hits.next().map_err(|error| read_failed(&error))? else {
                return Ok(None);
            };
            if self.visited.contains(&primary) {
                continue;
            }
            let row = part.row(&primary).map_err(|error| read_failed(&error))?;
            seen.rows(1);
            // The index does not contain invalid and empty shapes.
            let of = |value| Shape::of(value, env.cancel).ok().filter(|shape| !shape.is_empty());
            let shapes: Vec<Option<Shape>> = part.index().shapes(&row).iter().map(of).collect();
            env.check_cancel()?;
            // A point is in one cell only.
            if !matches!(&*shapes, [Some(Shape::Point(_))]) {
                if self.visited.len() >= env.array_limit {
                    return Err(too_many_shapes());
                }
                self.visited.insert(primary.clone());
            }
            return Ok(Some(VisitedRow { primary, row, shapes }));
        }
    }
}

/// Rows with a shape that intersects the wanted one.
pub(super) struct IntersectingRows {
    part: GeoIndexReader,
    wanted: LazyShape,
    walk: IndexWalk,
}

impl IntersectingRows {
    /// Fails if the wanted shape is invalid.
    pub fn new(
        part: GeoIndexReader,
        wanted: LazyShape,
        cancel: &Cancel,
    ) -> Result<IntersectingRows, EvalError> {
        let walk = IndexWalk::new(part.hits(search_ranges(wanted.get(cancel)?, cancel)?));
        Ok(IntersectingRows { part, wanted, walk })
    }

    /// The next row, and how many of its shapes intersect.
    pub fn next(&mut self, env: &Env<'_>, seen: &RowCounter) -> Result<Option<(Object, u64)>, EvalError> {
        let wanted = self.wanted.get(env.cancel)?;
        while let Some(VisitedRow { row, shapes, .. }) = self.walk.next(&self.part, env, seen)? {
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

/// A row and the index of one of its shapes.
type ShapeKey = (PrimaryKey, usize);

/// Rows with the shapes nearest to a place, nearest first, once for every shape.
pub(super) struct NearestRows {
    part: GeoIndexReader,
    bounds: Bounds,
    /// The result, after the first call.
    found: Option<std::vec::IntoIter<NearbyShape<Object>>>,
}

impl NearestRows {
    /// The rows within `bounds`.
    pub fn new(part: GeoIndexReader, bounds: Bounds) -> NearestRows {
        NearestRows { part, bounds, found: None }
    }

    /// The next row and the distance of its shape.
    pub fn next(
        &mut self,
        env: &Env<'_>,
        seen: &RowCounter,
    ) -> Result<Option<NearbyShape<Object>>, EvalError> {
        if self.found.is_none() {
            self.found = Some(self.search(env, seen)?.into_iter());
        }
        Ok(self.found.as_mut().and_then(Iterator::next))
    }

    fn search(&self, env: &Env<'_>, seen: &RowCounter) -> Result<Vec<NearbyShape<Object>>, EvalError> {
        let mut search = Search::<ShapeKey, Object>::new(self.bounds);
        loop {
            let mut walk = IndexWalk::new(self.part.hits(search.ranges()?));
            while let Some(VisitedRow { primary, row, shapes }) = walk.next(&self.part, env, seen)? {
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
