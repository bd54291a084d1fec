//! The first few rows of a range of the primary key: `limit` of a table, of `between`, in the order
//! of the key or in none.

use std::sync::atomic::Ordering;

use datum::key::check_bound;
use datum::{Datum, KeyRange};
use reql::wire::Query;
use reql::{Call, Op, Term};
use shard::{Bounds, Side};
use storage::{Direction, RowTexts};

use super::shape::{Options, TableName};
use crate::far::Site;
use crate::order::primary_range;
use crate::read_mode::ReadMode;
use crate::session::Session;

/// Most rows that are read here: no connection should wait long for another.
const ROWS_MAX: f64 = 128.0;

/// What the query says, before the table is known.
struct Range<'a> {
    table: TableName<'a>,
    direction: Direction,
    bounds: Option<Bounds>,
    /// Indexes that the query names: none may be another than the primary key.
    indexes: Vec<&'a str>,
    most: usize,
}

impl Session {
    /// The rows, if they are all here and are not more than one batch.
    pub(super) fn range(&self, query: &Query, limit: &Call) -> Option<RowTexts> {
        let Range { table, direction, bounds, indexes, most } = Range::of(limit)?;
        let catalog = self.service.node().catalog_guard();
        let (table, mode) = self.readable(&catalog, Options::of(query)?, table)?;
        if mode == ReadMode::Majority {
            return None;
        }
        if indexes.iter().any(|index| *index != &*table.config.primary_key) {
            return None;
        }
        let range = bounds.as_ref().map_or_else(KeyRange::all, primary_range);
        let mut near = Vec::new();
        for (shard, range) in table.covering(&range) {
            let Site::Near(shard) = self.service.reader(shard, mode)? else { return None };
            near.push((shard, range));
        }
        if direction == Direction::Descending {
            near.reverse();
        }
        let mut rows = RowTexts::default();
        // More would be more than one batch.
        let bytes_max = reql::BatchLimits::default().first().bytes_max;
        for (shard, range) in near {
            let standing = shard.standing();
            let mut scan = shard.snapshot_at_once().ok()??.scan(&range, direction).at_most(most - rows.len());
            if !shard.stands(standing) {
                return None;
            }
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
        self.service.counters().rows_read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Some(rows)
    }
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
        let (of, direction) = match of.as_call().filter(|call| call.op == Op::OrderBy) {
            Some(order) => ordered(order, &mut indexes)?,
            None => (of, Direction::Ascending),
        };
        let (table, bounds) = match of.as_call().filter(|call| call.op == Op::Between) {
            Some(between) => bounded(between, &mut indexes)?,
            None => (of, None),
        };
        let table = TableName::of(table)?;
        Some(Range { table, direction, bounds, indexes, most: *most as usize })
    }
}

/// What is ordered by an index and nothing else, and which way.
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

/// What `between` is called on, and its bounds.
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

/// A bound that is written out.
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
