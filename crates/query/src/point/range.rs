//! The first few rows of a range of the primary key: `limit` of a table or of `between`, in the order of the key or in
//! none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datum::key::{bucket_of, check_bound};
use datum::{Datum, KeyRange};
use reql::{Call, Op, Term};
use shard::{Bounds, Shard, Side};
use storage::{Direction, RowScan, RowTexts};

use super::shape::{Options, TableName};
use crate::remote::Target;
use crate::routing::ReadMode;
use crate::session::{Query, Session};
use crate::stream::{Buckets, Next, ROUND_ROWS};
use crate::table::primary_range;

/// Most rows of a result: one connection must not delay another for long.
const ROWS_MAX: f64 = 128.0;

/// Rows that may be read in addition to twice the wanted number.
const ROWS_AHEAD: usize = 128;

/// The parts of the query, before the table is known.
struct Range<'a> {
    table: TableName<'a>,
    /// `None` for no order.
    order: Option<Direction>,
    bounds: Option<Bounds>,
    /// Indexes that the query names: all of them must be the primary key.
    indexes: Vec<&'a str>,
    most: usize,
}

/// The rows, if all shards are on this node and they fit in one batch.
pub(super) fn first_rows(session: &Session, query: &Query, limit: &Call) -> Option<RowTexts> {
    let Range { table, order, bounds, indexes, most } = Range::of(limit)?;
    let catalog = session.service.node().catalog_guard();
    let (table, mode) = super::readable(session, &catalog, Options::of(query)?, table)?;
    if mode == ReadMode::Majority {
        return None;
    }
    if indexes.iter().any(|index| *index != &*table.config.primary_key) {
        return None;
    }
    let range = bounds.as_ref().map_or_else(KeyRange::all, primary_range);
    let mut local = Vec::new();
    for (shard, range) in table.covering(&range) {
        let Target::Local(shard) = session.service.reader(shard, mode)? else { return None };
        local.push((shard, range));
    }
    let (rows, read) = match order {
        None => interleaved(local, most)?,
        Some(direction) => {
            if direction == Direction::Descending {
                local.reverse();
            }
            let rows = ordered_rows(local, direction, most)?;
            let read = rows.len();
            (rows, read)
        }
    };
    session.service.counters().rows_read.fetch_add(read as u64, Ordering::Relaxed);
    Some(rows)
}

/// The first rows in the order of their keys, unless they are more than one batch.
fn ordered_rows(local: Vec<(&Arc<Shard>, KeyRange)>, direction: Direction, most: usize) -> Option<RowTexts> {
    let bytes_max = reql::BatchLimits::default().first().bytes_max;
    let mut rows = RowTexts::default();
    for (shard, range) in local {
        let mut scan = scan(shard, &range, direction)?.at_most(most - rows.len());
        let before = rows.len();
        while let Some(row) = scan.next_view().ok()? {
            rows.push(row.json());
            if rows.len() == 1 {
                rows.expect(most - 1);
            }
            if rows.bytes() >= bytes_max {
                return None;
            }
        }
        shard.activity().add_read(rows.len() - before);
        if rows.len() == most {
            break;
        }
    }
    Some(rows)
}

/// The first interleaved rows (decision 0042) and the number of rows read for them, unless that is too large.
fn interleaved(local: Vec<(&Arc<Shard>, KeyRange)>, most: usize) -> Option<(RowTexts, usize)> {
    let bytes_max = reql::BatchLimits::default().first().bytes_max;
    // The texts of the rows that were read, one after the other; buckets contain their positions.
    let (mut read, mut buckets) = (Vec::new(), Buckets::new());
    let (mut seen, rows_max) = (0, (ROWS_AHEAD + 2 * most).min(ROUND_ROWS));
    let mut rows = RowTexts::default();
    for (shard, range) in local {
        if rows.len() == most {
            break;
        }
        let mut scan = scan(shard, &range, Direction::Ascending)?;
        let mut count = 0;
        while rows.len() < most
            && let Some((key, row)) = scan.next_keyed_view().ok()?
        {
            let start = read.len();
            read.extend_from_slice(row.json());
            seen += 1;
            if read.len() >= bytes_max || seen >= rows_max {
                return None;
            }
            buckets.push(bucket_of(key), start..read.len(), read.len() - start);
            count += 1;
            give(&mut buckets, false, &read, &mut rows, most);
        }
        shard.activity().add_read(count);
    }
    give(&mut buckets, true, &read, &mut rows, most);
    Some((rows, seen))
}

/// Adds the next rows while they are known; `ended` says that the buckets get no more.
fn give(buckets: &mut Buckets<Span>, ended: bool, read: &[u8], rows: &mut RowTexts, most: usize) {
    while rows.len() < most
        && let Next::Item(span) = buckets.next_item(ended)
    {
        rows.push(&read[span]);
    }
}

/// The position of a row in the texts.
type Span = std::ops::Range<usize>;

/// A scan of `range` in `shard`, unless the rows have moved or the scan would have to wait.
fn scan(shard: &Shard, range: &KeyRange, direction: Direction) -> Option<RowScan> {
    let generation = shard.rows_generation();
    let scan = shard.try_snapshot().ok()??.scan(range, direction);
    shard.is_current(generation).then_some(scan)
}

impl<'a> Range<'a> {
    fn of(limit: &'a Call) -> Option<Range<'a>> {
        let (Op::Limit, [of, Term::Datum(Datum::Number(most))], []) =
            (limit.op, limit.args.as_slice(), limit.optargs.as_slice())
        else {
            return None;
        };
        if most.fract() != 0.0 || !(1.0..=ROWS_MAX).contains(most) {
            return None;
        }
        let mut indexes = Vec::new();
        let (of, order) = match of.as_call().filter(|call| call.op == Op::OrderBy) {
            Some(order) => ordered(order, &mut indexes).map(|(of, direction)| (of, Some(direction)))?,
            None => (of, None),
        };
        let (table, bounds) = match of.as_call().filter(|call| call.op == Op::Between) {
            Some(between) => bounded(between, &mut indexes)?,
            None => (of, None),
        };
        let table = TableName::of(table)?;
        Some(Range { table, order, bounds, indexes, most: *most as usize })
    }
}

/// The table that is ordered by an index and nothing else, and the direction.
fn ordered<'a>(order: &'a Call, indexes: &mut Vec<&'a str>) -> Option<(&'a Term, Direction)> {
    let ([of], [(name, index)]) = (order.args.as_slice(), order.optargs.as_slice()) else { return None };
    if name != "index" {
        return None;
    }
    let (index, direction) = match index.as_call().map(|call| (call.op, call.args.as_slice())) {
        Some((Op::Asc, [inner])) => (inner, Direction::Ascending),
        Some((Op::Desc, [inner])) => (inner, Direction::Descending),
        _ => (index, Direction::Ascending),
    };
    indexes.push(text(index)?);
    Some((of, direction))
}

/// The table of a `between`, and its bounds.
fn bounded<'a>(between: &'a Call, indexes: &mut Vec<&'a str>) -> Option<(&'a Term, Option<Bounds>)> {
    let [of, left, right] = between.args.as_slice() else { return None };
    let mut bounds =
        Bounds { left: bound(left)?, left_side: Side::Closed, right: bound(right)?, right_side: Side::Open };
    for (name, term) in &between.optargs {
        let side = match text(term)? {
            "open" => Side::Open,
            _ => Side::Closed,
        };
        match (name.as_ref(), text(term)?) {
            ("index", index) => indexes.push(index),
            ("left_bound", "open" | "closed") => bounds.left_side = side,
            ("right_bound", "open" | "closed") => bounds.right_side = side,
            _ => return None,
        }
    }
    Some((of, Some(bounds)))
}

/// A literal bound.
fn bound(term: &Term) -> Option<Datum> {
    match term {
        Term::Datum(value @ (Datum::Number(_) | Datum::String(_) | Datum::Bool(_))) => {
            check_bound(value).is_ok().then(|| value.clone())
        }
        Term::Call(call) if call.args.is_empty() && call.op == Op::MinVal => Some(Datum::MinVal),
        Term::Call(call) if call.args.is_empty() && call.op == Op::MaxVal => Some(Datum::MaxVal),
        _ => None,
    }
}

fn text(term: &Term) -> Option<&str> {
    match term {
        Term::Datum(Datum::String(text)) => Some(text),
        _ => None,
    }
}
