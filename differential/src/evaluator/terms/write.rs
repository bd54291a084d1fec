//! Writes, row by row.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::{datum, object, sequence, tables};
use crate::evaluator::args::Args;
use crate::evaluator::term_value::{Func, Slice, TermValue};
use crate::evaluator::{Evaluator, into_datum};
use crate::fault::{Class, Fault, Out};
use crate::value::Val;

pub(super) fn eval(args: &Args<'_>) -> Out<TermValue> {
    match args.id {
        56 => insert(args),
        68 => for_each(args),
        _ => change(args),
    }
}

/// The result of a write.
#[derive(Default)]
struct Report {
    counts: BTreeMap<&'static str, f64>,
    first_error: bool,
    /// `None` before the first row: the result has no `changes` then.
    changes: Option<Vec<Val>>,
}

/// The changes in the result.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    None,
    Changed,
    All,
}

impl Report {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1.0;
    }

    fn finish(self, evaluator: &Evaluator, told: Told) -> Out<TermValue> {
        let mut out = BTreeMap::new();
        for name in ["deleted", "errors", "inserted", "replaced", "skipped", "unchanged"] {
            let count = self.counts.get(name).copied().unwrap_or(0.0);
            out.insert(name.to_owned(), Val::Number(count));
        }
        if self.first_error {
            // Its text is not compared.
            out.insert("first_error".to_owned(), Val::Text(String::new()));
        }
        if told != Told::None
            && let Some(mut changes) = self.changes
        {
            let crowded = evaluator.exceeds(changes.len());
            if crowded && self.first_error {
                return Err(Fault::unspecified("which changes are told when some are errors"));
            }
            if crowded {
                let text = format!("Too many changes, array truncated to {}.", evaluator.array_limit());
                out.insert("warnings".to_owned(), Val::Array(vec![Val::Text(text)]));
            }
            changes.truncate(evaluator.array_limit());
            out.insert("changes".to_owned(), Val::Array(changes));
        }
        datum(Val::Object(out))
    }
}

fn told(args: &Args<'_>) -> Out<Told> {
    match args.option("return_changes")? {
        None | Some(Val::Bool(false)) => Ok(Told::None),
        Some(Val::Bool(true)) => Ok(Told::Changed),
        Some(Val::Text(text)) if text == "always" => Ok(Told::All),
        Some(_) => Err(Fault::logic("invalid return_changes")),
    }
}

/// Stores the new version of a row; `None` deletes it.
fn settle(
    args: &Args<'_>,
    table: &str,
    old: Option<Val>,
    new: Out<Option<Val>>,
    told: Told,
    report: &mut Report,
) {
    report.changes.get_or_insert_default();
    let key_field = args.evaluator.database.borrow().tables[table].key.clone();
    let new = new.and_then(|new| check(&key_field, old.as_ref(), new));
    let changed = match (&old, &new) {
        (_, Err(_)) => {
            report.count("errors");
            report.first_error = true;
            false
        }
        (None, Ok(None)) => {
            report.count("skipped");
            false
        }
        (Some(old), Ok(Some(new))) if old == new => {
            report.count("unchanged");
            false
        }
        (old, Ok(new)) => {
            let mut database = args.evaluator.database.borrow_mut();
            let rows =
                &mut Rc::make_mut(database.tables.get_mut(table).expect("the table was found before")).rows;
            let key = |row: &Val| match row {
                Val::Object(members) => members.get(&key_field).cloned().unwrap_or(Val::Null),
                _ => Val::Null,
            };
            match (old, new) {
                (_, Some(Val::Object(members))) => {
                    rows.insert(key(&Val::Object(members.clone())), members.clone());
                }
                (Some(old), _) => {
                    rows.remove(&key(old));
                }
                _ => {}
            }
            report.count(match (old, new) {
                (None, _) => "inserted",
                (_, None) => "deleted",
                _ => "replaced",
            });
            true
        }
    };
    if told == Told::All || (told == Told::Changed && changed) {
        let old = old.unwrap_or(Val::Null);
        let mut members = BTreeMap::new();
        if new.is_err() {
            members.insert("error".to_owned(), Val::Text(String::new()));
        }
        let new = match new {
            Ok(new) => new.unwrap_or(Val::Null),
            Err(_) => old.clone(),
        };
        members.insert("new_val".to_owned(), new);
        members.insert("old_val".to_owned(), old);
        report.changes.get_or_insert_default().push(Val::Object(members));
    }
}

/// Whether a row may have this value.
fn check(key_field: &str, old: Option<&Val>, new: Option<Val>) -> Out<Option<Val>> {
    let members = match &new {
        None => return Ok(None),
        Some(Val::Object(members)) => members,
        Some(other) => return Err(Fault::expected("OBJECT", other)),
    };
    let key = members.get(key_field).ok_or_else(|| Fault::logic("no primary key"))?;
    tables::check_key(key)?;
    if let Some(Val::Object(old)) = old
        && old.get(key_field) != Some(key)
    {
        return Err(Fault::logic("the primary key cannot be changed"));
    }
    if new.as_ref().is_some_and(Val::has_bound) {
        return Err(Fault::logic("a bound cannot be stored"));
    }
    Ok(new)
}

/// The handling of an existing key by an insert.
enum Conflict {
    Error,
    Replace,
    Update,
    /// A function of the key, the existing row and the new one.
    Ask(Func),
}

impl Conflict {
    fn of(args: &Args<'_>) -> Out<Conflict> {
        let name = match args.option_value("conflict")? {
            None => return Ok(Conflict::Error),
            Some(TermValue::Func(func)) => {
                if func.arity() != 3 {
                    return Err(Fault::logic("a conflict function of 3 arguments is wanted"));
                }
                if !args.option_term("conflict").is_none_or(super::is_deterministic) {
                    return Err(Fault::logic("a conflict function that is not deterministic"));
                }
                return Ok(Conflict::Ask(func));
            }
            Some(other) => crate::evaluator::args::text(into_datum(other)?)?,
        };
        match name.as_str() {
            "error" => Ok(Conflict::Error),
            "replace" => Ok(Conflict::Replace),
            "update" => Ok(Conflict::Update),
            _ => Err(Fault::logic("no such conflict option")),
        }
    }
}

fn insert(args: &Args<'_>) -> Out<TermValue> {
    let table = tables::whole(args, 0)?;
    let told = told(args)?;
    let conflict = Conflict::of(args)?;
    let rows = match args.value(1)? {
        TermValue::Datum(row @ Val::Object(_)) | TermValue::Row(_, row @ Val::Object(_)) => vec![row],
        other => sequence::all(sequence::of_value(args.evaluator, other)?)?,
    };
    let key_field = args.evaluator.database.borrow().tables[&table].key.clone();
    let mut report = Report::default();
    // The changes include values that are no rows; if there is nothing else, one of them.
    let hopeless = |row: &Val| match row {
        Val::Object(members) => {
            members.get(&key_field).is_some_and(|key| !key.has_bound() && tables::check_key(key).is_err())
        }
        _ => true,
    };
    let mut left = if rows.iter().all(hopeless) { 1 } else { rows.len() };
    for row in rows {
        if hopeless(&row) {
            let told = if told == Told::None || left == 0 { Told::None } else { Told::All };
            left = left.saturating_sub(1);
            settle(args, &table, None, Err(Fault::logic("what can be no row")), told, &mut report);
            continue;
        }
        let key = match &row {
            Val::Object(members) => members.get(&key_field).cloned(),
            _ => None,
        };
        let Some(key) = key else { return Err(Fault::unspecified("a generated key")) };
        let old = args.evaluator.database.borrow().tables[&table].rows.get(&key).cloned().map(Val::Object);
        let new = match (&old, &conflict) {
            (None, _) | (_, Conflict::Replace) => Ok(Some(row)),
            (Some(old), Conflict::Update) => object::merge(old, &row).map(Some),
            (Some(_), Conflict::Error) => Err(Fault::logic("duplicate primary key")),
            (Some(old), Conflict::Ask(func)) => {
                let made = args.evaluator.call_datum(func, &[key, old.clone(), row]);
                made.map(|made| Some(made).filter(|made| !matches!(made, Val::Null)))
            }
        };
        let new = specified(new)?;
        settle(args, &table, old, new, told, &mut report);
    }
    report.finish(args.evaluator, told)
}

/// `update`, `replace`, `delete`.
fn change(args: &Args<'_>) -> Out<TermValue> {
    let target = args.value(0)?;
    if args.id != 54 && !args.term(1).is_none_or(super::is_deterministic) {
        return Err(Fault::logic("a change that is not deterministic"));
    }
    let told = told(args)?;
    let func = match args.id {
        54 => Ok(Func::Constant(Val::Null)),
        id => match args.value_with(1, id == 53).and_then(|value| match value {
            TermValue::Func(func) => Ok(func),
            other => into_datum(other).map(Func::Constant),
        }) {
            // An error in the merged value is an error of each row.
            Err(fault) if id == 53 => Err(fault),
            other => Ok(other?),
        },
    };
    let (table, rows) = match target {
        TermValue::Row(table, row) => (table, vec![row]),
        TermValue::Table(Slice { ref table, .. }) => {
            (table.clone(), sequence::all(sequence::of_value(args.evaluator, target)?)?)
        }
        TermValue::Seq(seq) => match seq.table.clone() {
            Some(table) => (table, sequence::all(seq)?),
            None => return Err(Fault::logic("expected SELECTION")),
        },
        TermValue::Datum(Val::Null) => return Err(Fault::missing("null for a selection")),
        other => return Err(Fault::logic(format!("expected SELECTION but found {}", other.type_of()))),
    };
    let missing = rows.iter().any(|row| matches!(row, Val::Null));
    if missing && args.id == 55 {
        return Err(Fault::unspecified("replace of a missing row"));
    }
    let mut report = Report::default();
    let mut seen: Vec<Val> = Vec::new();
    for row in rows {
        if seen.contains(&row) {
            return Err(Fault::unspecified("a row that is selected twice"));
        }
        seen.push(row.clone());
        let old = (!matches!(row, Val::Null)).then_some(row);
        let new = match (args.id, &old) {
            // A missing row evaluates nothing.
            (53, None) => Ok(None),
            _ => func.clone().and_then(|func| made(args, &func, old.as_ref())),
        };
        let new = specified(new)?;
        settle(args, &table, old, new, told, &mut report);
    }
    report.finish(args.evaluator, told)
}

/// An error belongs to its row. If no rule determines the result of one row, none determines that of the write.
fn specified<T>(new: Out<T>) -> Out<Out<T>> {
    match new {
        Err(fault) if fault.class == Class::Unspecified => Err(fault),
        new => Ok(new),
    }
}

/// The new version of a row.
fn made(args: &Args<'_>, func: &Func, old: Option<&Val>) -> Out<Option<Val>> {
    let row = old.cloned().unwrap_or(Val::Null);
    let answer =
        |literals: bool| into_datum(args.evaluator.call_func(func, std::slice::from_ref(&row), literals)?);
    match (args.id, old) {
        (53, Some(old)) => match answer(true)? {
            Val::Null => Ok(Some(old.clone())),
            Val::Time(..) | Val::Shape(..) => Err(Fault::logic("a pseudotype cannot be merged")),
            patch => object::merge(old, &patch).map(Some),
        },
        _ => Ok(Some(answer(false)?).filter(|new| !matches!(new, Val::Null))),
    }
}

/// `for_each`: the sum of the writes of a function for each item.
fn for_each(args: &Args<'_>) -> Out<TermValue> {
    let seq = sequence::of_value(args.evaluator, args.value(0)?)?;
    let func = args.func(1)?;
    let mut sum: BTreeMap<String, f64> = BTreeMap::new();
    for item in sequence::all(seq)? {
        match args.evaluator.call_datum(&func, &[item])? {
            Val::Object(members) if members.contains_key("first_error") => {
                return Err(Fault::unspecified("errors in for_each"));
            }
            Val::Object(members) => {
                for (name, value) in members {
                    *sum.entry(name).or_default() +=
                        crate::evaluator::args::number(&value).map_err(|_| Fault::unspecified("no count"))?;
                }
            }
            _ => return Err(Fault::logic("no write")),
        }
    }
    datum(Val::Object(sum.into_iter().map(|(name, n)| (name, Val::Number(n))).collect()))
}
