//! `inner_join` and `outer_join` with a table or a stream, and `eq_join`.

use std::sync::Arc;

use datum::PrimaryKey;
use datum::{Array, Datum};
use reql::Selector;
use reql::stream::{Items, Join, Joined, pair};
use reql::{Arg, Closure, Env, EvalError, Op};

use crate::args::Args;
use crate::context::Cx;
use crate::read;
use crate::seq::Seq;
use crate::slice::Slice;
use crate::stream::{Pipe, RowSource};
use crate::table::{Index, TableRef};
use crate::value::Value;

/// A right side with at most so many items is read once; a larger one for every left item.
const RIGHT_KEPT_MAX: usize = 10_000;

/// `inner_join`, `outer_join`: the pairs a predicate holds for.
pub(crate) fn join(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let outer = args.op() == Op::OuterJoin;
    let eager = args.is_eager(0) && args.is_eager(1);
    let left = args.seq(0)?.pipe.open(cx)?;
    let right = right_side(cx, args.take(1)?)?;
    let predicate = args.func(2)?;
    let mut joined: Box<dyn Items> = match right {
        Right::Kept(right) => Box::new(Joined::new(left, Join { right, predicate, outer })),
        Right::Again(right) => {
            let (cx, current) = (cx.shared()?, None);
            Box::new(AgainJoined { cx, left, right, predicate, outer, current })
        }
    };
    if !eager {
        return Ok(Value::Seq(Seq::stream(Pipe::of_items(joined))));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut *joined, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

/// The right side of a join.
enum Right {
    /// In memory.
    Kept(Array),
    /// Read anew for every left item.
    Again(Slice),
}

fn right_side(cx: &Cx, value: Value) -> Result<Right, EvalError> {
    let again = match &value {
        Value::Table(slice) => Some(slice.clone()),
        _ => None,
    };
    let items = value.seq_of_argument(1, cx)?.pipe.open(cx);
    let mut items = items.map_err(|error| error.at(1))?;
    if items.is_infinite() {
        return Err(reql::infinite());
    }
    let env = cx.env();
    let mut kept = Vec::new();
    while let Some(item) = items.next(&env).map_err(|error| error.at(1))? {
        env.check_cancel()?;
        kept.push(item);
        match &again {
            Some(slice) if kept.len() > RIGHT_KEPT_MAX => return Ok(Right::Again(slice.clone())),
            _ => {}
        }
    }
    Ok(Right::Kept(Array::from(kept)))
}

/// A join whose right side is read anew for every left item.
struct AgainJoined {
    cx: Arc<Cx>,
    left: Box<dyn Items>,
    right: Slice,
    predicate: Closure,
    outer: bool,
    current: Option<Current>,
}

/// A left item being paired.
struct Current {
    left: Datum,
    right: Box<dyn Items>,
    matched: bool,
}

impl Items for AgainJoined {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            let Some(current) = &mut self.current else {
                let Some(left) = self.left.next(env)? else { return Ok(None) };
                let right = self.right.clone().into_seq(&self.cx)?.pipe.open(&self.cx)?;
                self.current = Some(Current { left, right, matched: false });
                continue;
            };
            if let Some(right) = current.right.next(env)? {
                let values = [current.left.clone(), right];
                if self.predicate.test(&values, env).map_err(|error| error.at(2))? {
                    current.matched = true;
                    let [left, right] = values;
                    return Ok(Some(pair(left, Some(right))));
                }
                continue;
            }
            let alone = self.current.take().filter(|current| self.outer && !current.matched);
            if let Some(current) = alone {
                return Ok(Some(pair(current.left, None)));
            }
        }
    }

    fn is_infinite(&self) -> bool {
        self.left.is_infinite()
    }
}

/// `eq_join`: each left item with the row whose key a value of it is, in the order of the left.
pub(crate) fn eq_join(mut args: Args<'_>) -> Result<Value, EvalError> {
    let cx = args.cx;
    let eager = args.is_eager(0);
    let selector = match args.take(1)? {
        Value::Func(closure) => Selector::from(Arg::Func(closure)),
        other => Selector::from(Arg::Datum(other.into_datum(cx).map_err(|error| error.at(1))?)),
    };
    let table = args.table(2)?;
    let index = match args.optional_datum("index")? {
        Some(Datum::String(name)) => table.index(&name)?,
        Some(other) => return Err(EvalError::type_error("STRING", &other)),
        None => Index::Primary,
    };
    let left = args.seq(0)?.pipe.open(cx)?;
    let mut joined = EqJoined { cx: cx.shared()?, left, selector, table, index, current: None };
    if !eager {
        return Ok(Value::Seq(Seq::stream(Pipe::of_items(joined))));
    }
    let env = cx.env();
    env.check_batches()?;
    let items = reql::stream::collect(&mut joined, &env)?;
    Ok(Value::Datum(Datum::Array(items)))
}

struct EqJoined {
    cx: Arc<Cx>,
    left: Box<dyn Items>,
    selector: Selector,
    table: TableRef,
    index: Index,
    /// A left item and the rows of a secondary index it is paired with.
    current: Option<(Datum, Box<dyn Items>)>,
}

impl Items for EqJoined {
    fn next(&mut self, env: &Env<'_>) -> Result<Option<Datum>, EvalError> {
        loop {
            env.check_cancel()?;
            if let Some((left, rights)) = &mut self.current {
                match rights.next(env)? {
                    Some(right) => return Ok(Some(pair(left.clone(), Some(right)))),
                    None => self.current = None,
                }
            }
            let Some(left) = self.left.next(env)? else { return Ok(None) };
            let Some(key) = self.selector.present(&left, env).map_err(|error| error.at(1))? else { continue };
            if let Index::Secondary(index) = &self.index {
                // What cannot be a key is in no row.
                if datum::key::secondary::encode(&key).is_ok() {
                    let source = RowSource::of_values(&self.table, index, vec![(key, 1)])?;
                    self.current = Some((left, source.open(&self.cx)?));
                }
                continue;
            }
            // What cannot be a key is in no row.
            if PrimaryKey::encode(&key).is_err() {
                continue;
            }
            match read::row(&self.cx, &self.table, &key)? {
                Datum::Null => {}
                right => return Ok(Some(pair(left, Some(right)))),
            }
        }
    }

    fn is_infinite(&self) -> bool {
        self.left.is_infinite()
    }
}
