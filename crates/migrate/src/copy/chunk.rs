//! One chunk of a segment: copied, or compared and made equal.

use std::sync::atomic::Ordering;

use crate::compare::{Difference, DifferenceKind, digest, merge, read_keys, read_rows};
use crate::copy::write::{delete_rows, put_rows};
use crate::error::MigrateError;
use crate::key::{Bound, Key, KeyRange};
use crate::rate::{ChunkSize, Rate, chunk_size};
use crate::server::{Line, Stop};
use crate::table::Table;

/// The most of one chunk, which a reader holds in memory.
const CHUNK: ChunkSize = ChunkSize { rows: 4_000, bytes: 4 << 20 };
const DIGEST_ROWS: usize = 10_000;

/// The connections of a reader.
pub(super) struct Lines {
    pub(super) source: Line,
    pub(super) target: Line,
    pub(super) most: ChunkSize,
}

impl Lines {
    pub(super) fn new(source: Line, target: Line, rate: Option<Rate>, readers: usize) -> Lines {
        Lines { source, target, most: chunk_size(rate, readers, CHUNK) }
    }
}

/// The size of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// Copies the beginning of `range`; returns how far. Fails when a side is lost.
pub(super) fn copy(
    lines: &mut Lines,
    stop: &Stop,
    table: &Table,
    range: &KeyRange,
) -> Result<(Bound, Cost), MigrateError> {
    let most = lines.most;
    let chunk = lines.source.run(stop, |from| read_rows(from, &table.facts, range, most))?;
    if table.facts.was_begun {
        delete_others(lines, stop, table, &range.until(chunk.end.clone()), &chunk.rows)?;
    }
    put_rows(&mut lines.target, stop, table, &chunk.rows)?;
    let cost = Cost { rows: chunk.rows.len() as u64, bytes: chunk.bytes };
    table.add_copied(cost.rows, cost.bytes);
    Ok((chunk.end, cost))
}

/// Deletes rows of `range` that the source does not have: an earlier run may have written them after it last stored its state.
fn delete_others(
    lines: &mut Lines,
    stop: &Stop,
    table: &Table,
    range: &KeyRange,
    rows: &[(Key, String)],
) -> Result<(), MigrateError> {
    let mut others = lines.target.run(stop, |to| read_keys(to, &table.facts, range))?;
    others.retain(|key| rows.binary_search_by(|(other, _)| other.cmp(key)).is_err());
    delete_rows(&mut lines.target, stop, table, &others)
}

/// Compares the beginning of `range` on both sides and makes the target equal; returns how far. Fails when a side is lost.
pub(super) fn mend(
    lines: &mut Lines,
    stop: &Stop,
    table: &Table,
    range: &KeyRange,
) -> Result<(Bound, Cost), MigrateError> {
    let facts = &table.facts;
    let of_source = lines.source.run(stop, |from| digest(from, facts, range, Some(DIGEST_ROWS)))?;
    let end = match of_source.last.clone() {
        Some(last) if of_source.rows >= DIGEST_ROWS as u64 => Bound::After(last),
        _ => range.end.clone(),
    };
    let range = range.until(end.clone());
    let of_target = lines.target.run(stop, |to| digest(to, facts, &range, None))?;
    if of_source.text == of_target.text {
        return Ok((end, Cost { rows: of_source.rows, bytes: 0 }));
    }
    let source = lines.source.run(stop, |from| read_rows(from, facts, &range, CHUNK))?;
    let range = range.until(source.end.clone());
    let target = lines.target.run(stop, |to| read_rows(to, facts, &range, CHUNK))?;
    let cost = Cost { rows: source.rows.len() as u64, bytes: source.bytes };
    let end = target.end.clone();
    let of_source = source.rows.into_iter().filter(|(key, _)| end.is_after(key)).collect();
    let differences = merge(of_source, target.rows);
    let mended = make_equal(&mut lines.target, stop, table, differences)?;
    table.done.mended.fetch_add(mended, Ordering::Relaxed);
    Ok((end, cost))
}

/// Changes the target's rows; returns how many. Fails when the target is lost.
///
/// A row that differs is deleted first: one that differs only in the zone of a time, or in the sign of a zero, counts as unchanged
/// when it is replaced.
fn make_equal(
    target: &mut Line,
    stop: &Stop,
    table: &Table,
    differences: Vec<Difference>,
) -> Result<u64, MigrateError> {
    let (mut wrong, mut right, mut count) = (Vec::new(), Vec::new(), 0);
    for Difference { key, kind } in differences {
        count += 1;
        match kind {
            DifferenceKind::Missing { source } => right.push((key, source)),
            DifferenceKind::Differs { source, .. } => {
                wrong.push(key.clone());
                right.push((key, source));
            }
            DifferenceKind::Extra { .. } if table.facts.keeps_extra => count -= 1,
            DifferenceKind::Extra { .. } => wrong.push(key),
        }
    }
    delete_rows(target, stop, table, &wrong)?;
    put_rows(target, stop, table, &right)?;
    Ok(count)
}
