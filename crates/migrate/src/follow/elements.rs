//! The elements of a feed. Pure.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::gate::Change;
use crate::key::BadKey;
use crate::row::key_of;

/// The contents of a batch of a feed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Elements {
    /// In order.
    pub changes: Vec<Change>,
    /// The source has dropped changes, with its text.
    pub skipped: Option<String>,
    /// The feed has said that it is open.
    pub is_ready: bool,
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Element<'a> {
    #[serde(borrow, default)]
    new_val: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_val: Option<&'a RawValue>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

/// Why an element cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadElement {
    #[error("an element of a feed cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error("a change has no key: {0}")]
    Key(#[from] BadKey),
}

/// Reads a batch. RethinkDB reports skipped changes in an element with `error` and nothing else, and the feed goes on. Fails if an
/// element is none that a feed of a table has.
pub fn elements(rows: &[&RawValue], primary_key: &str) -> Result<Elements, BadElement> {
    let mut found = Elements::default();
    for row in rows {
        found.bytes += row.get().len() as u64;
        let element: Element<'_> = serde_json::from_str(row.get())?;
        if let Some(error) = element.error {
            found.skipped = Some(error);
        }
        found.is_ready |= element.state.as_deref() == Some("ready");
        let Some(value) = element.new_val.or(element.old_val) else { continue };
        let key = key_of(value.get(), primary_key)?;
        let change = Change { key, row: element.new_val.map(|value| value.get().to_owned()) };
        found.changes.push(change);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(texts: &[&str]) -> Result<Elements, BadElement> {
        let rows: Vec<Box<RawValue>> =
            texts.iter().map(|text| RawValue::from_string((*text).to_owned()).unwrap()).collect();
        elements(&rows.iter().map(AsRef::as_ref).collect::<Vec<_>>(), "id")
    }

    #[test]
    fn changes_and_losses_are_read() {
        let found = parsed(&[
            r#"{"state":"ready"}"#,
            r#"{"new_val":{"id":1,"a":2},"old_val":null}"#,
            r#"{"error":"Changefeed cache over array size limit, skipped 20002 elements."}"#,
            r#"{"new_val":null,"old_val":{"id":2}}"#,
        ])
        .unwrap();
        assert!(found.is_ready && found.skipped.unwrap().contains("20002"));
        assert_eq!(found.changes[0].row.as_deref(), Some(r#"{"id":1,"a":2}"#));
        assert_eq!((found.changes[1].key.to_json(), found.changes[1].row.clone()), ("2".to_owned(), None));
    }

    #[test]
    fn an_element_without_a_key_is_an_error() {
        assert!(matches!(parsed(&[r#"{"new_val":{"a":2}}"#]), Err(BadElement::Key(_))));
        assert!(matches!(parsed(&["5"]), Err(BadElement::Json(_))));
        assert_eq!(parsed(&[r#"{"state":"initializing"}"#]).unwrap().changes, []);
    }
}
