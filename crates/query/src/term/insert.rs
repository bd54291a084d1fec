//! `insert`: adds rows to a table.

use datum::{Datum, Object, PrimaryKey, Text, pseudo};
use reql::purity::{self, Determinism};
use reql::{Call, EvalError, ResultKind, Scope, Term};

use crate::context::Cx;
use crate::edit::{Conflict, Edit, RowReport, extreme_stored, key_missing};
use crate::stream::Pipe;
use crate::table::key_error;
use crate::value::{Args, Value, no_selection};
use crate::write::{PlannedWrites, WriteExecutor, WriteResult, return_changes, write_options_showing};

/// `insert`: an object, or a sequence of objects. Rows without a key get a generated one.
pub(crate) fn insert(cx: &Cx, call: &Call, scope: &Scope<'_>) -> Result<Value, EvalError> {
    let [table, rows] = call.args.as_slice() else {
        return Err(EvalError::internal("INSERT without arguments"));
    };
    let table = match cx.eval(table, scope).map_err(|error| error.at(0))? {
        Value::Table(slice) if slice.is_whole() => slice.table,
        Value::Grouped(groups) => return cx.call_per_group(call, scope, groups),
        other => return Err(other.not_a(cx, "TABLE").at(0)),
    };
    let args = Args::new(cx, call, scope, Vec::new());
    let shown = return_changes(&args)?;
    let conflict = conflict(&args)?;
    let options = write_options_showing(shown, &args)?;
    check_conflict(&conflict)?;
    let rows = cx.eval(rows, scope).map_err(|error| error.at(1))?;
    let mut inserter = Inserter {
        cx,
        field: table.primary_key(),
        conflict,
        executor: WriteExecutor::new(cx, table, options)?,
        result: WriteResult::new(options.return_changes, cx.array_limit),
    };
    let written = match rows_of(cx, rows)? {
        Rows::One(row) => inserter.write(vec![row]),
        Rows::Many(pipe) => inserter.write_all(pipe),
    };
    match written {
        Ok(()) => inserter.executor.finish()?,
        // Earlier rows may have been written.
        Err(error) => return Err(inserter.executor.final_error(error)),
    }
    Ok(Value::Datum(inserter.result.into_datum()))
}

/// The rows to insert.
enum Rows {
    One(Datum),
    Many(Pipe),
}

/// The rows in the second argument.
fn rows_of(cx: &Cx, value: Value) -> Result<Rows, EvalError> {
    match value {
        // Times and shapes are objects too, but no rows.
        Value::Datum(row @ (Datum::Object(_) | Datum::Time(_) | Datum::Geometry(_))) => Ok(Rows::One(row)),
        Value::Row(row) => match row.into_datum(cx).map_err(|error| error.at(1))? {
            row @ Datum::Object(_) => Ok(Rows::One(row)),
            none => Err(no_selection(&none, "SEQUENCE").at(1)),
        },
        other => other.seq_of_argument(1, cx).map(|seq| Rows::Many(seq.pipe)),
    }
}

/// The `conflict` option.
fn conflict(args: &Args<'_>) -> Result<Conflict, EvalError> {
    let term = match args.call.optarg("conflict") {
        Some(Term::Func(func)) => {
            return reql::closure(func, args.scope, ResultKind::Datum).map(Conflict::Func);
        }
        // The option of the whole query, if the term has none.
        _ => args.optional_string("conflict")?,
    };
    match term.as_deref() {
        None | Some("error") => Ok(Conflict::Error),
        Some("replace") => Ok(Conflict::Replace),
        Some("update") => Ok(Conflict::Update),
        Some(other) => {
            let why = format!(
                "Conflict option `{other}` unrecognized (options are \"error\", \"replace\" and \"update\")."
            );
            Err(args.at_optarg("conflict", EvalError::logic(why)))
        }
    }
}

fn check_conflict(conflict: &Conflict) -> Result<(), EvalError> {
    let Conflict::Func(closure) = conflict else { return Ok(()) };
    if purity::of_func(&closure.func) > Determinism::WithinQuery {
        return Err(EvalError::logic("The conflict function passed to `insert` must be deterministic."));
    }
    match closure.arity() {
        0 | 3 => Ok(()),
        _ => Err(EvalError::logic("The conflict function passed to `insert` should expect 3 arguments.")),
    }
}

/// A running `insert`.
struct Inserter<'a> {
    cx: &'a Cx,
    field: Text,
    conflict: Conflict,
    executor: WriteExecutor<'a>,
    result: WriteResult,
}

/// A row that cannot be written.
struct Unwritable {
    report: RowReport,
    /// Whether that was known without the table.
    at_once: bool,
}

/// A row that can be written.
struct Ready {
    key: PrimaryKey,
    edit: Edit,
    generated: bool,
}

impl Inserter<'_> {
    fn write_all(&mut self, pipe: Pipe) -> Result<(), EvalError> {
        let env = self.cx.env();
        env.check_batches()?;
        let mut rows = pipe.open(self.cx)?;
        if let Some(endless) = rows.endless() {
            return Err(endless.error());
        }
        let mut batch = Vec::new();
        let mut fill = self.executor.fill();
        while let Some(row) = rows.next(&env)? {
            let is_full = fill.add(&row);
            batch.push(row);
            if is_full {
                self.write(std::mem::take(&mut batch))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.write(batch) }
    }

    fn write(&mut self, rows: Vec<Datum>) -> Result<(), EvalError> {
        let plans: Vec<Result<Ready, Unwritable>> = rows.into_iter().map(|row| self.plan(row)).collect();
        // The errors of rows that could never be written come first, wherever these rows are.
        let unwritable = plans.iter().filter_map(|plan| plan.as_ref().err()).filter(|wrong| wrong.at_once);
        unwritable.for_each(|wrong| self.result.note(&wrong.report));
        let ready: Vec<&Ready> = plans.iter().filter_map(|plan| plan.as_ref().ok()).collect();
        let keys: Vec<PrimaryKey> = ready.iter().map(|ready| ready.key.clone()).collect();
        let planned =
            PlannedWrites { keys: &keys, edit: &|i| &ready[i].edit, generated: &|i| ready[i].generated };
        let mut reports = self.executor.write(&planned)?.into_iter();
        // If no row can be written, one of them is shown. Source: `table_t::batched_insert` of RethinkDB.
        let none_is_ready = plans.iter().all(|plan| plan.as_ref().is_err_and(|wrong| wrong.at_once));
        let mut shown = if none_is_ready { 1 } else { plans.len() };
        for plan in plans {
            match plan {
                Err(Unwritable { report, at_once: false }) => self.result.add(report),
                Err(Unwritable { report, at_once: true }) => {
                    self.result.add_unwritable(report, shown > 0);
                    shown = shown.saturating_sub(1);
                }
                Ok(ready) => {
                    let Some(report) = reports.next() else { break };
                    if ready.generated {
                        self.result.add_generated_key(ready.key.decode());
                    }
                    self.result.add(report);
                }
            }
        }
        Ok(())
    }

    fn plan(&self, row: Datum) -> Result<Ready, Unwritable> {
        let refused = |error: EvalError| {
            let report = RowReport::failed(error, Datum::Null);
            Unwritable { report, at_once: true }
        };
        let row = match row {
            Datum::Object(row) => row,
            Datum::Time(_) | Datum::Geometry(_) => {
                let members = pseudo::to_object(&row).unwrap_or_default();
                return Err(refused(key_missing(&self.field, &members)));
            }
            other => return Err(refused(EvalError::type_error("OBJECT", &other))),
        };
        let (row, generated) = match row.contains_key(&self.field) {
            true => (row, false),
            false => (self.with_key(&row), true),
        };
        let Some(key) = row.get(&self.field) else {
            return Err(refused(key_missing(&self.field, &row)));
        };
        let key = PrimaryKey::encode(&key).map_err(|error| match error.is_extreme() {
            true => Unwritable { at_once: false, ..refused(extreme_stored()) },
            false => refused(key_error(&error)),
        })?;
        Ok(Ready { key, edit: Edit::Insert { row, conflict: self.conflict.clone() }, generated })
    }

    fn with_key(&self, row: &Object) -> Object {
        let mut row = row.to_builder();
        row.insert(self.field.clone(), self.cx.node().new_uuid().to_string().into());
        row.build()
    }
}
