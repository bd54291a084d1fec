//! Terms on sequences. `reql`'s [`Operation`] defines the effect of a term on items; this module decides where it runs
//! (beside the rows, or item by item) and which kind of sequence results.

use datum::{Array, Datum};
use reql::IndexOption;
use reql::Operation;
use reql::Pipeline;
use reql::Term;
use reql::Terminal;
use reql::Transform;
use reql::{Call, EvalError, Op, Scope};

use crate::context::Cx;
use crate::stream::{Pipe, Source, gather};
use crate::table::TableRef;
use crate::value::{Grouped, Origin, Row, Seq, Value, no_selection};

/// A term on a sequence whose first argument was evaluated.
pub(crate) struct SequenceCall<'a> {
    pub cx: &'a Cx,
    pub call: &'a Call,
    /// The variables around it.
    pub scope: &'a Scope<'a>,
    /// Its first argument.
    pub first: Value,
}

impl SequenceCall<'_> {
    /// The operation of the term; evaluates the other arguments.
    pub fn operation(&self, index: IndexOption) -> Result<Operation, EvalError> {
        let built = reql::operation(self.call, self.scope, &self.cx.env(), index)?;
        built.ok_or_else(|| EvalError::internal(format!("{} is not an operation", self.call.op.name())))
    }
}

/// Evaluates a term on a table, a stream, an array, or (some terms) a single value.
pub(crate) fn apply(over: SequenceCall<'_>) -> Result<Value, EvalError> {
    let (cx, op) = (over.cx, over.call.op);
    match over.first {
        Value::Datum(ref single) => reql::check_source(op, single)?,
        Value::Table(_) | Value::Seq(_) => {}
        other if reql::checks_source_first(op) => return Err(no_sequence(cx, other)),
        _ => {}
    }
    let operation = over.operation(IndexOption::Refuse)?;
    applied(cx, op, over.first, operation)
}

/// Applies the operation of term `op` to its first argument.
pub(crate) fn applied(cx: &Cx, op: Op, first: Value, operation: Operation) -> Result<Value, EvalError> {
    let seq = match first {
        Value::Table(slice) => slice.into_seq(cx).map_err(|error| error.at(0))?,
        Value::Seq(seq) => seq,
        other if reql::is_of_sequences(op) && !matches!(other, Value::Datum(_)) => {
            return Err(no_sequence(cx, other));
        }
        other @ (Value::Db(_) | Value::Func(_)) => {
            return Err(operation.refused(other.kind(), &other.print()));
        }
        Value::Row(row) if matches!(operation, Operation::Nth(_)) => {
            return Err(EvalError::type_error("ARRAY", &row.into_datum(cx)?));
        }
        Value::Row(row) if matches!(operation, Operation::Terminal(..)) => {
            return count_of_row(row.into_datum(cx).map_err(|error| error.at(0))?, &operation, cx);
        }
        other => {
            let single = other.into_datum(cx).map_err(|error| error.at(0))?;
            return operation.apply(reql::Value::Datum(single), &cx.env()).map(Value::of_closed);
        }
    };
    if seq.eager {
        return on_rows_read(cx, seq, &operation);
    }
    match operation {
        Operation::Step(step) => Ok(Value::Seq(stepped(seq, step))),
        Operation::Terminal(steps, terminal) => end(cx, seq.pipe, steps, terminal).map(Value::of_closed),
        Operation::Group(by) => Ok(Value::Grouped(Grouped::Lazy { pipe: seq.pipe, by, steps: Vec::new() })),
        Operation::OrderBy(_) => {
            if let Some(trace) = cx.trace_room() {
                trace.at_top("order_by (all of it in memory)");
            }
            cx.env().check_batches()?;
            let table = seq.table.clone();
            let items = collect(cx, seq.pipe)?;
            let sorted = operation.on_array(&items, &cx.env())?;
            Ok(selection_of_array(table, Value::of_closed(sorted)))
        }
        other => {
            if let Some(trace) = cx.trace_room() {
                trace.at_top(op.name().to_lowercase());
            }
            item_by_item(cx, seq, &other)
        }
    }
}

/// `count` of a row: the number of its fields. A row is no sequence, so that there is nothing else to count.
fn count_of_row(row: Datum, count: &Operation, cx: &Cx) -> Result<Value, EvalError> {
    match (&row, count) {
        (Datum::Object(_), Operation::Terminal(steps, Terminal::Count)) if steps.is_empty() => {
            count.apply(reql::Value::Datum(row), &cx.env()).map(Value::of_closed)
        }
        _ => Err(no_selection(&row, "SEQUENCE").at(0)),
    }
}

/// The error of a first argument that is no sequence.
pub(crate) fn no_sequence(cx: &Cx, first: Value) -> EvalError {
    match first.into_seq(cx) {
        Err(error) => error.at(0),
        Ok(_) => EvalError::internal("a sequence was refused as no sequence"),
    }
}

/// `difference` with its second argument evaluated: it may be any sequence, which is read now. The first argument was
/// evaluated before, and is checked. An error in the second is the inner one: it is raised for each item of the first.
pub(crate) fn difference_evaluated(
    cx: &Cx,
    call: &Call,
    scope: &Scope<'_>,
    first: &Value,
) -> Result<Result<Call, EvalError>, EvalError> {
    if let Value::Datum(single) = first {
        reql::check_source(call.op, single)?;
    }
    let [_, term] = &call.args[..] else {
        return Err(EvalError::internal("difference takes two arguments"));
    };
    let unwanted = cx.eval(term, scope).and_then(|value| held(cx, value)).map_err(|error| error.at(1));
    cx.check_stopped()?;
    Ok(unwanted.map(|unwanted| {
        let args = vec![Term::Datum(Datum::Null), Term::Datum(unwanted)];
        Call { op: call.op, args, optargs: call.optargs.clone(), traits: call.traits, path: None }
    }))
}

/// The datum of a value. A sequence becomes an array, without the array limit.
fn held(cx: &Cx, value: Value) -> Result<Datum, EvalError> {
    if let Value::Datum(datum) = value {
        return Ok(datum);
    }
    let mut items = value.into_seq(cx)?.pipe.open(cx)?;
    reql::stream::collect_unlimited(&mut *items, &cx.env()).map(Datum::Array)
}

fn stepped(seq: Seq, step: Transform) -> Seq {
    let table = seq.table.filter(|_| keeps_rows(&step));
    let origin = seq.origin.map(|origin| Box::new(origin.then(&step)));
    Seq { eager: false, table, pipe: seq.pipe.then(step), origin }
}

fn keeps_rows(step: &Transform) -> bool {
    matches!(step, Transform::Filter(_) | Transform::HasFields(_) | Transform::Shape(_))
}

/// Applies a term to rows that were read as a whole: as to an array, but rows stay rows of their table.
fn on_rows_read(cx: &Cx, seq: Seq, operation: &Operation) -> Result<Value, EvalError> {
    let Seq { table, pipe, .. } = seq;
    let items = collect(cx, pipe)?;
    let answer = Value::of_closed(operation.on_array(&items, &cx.env())?);
    let keeps = match operation {
        Operation::Step(step) => keeps_rows(step),
        Operation::Slice(_) | Operation::Limit(_) | Operation::OrderBy(_) | Operation::Sample(_) => true,
        _ => false,
    };
    match (operation, table, answer) {
        (Operation::Nth(_), Some(table), Value::Datum(row)) => Row::of_selection(table, row).map(Value::Row),
        (_, table, answer) if keeps => Ok(selection_of_array(table, answer)),
        (_, _, answer) => Ok(answer),
    }
}

/// Evaluates a term item by item.
fn item_by_item(cx: &Cx, seq: Seq, operation: &Operation) -> Result<Value, EvalError> {
    let origin = first_rows(&seq, operation).map(Box::new);
    let Seq { table, pipe, .. } = seq;
    let items = match operation {
        Operation::Limit(most) => pipe.open_first(cx, *most as usize)?,
        _ => pipe.open(cx)?,
    };
    let answer = Value::of_closed(operation.apply(reql::Value::Stream(items), &cx.env())?);
    match (operation, table, answer) {
        (Operation::Slice(_) | Operation::Limit(_), Some(table), Value::Seq(part)) => {
            Ok(Value::Seq(Seq { origin, ..Seq::selection(table, part.pipe) }))
        }
        (Operation::Nth(_), Some(table), Value::Datum(row)) => Row::of_selection(table, row).map(Value::Row),
        (Operation::Sample(_), table, answer) => Ok(selection_of_array(table, answer)),
        (Operation::Limit(_), None, Value::Seq(part)) => Ok(Value::Seq(Seq { origin, ..part })),
        (_, _, answer) => Ok(answer),
    }
}

/// The rows that `limit` takes, for a changefeed; `None` for other operations and sequences.
fn first_rows(seq: &Seq, operation: &Operation) -> Option<Origin> {
    let Operation::Limit(most) = operation else { return None };
    Some(seq.followed()?.limited(usize::try_from(*most).unwrap_or(usize::MAX)))
}

/// Rows that were read as a whole stay rows of their table.
pub(crate) fn selection_of_array(table: Option<TableRef>, value: Value) -> Value {
    match (table, value) {
        (Some(table), Value::Datum(Datum::Array(rows))) => {
            Value::Seq(Seq { eager: true, ..Seq::selection(table, Pipe::of_array(rows)) })
        }
        (_, value) => value,
    }
}

/// Ends a sequence with a terminal.
pub(crate) fn end(
    cx: &Cx,
    pipe: Pipe,
    steps: Vec<Transform>,
    terminal: Terminal,
) -> Result<reql::Value, EvalError> {
    let pipeline = Pipeline { steps, group: None, grouped_steps: Vec::new(), terminal };
    gather(cx, pipe, pipeline)
}

/// All items, within the array limit.
pub(crate) fn collect(cx: &Cx, pipe: Pipe) -> Result<Array, EvalError> {
    if let Source::Items(_) | Source::Keys(_) = pipe.source {
        let mut items = pipe.open(cx)?;
        return reql::stream::collect(&mut *items, &cx.env());
    }
    match end(cx, pipe, Vec::new(), Terminal::Collect)? {
        reql::Value::Datum(Datum::Array(items)) => Ok(items),
        _ => Err(EvalError::internal("a collected sequence is not an array")),
    }
}

/// A sequence as an array.
pub(crate) fn to_array(cx: &Cx, value: Value) -> Result<Datum, EvalError> {
    let seq = value.into_seq(cx)?;
    collect(cx, seq.pipe).map(Datum::Array)
}
