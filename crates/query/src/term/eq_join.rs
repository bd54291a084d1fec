//! `eq_join`: each left item with the rows whose key is one of its values.

use std::sync::Arc;

use datum::key::secondary;
use datum::{Datum, PrimaryKey, Text};
use reql::Selector;
use reql::stream::{Endless, Items, pair};
use reql::{Arg, Call, Env, EvalError, Scope, Term};

use super::join::joined_value;
use crate::context::Cx;
use crate::stream::{RowSource, row_reads};
use crate::table::{Index, TableRef, key_error};
use crate::value::{Args, JoinOrigin, Origin, Seq, Value};

/// `eq_join`: in the order of the left side. Source of the order in which arguments are checked: terms/seq.cc of
/// RethinkDB.
pub(crate) fn eq_join(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [left, by, table] = call.args.as_slice() else {
        return Err(EvalError::internal("EQ_JOIN without arguments"));
    };
    let left = match cx.eval(left, scope).map_err(|error| error.at(0))? {
        // Groups of sequences are not values yet.
        Value::Grouped(groups) if !groups.is_stream() => return cx.call_per_group(call, scope, groups),
        left => left,
    };
    let is_eager = left.is_eager();
    let left = left.seq_of_argument(0, cx)?;
    let table = match cx.eval(table, scope).map_err(|error| error.at(2))? {
        Value::Table(slice) if slice.is_whole() => slice.table,
        other => return Err(other.not_a(cx, "TABLE").at(2)),
    };
    let selector = selector(cx, by, scope).map_err(|error| error.at(1))?;
    let args = Args::new(cx, call, scope, Vec::new());
    args.flag("ordered")?;
    let name = match args.optional_datum("index")? {
        None => table.primary_key(),
        Some(Datum::String(name)) => name,
        Some(other) => return Err(EvalError::type_error("STRING", &other)),
    };
    let origin = left.followed().map(|left| {
        let (left, by, right, index) = (Box::new(left), selector.clone(), table.clone(), name.clone());
        Box::new(Origin::Join(JoinOrigin { left, by, right, index, steps: Vec::new() }))
    });
    let (left, shared) = (left.pipe.open(cx)?, cx.shared()?);
    let joined = EqJoined { cx: shared, left, selector, table, name, index: None, current: None };
    Ok(match joined_value(cx, call.op, Box::new(joined), is_eager)? {
        Value::Seq(seq) => Value::Seq(Seq { origin, ..seq }),
        array => array,
    })
}

fn selector(cx: &Cx, by: &Term, scope: &Scope<'_>) -> Result<Selector, EvalError> {
    Ok(Selector::from(match cx.eval(by, scope)? {
        Value::Func(closure) => Arg::Func(closure),
        field @ (Value::Datum(_) | Value::Row(_)) => Arg::Datum(field.into_datum(cx)?),
        other => return Err(other.mismatch("FUNCTION")),
    }))
}

struct EqJoined {
    cx: Arc<Cx>,
    left: Box<dyn Items>,
    selector: Selector,
    table: TableRef,
    /// The name of the index, and the index after the first lookup.
    name: Text,
    index: Option<Index>,
    /// A left item and its rows of a secondary index.
    current: Option<(Datum, Box<dyn Items>)>,
}

impl EqJoined {
    /// The index that has got the name since the last lookup, if rows can be ordered by it.
    fn replaced(&self) -> Option<Index> {
        let (TableRef::Stored(table), Some(Index::Secondary(known))) = (&self.table, &self.index) else {
            return None;
        };
        let catalog = self.cx.node().catalog_guard();
        let present = catalog.table_by_id(table.handle.config.id)?.config.indexes.find(&self.name)?;
        (present.id != known.id && !present.kind.is_geo()).then(|| Index::Secondary(present.clone()))
    }

    /// Looks up the rows for `left` under `key`: returns the pair for a single row; several rows are paired one by one.
    fn look_up(&mut self, left: Datum, key: Datum) -> Result<Option<Datum>, EvalError> {
        let index = match self.replaced().or(self.index.take()) {
            Some(index) => index,
            None => self.table.index(&self.cx, &self.name)?,
        };
        let index = self.index.insert(index);
        let legal = match index {
            Index::Primary => PrimaryKey::encode(&key).map(drop),
            Index::Secondary(_) => secondary::encode(&key).map(drop),
        };
        match (legal, index) {
            // The bounds are legal keys, and no row has them.
            (Err(error), _) if error.is_extreme() => Ok(None),
            (Err(error), Index::Secondary(_)) => Err(key_error(&error)),
            (Err(error), _) if matches!(self.table, TableRef::Stored(_)) => Err(key_error(&error)),
            (_, Index::Primary) => {
                let right = row_reads::row(&self.cx, &self.table, &key)?;
                Ok((right != Datum::Null).then(|| pair(left, Some(right))))
            }
            (Ok(()), Index::Secondary(index)) => {
                let source = RowSource::of_values(&self.table, index, vec![(key, 1)])?;
                self.current = Some((left, source.open(&self.cx)?));
                Ok(None)
            }
        }
    }
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
            match self.selector.present(&left, env).map_err(|error| error.at(1))? {
                None | Some(Datum::Null) => {}
                Some(key) => match self.look_up(left, key)? {
                    None => {}
                    joined => return Ok(joined),
                },
            }
        }
    }

    fn endless(&self) -> Option<Endless> {
        self.left.endless()
    }

    fn is_exhausted(&self) -> bool {
        self.current.is_none() && self.left.is_exhausted()
    }
}
