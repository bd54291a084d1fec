//! Reads digests and rows for comparisons.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::MigrateError;
use crate::key::{Bound, Key, KeyRange};
use crate::queries::{self, ReadMode};
use crate::rate::ChunkSize;
use crate::row::key_of;
use crate::server::{Connection, GoOn, failure};
use crate::table::TableFacts;

/// The digest of a range of rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Digest {
    pub text: String,
    pub rows: u64,
    /// The last key; `None` if there are no rows.
    pub last: Option<Key>,
}

/// The digest of the first `rows_max` rows of `range`, or of all. Fails with the server's error.
pub fn digest(
    connection: &mut Connection,
    table: &TableFacts,
    range: &KeyRange,
    rows_max: Option<usize>,
) -> Result<Digest, MigrateError> {
    let mut rows = queries::rows(&table.name, &table.primary_key, range, table.read_mode);
    if let Some(rows_max) = rows_max {
        rows = queries::limit(&rows, rows_max);
    }
    let what = format!("digest of {}", table.name);
    let answer = connection.ask_text(&what, &queries::digest(&rows, &table.primary_key))?;
    parsed(&answer)
        .ok_or_else(|| failure(connection.side(), &what, format!("{answer} is not the answer expected")))
}

fn parsed(answer: &Value) -> Option<Digest> {
    let last = match &answer[2] {
        Value::Null => None,
        key => Some(Key::parse(&key.to_string()).ok()?),
    };
    Some(Digest { text: answer[0].as_str()?.to_owned(), rows: answer[1].as_f64()? as u64, last })
}

/// Rows of a range in the order of their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    pub rows: Vec<(Key, String)>,
    /// How far they reach: the end of the range, or the last key.
    pub end: Bound,
    pub bytes: u64,
}

/// Reads a range until about the size `most`. Fails with the server's error.
pub fn read_rows(
    connection: &mut Connection,
    table: &TableFacts,
    range: &KeyRange,
    most: ChunkSize,
) -> Result<Rows, MigrateError> {
    let term = queries::rows(&table.name, &table.primary_key, range, table.read_mode);
    let what = format!("rows of {}", table.name);
    let (mut texts, mut bytes, mut is_cut) = (Vec::new(), 0, false);
    connection.stream(&what, &queries::limit(&term, most.rows), |part| {
        texts.extend(part.iter().map(|row| row.get().to_owned()));
        bytes += part.iter().map(|row| row.get().len() as u64).sum::<u64>();
        is_cut = bytes >= most.bytes;
        if is_cut { GoOn::No } else { GoOn::Yes }
    })?;
    let is_whole = !is_cut && texts.len() < most.rows;
    let rows = with_keys(connection, table, &what, texts)?;
    let end = match rows.last() {
        Some((key, _)) if !is_whole => Bound::After(key.clone()),
        _ => range.end.clone(),
    };
    Ok(Rows { rows, end, bytes })
}

/// All keys of a range, in order. Fails with the server's error.
pub fn read_keys(
    connection: &mut Connection,
    table: &TableFacts,
    range: &KeyRange,
) -> Result<Vec<Key>, MigrateError> {
    let what = format!("keys of {}", table.name);
    let rows = queries::rows(&table.name, &table.primary_key, range, ReadMode::Single);
    let mut texts = Vec::new();
    connection.stream(&what, &queries::keys(&rows, &table.primary_key), |part: &[&RawValue]| {
        texts.extend(part.iter().map(|key| key.get().to_owned()));
        GoOn::Yes
    })?;
    let parse =
        |text: &String| Key::parse(text).map_err(|e| failure(connection.side(), &what, e.to_string()));
    texts.iter().map(parse).collect()
}

/// The present rows with these keys, ordered. Fails with the server's error.
pub fn rows_with_keys(
    connection: &mut Connection,
    table: &TableFacts,
    keys: &[Key],
) -> Result<Vec<(Key, String)>, MigrateError> {
    let what = format!("rows of {}", table.name);
    let mut texts = Vec::new();
    let term = queries::get_all(&table.name, keys, table.read_mode);
    connection.stream(&what, &term, |part: &[&RawValue]| {
        texts.extend(part.iter().map(|row| row.get().to_owned()));
        GoOn::Yes
    })?;
    let mut rows = with_keys(connection, table, &what, texts)?;
    rows.sort();
    Ok(rows)
}

fn with_keys(
    connection: &Connection,
    table: &TableFacts,
    what: &str,
    texts: Vec<String>,
) -> Result<Vec<(Key, String)>, MigrateError> {
    let with_key = |text: String| match key_of(&text, &table.primary_key) {
        Ok(key) => Ok((key, text)),
        Err(error) => Err(failure(connection.side(), what, error.to_string())),
    };
    texts.into_iter().map(with_key).collect()
}
