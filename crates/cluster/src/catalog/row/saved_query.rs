//! The row of a saved query.

use datum::Datum;

use super::fields::Fields;
use crate::config::SavedQuery;
use crate::error::OpenError;

/// The fields of its row.
pub(super) fn fields(query: &SavedQuery) -> Vec<(&'static str, Datum)> {
    vec![
        ("uuid", query.id.to_string().into()),
        ("name", query.name.clone().into()),
        ("query", query.query.clone().into()),
        ("owner", query.owner.clone().into()),
        ("is_shared", query.is_shared.into()),
        ("changed", Datum::Number(query.changed)),
    ]
}

/// Inverse of [`fields`].
pub(super) fn read(row: &Fields<'_>) -> Result<SavedQuery, OpenError> {
    let Some(Datum::Number(changed)) = row.0.get("changed") else {
        return Err(row.wrong("field \"changed\" is not a number".to_owned()));
    };
    Ok(SavedQuery {
        id: row.uuid("uuid")?,
        name: row.text("name")?,
        query: row.text("query")?,
        owner: row.text("owner")?,
        is_shared: row.flag("is_shared")?,
        changed,
    })
}
