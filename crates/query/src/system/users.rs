//! `rethinkdb.users`: user accounts. Passwords can be set, but not read.

use cluster::{AdminError, PasswordChange};
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::{field, nothing_but, object, string};
use crate::context::Cx;
use crate::table::{Identifiers, RowEdit, SystemTable, admin_failed};
use crate::value::user_name;

/// Most rounds of a password hash: it cannot be cancelled, and this many take about a second.
const ITERATIONS_MAX: u32 = 1_000_000;

pub(super) struct Users;

impl SystemTable for Users {
    fn name(&self) -> &'static str {
        "users"
    }

    fn is_of_catalog(&self) -> bool {
        true
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let row = |user: &cluster::User| {
            object([("id", Datum::String(user.name.clone())), ("password", user.has_password.into())])
        };
        Ok(cx.catalog().users().into_iter().map(row).collect())
    }

    fn normalized_key(&self, key: &Datum) -> Option<Datum> {
        match key {
            Datum::String(name) => user_name(name).ok().map(Datum::String),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let node = cx.node();
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (Some(old), None) => node.accounts().drop_user(&string(old, "id")?).map_err(admin_failed),
            (old, Some(new)) => {
                let key = field(new, "id")?;
                if edit.generated_key {
                    return Err(not_a_name(&key));
                }
                let name = name_in(&key)?;
                let change = password(cx, old, new)?;
                node.accounts().put_user(&name, change).map_err(admin_failed)
            }
        }
    }

    fn write_none(&self, _cx: &Cx, key: &Datum, _identifiers: Identifiers) -> Result<(), EvalError> {
        Err(admin_failed(AdminError::UserMissing(name_in(key)?)))
    }
}

/// The user name in a key.
fn name_in(key: &Datum) -> Result<Text, EvalError> {
    match key {
        Datum::String(name) => user_name(name),
        other => Err(not_a_name(other)),
    }
}

fn not_a_name(key: &Datum) -> EvalError {
    let shown = key.pretty();
    EvalError::op_failed(format!("Expected a username as the primary key, got {shown}."))
}

/// The change of the password: text sets it, false removes it, true keeps it.
fn password(cx: &Cx, old: Option<&Object>, new: &Object) -> Result<PasswordChange, EvalError> {
    let make = |text: &str, rounds: Option<u32>| {
        let (record, is_set) = (cx.service.passwords)(text, rounds);
        Ok(PasswordChange::Set(record, is_set))
    };
    let given = field(new, "password")?;
    nothing_but(new, &["id", "password"])?;
    let has_one = old.is_some_and(|old| old.get("password") == Some(Datum::Bool(true)));
    match given {
        Datum::Bool(false) => make("", None),
        Datum::Bool(true) if has_one => Ok(PasswordChange::Keep),
        Datum::Bool(true) => Err(EvalError::op_failed(
            "Expected an object or string to set the password, or `false` to keep it unset, got true.",
        )),
        Datum::String(text) => make(&text, None),
        Datum::Object(object) => {
            let rounds = rounds(&field(&object, "iterations")?)?;
            let text = plain(&field(&object, "password")?)?;
            nothing_but(&object, &["password", "iterations"])?;
            make(&text, Some(rounds))
        }
        other => {
            let shown = other.pretty();
            let why = format!("Expected an object, string or boolean for `password`, got {shown}.");
            Err(EvalError::op_failed(why))
        }
    }
}

fn rounds(given: &Datum) -> Result<u32, EvalError> {
    match given {
        Datum::Number(n) if *n > f64::from(ITERATIONS_MAX) => {
            let why =
                format!("Expected `iterations` to be at most {ITERATIONS_MAX}, got {}.", given.pretty());
            Err(EvalError::op_failed(why))
        }
        Datum::Number(n) if *n >= 1.0 && n.fract() == 0.0 => Ok(*n as u32),
        other => {
            let shown = other.pretty();
            let why = format!("Expected `iterations` to be an integer greater than zero, got {shown}.");
            Err(EvalError::op_failed(why))
        }
    }
}

fn plain(given: &Datum) -> Result<Text, EvalError> {
    match given {
        Datum::String(text) => Ok(text.clone()),
        other => {
            let shown = other.pretty();
            Err(EvalError::op_failed(format!("Expected `password` to be a string, got {shown}.")))
        }
    }
}
