//! `update`, `replace`, `delete`: change the rows of a selection.

use datum::{Datum, PrimaryKey};
use reql::purity::{self, Determinism};
use reql::{Arg, Call, EvalError, Op, ResultKind, Scope, Term};

use crate::context::Cx;
use crate::edit::{Edit, Patch, RowTarget, WriteOptions};
use crate::stream::Pipe;
use crate::table::{TableRef, key_error};
use crate::value::{Args, Seq, Value};
use crate::write::{PlannedWrites, WriteExecutor, WriteResult, write_options};

/// Fails unless the change of an `update` or `replace` with `r.args` is deterministic, or need not be. The arguments
/// are checked before they are spliced.
pub(crate) fn check_before_splicing(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<(), EvalError> {
    check_deterministic(call, Args::new(cx, call, scope, Vec::new()).flag("non_atomic")?)
}

fn check_deterministic(call: &Call, non_atomic: bool) -> Result<(), EvalError> {
    if non_atomic || call.args.iter().skip(1).all(is_deterministic) {
        return Ok(());
    }
    Err(EvalError::logic(
        "Could not prove argument deterministic.  Maybe you want to use the non_atomic flag?",
    ))
}

fn is_deterministic(term: &Term) -> bool {
    purity::of_term(term) <= Determinism::WithinQuery
}

/// `update`, `replace`: change each row by a function or a value.
pub(crate) fn update(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [target, change] = call.args.as_slice() else {
        return Err(EvalError::internal("a write without arguments"));
    };
    let target = match cx.eval(target, scope).map_err(|error| error.at(0))? {
        Value::Grouped(groups) => return cx.call_per_group(call, scope, groups),
        target => target,
    };
    let args = Args::new(cx, call, scope, Vec::new());
    let non_atomic = args.flag("non_atomic")?;
    let options = write_options(&args)?;
    check_deterministic(call, non_atomic)?;
    let patch = patch(cx, call.op, change, scope).map_err(|error| error.at(1))?;
    let edit = match call.op {
        Op::Update => Edit::Update(patch),
        _ => Edit::Replace(patch),
    };
    let atomic = is_deterministic(change);
    write(cx, target, options, &edit, atomic)
}

/// `delete`: removes each row.
pub(crate) fn delete(mut args: Args<'_>) -> Result<Value, EvalError> {
    let target = args.take(0)?;
    // In RethinkDB it is a replacement by null, which has this option.
    args.flag("non_atomic")?;
    let options = write_options(&args)?;
    write(args.cx, target, options, &Edit::Delete, true)
}

/// The argument of `update` or `replace`. A value that is merged into rows may contain literals.
fn patch(cx: &Cx, op: Op, change: &Term, scope: &Scope<'_>) -> Result<Patch, EvalError> {
    let literals = op == Op::Update;
    match change {
        Term::Func(func) => {
            let answer = if literals { ResultKind::Literals } else { ResultKind::Datum };
            reql::closure(func, scope, answer).map(Patch::Func)
        }
        // RethinkDB turns it into a function of the row. Source: `update_term_t` in terms/rewrites.cc.
        change if literals && !is_script(change) && purity::of_term(change) == Determinism::Never => {
            reql::closure_of_argument(change, scope).map(Patch::Func)
        }
        // An error in it is an error of each row.
        change if literals && !is_script(change) => match reql::eval_patch(change, scope, &cx.env()) {
            Ok(Arg::Datum(value)) => Ok(Patch::Constant(value)),
            Ok(Arg::Func(closure)) => Ok(Patch::Func(closure)),
            Err(error) => Ok(Patch::Fails(error)),
        },
        change => match cx.eval(change, scope)? {
            Value::Func(closure) => Ok(Patch::Func(closure)),
            constant @ (Value::Datum(_) | Value::Row(_)) => constant.into_datum(cx).map(Patch::Constant),
            other => Err(other.mismatch("FUNCTION")),
        },
    }
}

/// A script may return a function.
fn is_script(term: &Term) -> bool {
    term.as_call().is_some_and(|call| call.op == Op::Javascript)
}

fn write(
    cx: &Cx,
    target: Value,
    options: WriteOptions,
    edit: &Edit,
    atomic: bool,
) -> Result<Value, EvalError> {
    let mut result = WriteResult::new(options.return_changes, cx.array_limit);
    match target {
        Value::Row(row) => {
            let mut executor = WriteExecutor::new(cx, row.table.clone(), options)?;
            let old = if atomic { Datum::Null } else { row.datum(cx)? };
            write_batch(cx, &mut executor, &row.table, &[(row.key, old)], edit, atomic, &mut result)?;
            executor.finish()?;
        }
        Value::Table(slice) => write_all(cx, slice.into_seq(cx)?, options, edit, atomic, &mut result)?,
        Value::Seq(seq @ Seq { table: Some(_), .. }) => {
            write_all(cx, seq, options, edit, atomic, &mut result)?;
        }
        other => return Err(other.mismatch("SELECTION").at(0)),
    }
    Ok(Value::Datum(result.into_datum()))
}

fn write_all(
    cx: &Cx,
    seq: Seq,
    options: WriteOptions,
    edit: &Edit,
    atomic: bool,
    result: &mut WriteResult,
) -> Result<(), EvalError> {
    let Seq { table: Some(table), pipe, .. } = seq else {
        return Err(EvalError::internal("not a selection"));
    };
    let mut executor = WriteExecutor::new(cx, table.clone(), options)?;
    match write_rows(cx, &mut executor, &table, pipe, edit, atomic, result) {
        Ok(()) => executor.finish(),
        // Earlier rows may have been written.
        Err(error) => Err(executor.final_error(error)),
    }
}

fn write_rows(
    cx: &Cx,
    executor: &mut WriteExecutor<'_>,
    table: &TableRef,
    pipe: Pipe,
    edit: &Edit,
    atomic: bool,
    result: &mut WriteResult,
) -> Result<(), EvalError> {
    let env = cx.env();
    env.check_batches()?;
    let mut rows = pipe.into_write().open(cx)?;
    let mut batch = Vec::new();
    let mut fill = executor.fill();
    while let Some(row) = rows.next(&env)? {
        let is_full = fill.add(&row);
        batch.push((table.key_of(&row)?, row));
        if is_full {
            write_batch(cx, executor, table, &batch, edit, atomic, result)?;
            batch.clear();
        }
    }
    if batch.is_empty() { Ok(()) } else { write_batch(cx, executor, table, &batch, edit, atomic, result) }
}

/// Writes some rows, given by key and the row that was read.
fn write_batch(
    cx: &Cx,
    executor: &mut WriteExecutor<'_>,
    table: &TableRef,
    rows: &[(Datum, Datum)],
    edit: &Edit,
    atomic: bool,
    result: &mut WriteResult,
) -> Result<(), EvalError> {
    let keys = rows.iter().map(|(key, _)| PrimaryKey::encode(key).map_err(|error| key_error(&error)));
    let keys: Vec<PrimaryKey> = keys.collect::<Result<_, _>>()?;
    let evaluated: Vec<Edit> = if atomic { Vec::new() } else { evaluate_edits(cx, table, rows, &keys, edit) };
    let planned =
        PlannedWrites { keys: &keys, edit: &|i| evaluated.get(i).unwrap_or(edit), generated: &|_| false };
    executor.write(&planned)?.into_iter().for_each(|report| result.add(report));
    Ok(())
}

/// Evaluates a change that may read other tables for each row. The results replace the rows.
fn evaluate_edits(
    cx: &Cx,
    table: &TableRef,
    rows: &[(Datum, Datum)],
    keys: &[PrimaryKey],
    edit: &Edit,
) -> Vec<Edit> {
    let field = table.primary_key();
    let fixed = |((_, row), key): (&(Datum, Datum), &PrimaryKey)| {
        edit.evaluated(RowTarget { field: &field, key, hook: None }, row, &cx.env())
    };
    rows.iter().zip(keys).map(fixed).collect()
}
