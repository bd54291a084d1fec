//! `rethinkdb.users`: the accounts. A password can be set, never read.

use cluster::PasswordChange;
use datum::{Datum, Object, Text};
use reql::EvalError;

use super::fields::{object, only, string};
use crate::context::Cx;
use crate::failure::admin_failed;
use crate::names::user_name;
use crate::table::{Identifiers, RowEdit, SystemTable};

pub(super) struct Users;

impl SystemTable for Users {
    fn name(&self) -> &'static str {
        "users"
    }

    fn rows(&self, cx: &Cx, _identifiers: Identifiers) -> Result<Vec<Object>, EvalError> {
        let row = |user: &cluster::User| {
            object([("id", Datum::String(user.name.clone())), ("password", user.has_password.into())])
        };
        Ok(cx.catalog().users().into_iter().map(row).collect())
    }

    fn respelt(&self, key: &Datum) -> Option<Datum> {
        match key {
            Datum::String(name) => user_name(name).ok().map(Datum::String),
            _ => None,
        }
    }

    fn write(&self, cx: &Cx, edit: RowEdit<'_>) -> Result<(), EvalError> {
        let node = cx.node();
        match (edit.old, edit.new) {
            (None, None) => Ok(()),
            (Some(old), None) => node.drop_user(&string(old, "id")?).map_err(admin_failed),
            (old, Some(new)) => {
                let name = user_name(&string(new, "id")?)?;
                only(new, &["id", "password"])?;
                let change = password(cx, old, new)?;
                node.put_user(&name, change).map_err(admin_failed)
            }
        }
    }
}

/// What the row asks for: text sets a password, false removes it, true keeps it.
fn password(cx: &Cx, old: Option<&Object>, new: &Object) -> Result<PasswordChange, EvalError> {
    let make = |text: &str, rounds: Option<u32>| {
        let (record, is_set) = (cx.service.passwords)(text, rounds);
        Ok(PasswordChange::Set(record, is_set))
    };
    match new.get("password") {
        None => Err(EvalError::op_failed("Expected a field named `password`.")),
        Some(Datum::Bool(false)) => make("", None),
        Some(Datum::Bool(true)) if old.is_some() => Ok(PasswordChange::Keep),
        Some(Datum::Bool(true)) => Err(EvalError::op_failed("Can't set password to `true` for a new user.")),
        Some(Datum::String(text)) => make(&text, None),
        Some(Datum::Object(object)) => {
            only(&object, &["password", "iterations"])?;
            let text: Text = string(&object, "password")?;
            make(&text, rounds(&object)?)
        }
        Some(other) => {
            let shown = other.pretty();
            let why = format!("Expected an object, string or boolean for `password`, got {shown}.");
            Err(EvalError::op_failed(why))
        }
    }
}

fn rounds(object: &Object) -> Result<Option<u32>, EvalError> {
    match object.get("iterations") {
        None => Ok(None),
        Some(Datum::Number(n)) if n >= 1.0 && n.fract() == 0.0 && n <= f64::from(u32::MAX) => {
            Ok(Some(n as u32))
        }
        Some(_) => Err(EvalError::op_failed("Expected a positive integer for `iterations`.")),
    }
}
