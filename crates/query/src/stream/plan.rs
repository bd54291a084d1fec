//! Plans: whether the rows of a filter are found by a scan or by an index.
//!
//! The filter is still applied to every row that was found, so an index may find too many. It must not miss a row that
//! the filter would keep or fail on. Decision 0017 says when that is so.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ServerId;
use datum::{Datum, KeyRange, Text, pseudo};
use reql::{Closure, Filter, FilterTest, OnMissing, Op, Predicate, Term, Transform};
use shard::{Bounds, IndexKind, IndexQuery, Shard, Side};

use super::rows::RowSource;
use crate::context::Cx;
use crate::remote::{RemoteTally, Target};
use crate::table::{IndexItems, IndexRead, IndexSearch, KeyOrder, primary_range};

/// Whether the result depends on the order of rows that the query did not order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderSeen {
    Yes,
    /// The result is the same in any order.
    No,
}

/// An index is used if it finds at most one in this many rows: a row found by it costs about as much as eight rows of a
/// scan.
const WORTH_ONE_IN: u64 = 8;
/// An index that finds at most this many rows is always used.
const FEW: u64 = 4;
/// An index may truncate longer texts, which changes the order of their rows.
const TEXT_BYTES_MAX: usize = 64;

/// A better way to find `rows` when `steps` are applied to them first, if there is one.
pub(crate) fn found(cx: &Cx, rows: &RowSource, steps: &[Transform], seen: OrderSeen) -> Option<RowSource> {
    let untouched = rows.index.is_none() && rows.order == KeyOrder::Any && rows.range == KeyRange::all();
    let filter = steps.first().and_then(filter_of).filter(|_| untouched)?;
    let conditions = conditions(filter);
    let config = &rows.table.handle.config;
    if let Some((_, bounds)) = conditions.iter().find(|(field, _)| *field == config.primary_key) {
        return Some(RowSource { range: primary_range(bounds), ..rows.clone() });
    }
    let indexes = config.indexes.all();
    conditions.into_iter().filter(|(_, bounds)| names_all(bounds, seen)).find_map(|(field, bounds)| {
        let index = indexes.iter().find(|index| {
            index.kind == IndexKind::One && field_of(index.function.func()).is_some_and(|of| *of == field)
        })?;
        let values: Arc<[(Bounds, u32)]> = [(bounds, 1)].into();
        let read = IndexRead {
            id: index.id,
            name: index.name.clone(),
            search: IndexSearch::Values(values),
            items: IndexItems::Rows,
            after: None,
            relied_on: Some((*index).clone()),
        };
        let by_index = RowSource { index: Some(Arc::new(read)), ..rows.clone() };
        is_worth_it(cx, &by_index).then_some(by_index)
    })
}

/// A field, and bounds within which its value is in each row that `steps` leave, if they begin with a filter that says so: a
/// single value if possible. The filter still has to be applied to the rows.
pub(crate) fn condition(steps: &[Transform]) -> Option<(Text, Bounds)> {
    let conditions = conditions(steps.first().and_then(filter_of)?);
    conditions.into_iter().min_by_key(|(_, bounds)| bounds.left != bounds.right)
}

/// The filter of a step, if it drops rows in which something is missing.
fn filter_of(step: &Transform) -> Option<&Filter> {
    let filter = match step {
        Transform::Filter(filter) | Transform::Matching(Predicate::Filter(filter)) => filter,
        _ => return None,
    };
    matches!(filter.on_missing, OnMissing::Drop).then_some(filter)
}

/// The conditions on fields of the rows that stay. Only conditions that are evaluated before anything can fail count.
fn conditions(filter: &Filter) -> Vec<(Text, Bounds)> {
    let mut out: Vec<(Text, Bounds)> = Vec::new();
    let mut add = |(field, bounds): (Text, Bounds)| match out.iter_mut().find(|(known, _)| *known == field) {
        Some((_, known)) => narrow(known, bounds),
        None => out.push((field, bounds)),
    };
    match &filter.test {
        FilterTest::Value(Datum::Object(pattern)) if !pseudo::is_literal(pattern) => {
            // Objects and shapes match others with more members.
            let plain =
                pattern.iter().filter(|(_, value)| !matches!(value, Datum::Object(_) | Datum::Geometry(_)));
            plain.for_each(|(field, value)| add((field, Bounds::one(value))));
        }
        FilterTest::Truth(closure) => {
            let mut parts = Vec::new();
            add_conjuncts(&closure.func.body, &mut parts);
            parts.iter().map_while(|part| comparison(closure, part)).for_each(add);
        }
        FilterTest::Value(_) | FilterTest::Pattern(_) | FilterTest::NotIn(_) => {}
    }
    out
}

/// Adds the terms that must all hold, in the order in which they are evaluated. Drivers nest `a & b & c`.
fn add_conjuncts<'a>(body: &'a Term, parts: &mut Vec<&'a Term>) {
    match body.as_call() {
        Some(call) if call.op == Op::And && !call.traits.splices => {
            call.args.iter().for_each(|part| add_conjuncts(part, parts));
        }
        _ => parts.push(body),
    }
}

/// The condition of a comparison between a field and a constant. Such a comparison only fails where the field is
/// missing.
fn comparison(closure: &Closure, term: &Term) -> Option<(Text, Bounds)> {
    let call = term.as_call().filter(|call| !call.traits.splices)?;
    let [left, right] = call.args.as_slice() else { return None };
    let of_item = |term: &Term| field_access(closure, term).cloned();
    let (field, value, op) = match (of_item(left), constant(closure, right)) {
        (Some(field), Some(value)) => (field, value, call.op),
        _ => (of_item(right)?, constant(closure, left)?, mirrored(call.op)),
    };
    let bounds = match op {
        Op::Eq => Bounds::one(value),
        Op::Lt => Bounds { right: value, right_side: Side::Open, ..Bounds::all() },
        Op::Le => Bounds { right: value, right_side: Side::Closed, ..Bounds::all() },
        Op::Gt => Bounds { left: value, left_side: Side::Open, ..Bounds::all() },
        Op::Ge => Bounds { left: value, left_side: Side::Closed, ..Bounds::all() },
        _ => return None,
    };
    Some((field, bounds))
}

/// The comparison with its sides swapped.
fn mirrored(op: Op) -> Op {
    match op {
        Op::Lt => Op::Gt,
        Op::Le => Op::Ge,
        Op::Gt => Op::Lt,
        Op::Ge => Op::Le,
        other => other,
    }
}

/// The name in `row[name]`, where `row` is the argument of the function.
fn field_access<'a>(closure: &Closure, term: &'a Term) -> Option<&'a Text> {
    let call = term.as_call().filter(|call| matches!(call.op, Op::Bracket | Op::GetField))?;
    match (closure.func.params.as_slice(), call.args.as_slice()) {
        ([item], [Term::Var(var), Term::Datum(Datum::String(field))]) if item == var => Some(field),
        _ => None,
    }
}

fn constant(closure: &Closure, term: &Term) -> Option<Datum> {
    match term {
        Term::Datum(value) => Some(value.clone()),
        Term::Var(var) => {
            closure.captured.iter().find(|(name, _)| name == var).map(|(_, value)| value.clone())
        }
        _ => None,
    }
}

/// The field of an index, if it indexes a field and nothing else.
fn field_of(func: &reql::FuncTerm) -> Option<&Text> {
    let call = func.body.as_call().filter(|call| matches!(call.op, Op::Bracket | Op::GetField))?;
    match (func.params.as_slice(), call.args.as_slice()) {
        ([item], [Term::Var(var), Term::Datum(Datum::String(field))]) if item == var => Some(field),
        _ => None,
    }
}

/// Narrows a condition by another one.
fn narrow(known: &mut Bounds, more: Bounds) {
    if more.left > known.left || (more.left == known.left && more.left_side == Side::Open) {
        (known.left, known.left_side) = (more.left, more.left_side);
    }
    if more.right < known.right || (more.right == known.right && more.right_side == Side::Open) {
        (known.right, known.right_side) = (more.right, more.right_side);
    }
}

/// Whether an index contains every value within the bounds: a single value, or values of one type that can all be keys.
/// If the order is seen, it must be a single value, whose rows are in the order of a scan.
fn names_all(bounds: &Bounds, seen: OrderSeen) -> bool {
    if bounds.left == bounds.right {
        return match &bounds.left {
            Datum::String(text) => text.len() <= TEXT_BYTES_MAX,
            value => zone(value).is_some(),
        };
    }
    let above_all = matches!(bounds.right, Datum::MaxVal) && zone(&bounds.left) == Some(Zone::TimeOrText);
    let same = zone(&bounds.left).is_some() && zone(&bounds.left) == zone(&bounds.right);
    seen == OrderSeen::No && (same || above_all)
}

/// Types that are adjacent in the order of values and whose values can all be keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Bool,
    Number,
    Binary,
    TimeOrText,
}

fn zone(value: &Datum) -> Option<Zone> {
    match value {
        Datum::Bool(_) => Some(Zone::Bool),
        Datum::Number(_) => Some(Zone::Number),
        Datum::Binary(_) => Some(Zone::Binary),
        Datum::Time(_) | Datum::String(_) => Some(Zone::TimeOrText),
        _ => None,
    }
}

/// Whether the index is built and finds few rows in every shard. Other nodes are asked about their shards at the same
/// time.
fn is_worth_it(cx: &Cx, rows: &RowSource) -> bool {
    let Some(query) = rows.index.as_ref().and_then(|index| index.values()) else { return false };
    let mut remote: BTreeMap<ServerId, Vec<KeyRange>> = BTreeMap::new();
    for (shard, range) in rows.table.handle.covering(&rows.range) {
        match cx.service.reader(shard, rows.table.read_mode) {
            Some(Target::Local(shard)) if names_few(shard, &query) => {}
            Some(Target::Remote(server)) if !cx.serves_remote => {
                remote.entry(server).or_default().push(range)
            }
            _ => return false,
        }
    }
    let request = |(server, ranges)| RemoteTally::request_few(cx, server, rows.table_ranges(ranges));
    let requests: Vec<RemoteTally> = remote.into_iter().map(request).collect();
    requests.iter().all(|requests| requests.few(cx) == Some(true))
}

/// Whether the index is built in this shard and finds few of its rows.
pub(crate) fn names_few(shard: &Shard, query: &IndexQuery) -> bool {
    let most = (shard.count() / WORTH_ONE_IN).max(FEW);
    let named = shard.read_index(query).and_then(|named| named.has_more_than(most));
    matches!(named, Ok(false))
}
