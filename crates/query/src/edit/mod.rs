//! The effect of a write on one row: a pure function from the old row to the new one. The shard runs it under the latch
//! of the row's key.

mod hook;
mod options;

use cluster::TableConfig;
use datum::{Datum, Object, PrimaryKey, Text, pseudo};
use io::memory::Account;
use reql::cost::{self, Cost};
use reql::{Closure, Env, EvalError, StoredFunc};

pub(crate) use hook::described_hook;
pub(crate) use options::{ReturnChanges, WriteOptions};

/// Most bytes of a row, by a measure that never overestimates: an entry of the log cannot have more.
const ROW_BYTES_MAX: usize = 128 << 20;
/// From this size on a row is only encoded if there is memory for it.
const LARGE_ROW_BYTES: usize = 1 << 20;
/// Copies of a row's bytes on its way to the log: its text, the entry, the record.
const ROW_COPIES: u64 = 3;
/// Most items of an array in a stored row.
const ARRAY_STORED_MAX: usize = 100_000;

/// A change of a row.
#[derive(Clone)]
pub(crate) enum Edit {
    /// Inserts a row, unless the key has one.
    Insert {
        row: Object,
        conflict: Conflict,
    },
    /// Merges the result of the function into the row.
    Update(Patch),
    /// Replaces the row by the result of the function; null deletes it.
    Replace(Patch),
    Delete,
}

/// The argument of `update` and `replace`.
#[derive(Clone)]
pub(crate) enum Patch {
    /// Called with the row.
    Func(Closure),
    /// The same value for every row.
    Constant(Datum),
    /// Fails for every row.
    Fails(EvalError),
}

/// Whether the hook and the indexes that a table adds to every write are quick to evaluate. An index may iterate over a
/// row: its author had permission to configure the table.
pub(crate) fn writes_are_brief(config: &TableConfig) -> bool {
    let hook = config.write_hook.as_ref().map_or(Cost::Brief, StoredFunc::cost);
    hook == Cost::Brief && config.indexes.cost() <= Cost::PerItem
}

/// How an insert treats a row that exists.
#[derive(Clone)]
pub(crate) enum Conflict {
    Error,
    Replace,
    /// Merges the new row into it.
    Update,
    /// Calls a function of (key, old, new).
    Func(Closure),
}

/// The outcome of a write for a row.
#[derive(Clone, Debug)]
pub(crate) enum RowOutcome {
    /// There was none; now there is.
    Inserted,
    /// It is another row now.
    Replaced,
    /// There is none now.
    Deleted,
    /// It is the same as before.
    Unchanged,
    /// There was none and there is none.
    Skipped,
    /// The write failed for this row.
    Failed(EvalError),
}

/// The outcome for a row, and the rows to show.
#[derive(Clone, Debug)]
pub(crate) struct RowReport {
    pub outcome: RowOutcome,
    /// The row before, or null.
    pub old: Datum,
    /// The row after, or null.
    pub new: Datum,
}

impl RowReport {
    /// A failed write; the row is unchanged.
    pub fn failed(error: EvalError, old: Datum) -> RowReport {
        RowReport { outcome: RowOutcome::Failed(error), new: old.clone(), old }
    }

    /// The same if the row is gone, or never existed.
    pub fn removed(self) -> RowReport {
        let outcome = if self.old == Datum::Null { RowOutcome::Skipped } else { RowOutcome::Deleted };
        RowReport { outcome, old: self.old, new: Datum::Null }
    }

    /// Whether the stored row has changed.
    pub fn is_change(&self) -> bool {
        matches!(self.outcome, RowOutcome::Inserted | RowOutcome::Replaced | RowOutcome::Deleted)
    }
}

/// The key of the row to write, and the table's settings for it.
#[derive(Clone, Copy)]
pub(crate) struct RowTarget<'a> {
    /// The field with the primary key.
    pub field: &'a Text,
    pub key: &'a PrimaryKey,
    /// The table's write hook, unless the write skips it.
    pub hook: Option<&'a StoredFunc>,
}

impl Edit {
    /// Applies the edit to `old`.
    pub fn decide(&self, target: RowTarget<'_>, old: Option<&Object>, env: &Env<'_>) -> RowReport {
        let before = old.map_or(Datum::Null, |row| Datum::Object(row.clone()));
        let after = self.after(target, &before, env);
        let after = match target.hook {
            None => after,
            Some(hook) => after.and_then(|after| hook::apply(hook, target.field, &before, after, env)),
        };
        match after.and_then(|after| settle(target, &before, after)) {
            Ok(report) => report,
            Err(error) => RowReport::failed(error, before),
        }
    }

    /// Whether the edit is quick to evaluate, so that it need not be cancellable.
    pub fn is_brief(&self) -> bool {
        let is_brief = |closure: &Closure| cost::of_func(&closure.func) == Cost::Brief;
        match self {
            Edit::Insert { conflict: Conflict::Func(closure), .. } => is_brief(closure),
            Edit::Update(Patch::Func(closure)) | Edit::Replace(Patch::Func(closure)) => is_brief(closure),
            _ => true,
        }
    }

    /// The edit as evaluated for the row `before`: it needs no further evaluation.
    pub fn evaluated(&self, target: RowTarget<'_>, before: &Datum, env: &Env<'_>) -> Edit {
        match self.after(target, before, env) {
            Ok(after) => Edit::Replace(Patch::Constant(after)),
            Err(error) => Edit::Replace(Patch::Fails(error)),
        }
    }

    /// The edit as it is sent to another server, without values that are too large for a row. A function that is too
    /// large fails when the request is encoded.
    pub fn to_send(&self) -> Edit {
        let may_be_stored = match self {
            Edit::Insert { row, .. } => fits(&Datum::Object(row.clone())),
            Edit::Update(Patch::Constant(value)) | Edit::Replace(Patch::Constant(value)) => fits(value),
            _ => true,
        };
        if may_be_stored { self.clone() } else { Edit::Replace(Patch::Fails(too_large())) }
    }

    fn after(&self, target: RowTarget<'_>, before: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Edit::Insert { row, conflict } => conflict.settle(target, before, row, env),
            Edit::Update(patch) => match before {
                Datum::Null => Ok(Datum::Null),
                Datum::Object(row) => updated(row, patch.value(before, env)?),
                other => Err(EvalError::type_error("OBJECT", other)),
            },
            Edit::Replace(patch) => patch.value(before, env),
            Edit::Delete => Ok(Datum::Null),
        }
    }
}

impl Patch {
    fn value(&self, before: &Datum, env: &Env<'_>) -> Result<Datum, EvalError> {
        match self {
            Patch::Func(closure) => closure.call(std::slice::from_ref(before), env),
            Patch::Constant(value) => Ok(value.clone()),
            Patch::Fails(error) => Err(error.clone()),
        }
    }
}

impl Conflict {
    fn settle(
        &self,
        target: RowTarget<'_>,
        before: &Datum,
        row: &Object,
        env: &Env<'_>,
    ) -> Result<Datum, EvalError> {
        let Datum::Object(old) = before else {
            return Ok(Datum::Object(row.clone()));
        };
        match self {
            Conflict::Error => Err(duplicate(target.field, before, row)),
            Conflict::Replace => Ok(Datum::Object(row.clone())),
            Conflict::Update => updated(old, Datum::Object(row.clone())),
            Conflict::Func(closure) => {
                let key = row.get(target.field).unwrap_or(Datum::Null);
                closure.call(&[key, before.clone(), Datum::Object(row.clone())], env)
            }
        }
    }
}

fn duplicate(field: &Text, before: &Datum, row: &Object) -> EvalError {
    let (old, new) = (before.pretty(), Datum::Object(row.clone()).pretty());
    EvalError::op_failed(format!("Duplicate primary key `{field}`:\n{old}\n{new}"))
}

/// `old` with `change` merged into it. Null changes nothing. A value that is no object replaces the row, and is refused
/// later.
fn updated(old: &Object, change: Datum) -> Result<Datum, EvalError> {
    match change {
        Datum::Null => Ok(Datum::Object(old.clone())),
        change => reql::op::merge::merge_row(&Datum::Object(old.clone()), &change),
    }
}

/// The report of a change from `before` to `after`.
fn settle(target: RowTarget<'_>, before: &Datum, after: Datum) -> Result<RowReport, EvalError> {
    let outcome = match (before, &after) {
        (Datum::Null, Datum::Null) => RowOutcome::Skipped,
        (_, Datum::Null) => RowOutcome::Deleted,
        (_, Datum::Object(row)) => {
            check_key(target, before, row)?;
            match before {
                Datum::Null => RowOutcome::Inserted,
                _ if *before == after => RowOutcome::Unchanged,
                _ => RowOutcome::Replaced,
            }
        }
        // These are objects too, but no rows.
        (_, Datum::Time(_) | Datum::Geometry(_)) => {
            let members = pseudo::to_object(&after).unwrap_or_default();
            return Err(key_missing(target.field, &members));
        }
        (_, other) => return Err(not_an_object(other)),
    };
    if matches!(outcome, RowOutcome::Inserted | RowOutcome::Replaced) {
        check_storable(&after)?;
    }
    Ok(RowReport { outcome, old: before.clone(), new: after })
}

fn fits(value: &Datum) -> bool {
    value.json_may_fit(ROW_BYTES_MAX)
}

/// Reported before there is an entry, which the log would refuse.
fn too_large() -> EvalError {
    EvalError::op_failed(format!(
        "Cannot perform write: the row has more than {ROW_BYTES_MAX} bytes, the most that a row can have. Divide it into \
         smaller rows."
    ))
}

/// `Inserted value must be an OBJECT (got <T>):`
pub(crate) fn not_an_object(value: &Datum) -> EvalError {
    let (kind, printed) = (value.kind().name(), value.pretty());
    EvalError::typed(value, format!("Inserted value must be an OBJECT (got {kind}):\n{printed}"))
}

/// ``Inserted object must have primary key `<pk>`:``
pub(crate) fn key_missing(field: &Text, row: &Object) -> EvalError {
    let printed = Datum::Object(row.clone()).pretty();
    EvalError::logic(format!("Inserted object must have primary key `{field}`:\n{printed}"))
}

fn check_key(target: RowTarget<'_>, before: &Datum, row: &Object) -> Result<(), EvalError> {
    let field = target.field;
    let Some(key) = row.get(field) else {
        return Err(key_missing(field, row));
    };
    let same = PrimaryKey::encode(&key).is_ok_and(|key| key == *target.key);
    if same {
        return Ok(());
    }
    let after = Datum::Object(row.clone()).pretty();
    let change = match before {
        Datum::Null => format!("(null -> {after})"),
        before => format!("(`{}` -> `{after}`).", before.pretty()),
    };
    Err(EvalError::logic(format!("Primary key `{field}` cannot be changed {change}")))
}

/// The error of a row that contains `minval` or `maxval`.
pub(crate) fn extreme_stored() -> EvalError {
    EvalError::logic("`r.minval` and `r.maxval` cannot be written to disk.")
}

/// Fails if `row` is too large, has an array that is too long, or contains values that cannot be stored. Stored text in
/// it was checked before.
fn check_storable(row: &Datum) -> Result<(), EvalError> {
    if !fits(row) {
        return Err(too_large());
    }
    let bytes = row.json_size_to(ROW_BYTES_MAX);
    if let (LARGE_ROW_BYTES.., Some(account)) = (bytes, Account::current()) {
        account.check_room(bytes as u64 * ROW_COPIES).map_err(EvalError::memory)?;
    }
    if pseudo::holds_literal(row) {
        return Err(reql::op::merge::stray_literal());
    }
    if row.not_json().is_some() {
        return Err(extreme_stored());
    }
    if row.has_longer_array(ARRAY_STORED_MAX) {
        return Err(EvalError::resource("Array too large for disk writes (limit 100,000 elements)."));
    }
    Ok(())
}
