//! `rethinkdb._saved_queries`: queries that users keep, for themselves or for all.

use cluster::{AdminError, SavedQuery};
use datum::{Datum, Object, Text, Time};
use reql::EvalError;

use super::fields::{field, nothing_but, object, string, uuid_of};
use crate::context::{Caller, Cx};
use crate::table::{Identifiers, Readers, RowEdit, SystemTable, admin_failed};

pub(super) struct SavedQueries;

impl SystemTable for SavedQueries {
    fn name(&self) -> &'static str {
        "_saved_queries"
    }

    fn readers(&self) -> Readers {
        Readers::All
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let catalog = cx.catalog();
        let shown = catalog.saved_queries().filter(|query| query.is_shared || cx.caller.is(&query.owner));
        Ok(shown.map(row).collect())
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let node = cx.node();
        let before = edit.old.map(|old| query_of(cx, old)).transpose()?;
        if let Some(before) = &before {
            check_owner(cx, before)?;
        }
        match (before, edit.new) {
            (None, None) => Ok(()),
            (Some(before), None) => node.accounts().delete_query(&before).map_err(admin_failed),
            (before, Some(new)) => {
                nothing_but(new, &["id", "name", "query", "owner", "is_shared", "changed"])?;
                let mut query = query_of(cx, new)?;
                let owner = match (&before, &cx.caller) {
                    (Some(before), _) => before.owner.clone(),
                    (None, caller) => caller.name(),
                };
                if query.owner != owner {
                    return Err(EvalError::op_failed("The owner of a saved query cannot be changed."));
                }
                // An edit that sets nothing else leaves the time of the change, too.
                if before.as_ref() == Some(&query) {
                    return Ok(());
                }
                query.changed = cx.now.epoch_seconds;
                node.accounts().put_query(before.as_ref(), query).map_err(admin_failed)
            }
        }
    }
}

fn row(query: &SavedQuery) -> Object {
    object([
        ("id", query.id.to_string().into()),
        ("name", Datum::String(query.name.clone())),
        ("query", Datum::String(query.query.clone())),
        ("owner", Datum::String(query.owner.clone())),
        ("is_shared", query.is_shared.into()),
        ("changed", Datum::Time(Time::new(query.changed, 0))),
    ])
}

/// The query that a row describes. New rows need no owner, no `is_shared` and no time.
fn query_of(cx: &Cx, row: &Object) -> Result<SavedQuery, EvalError> {
    let is_shared = match row.get("is_shared") {
        None => false,
        Some(Datum::Bool(is_shared)) => is_shared,
        Some(other) => {
            let why = format!("Expected `is_shared` to be a boolean; got {}.", other.pretty());
            return Err(EvalError::op_failed(why));
        }
    };
    Ok(SavedQuery {
        id: uuid_of(&field(row, "id")?).map_err(|error| error.prefixed("In `id`: "))?,
        name: string(row, "name")?,
        query: string(row, "query")?,
        owner: if row.contains_key("owner") { string(row, "owner")? } else { cx.caller.name() },
        is_shared,
        changed: match row.get("changed") {
            Some(Datum::Time(time)) => time.epoch_seconds,
            _ => 0.0,
        },
    })
}

/// Only its owner changes a query; `admin` may change those that are shared.
fn check_owner(cx: &Cx, query: &SavedQuery) -> Result<(), EvalError> {
    let Caller::User(user) = &cx.caller else { return Err(refused(query)) };
    match *user == query.owner || (*user == "admin" && query.is_shared) {
        true => Ok(()),
        false => Err(refused(query)),
    }
}

fn refused(query: &SavedQuery) -> EvalError {
    let (name, owner): (&Text, &Text) = (&query.name, &query.owner);
    admin_failed(AdminError::SavedQueryOfOther { name: name.clone(), owner: owner.clone() })
}
