//! Compares each index with its function over the rows: the same entries in the same order.

use std::cmp::Ordering;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::table::{INDEXES, Index, TABLE};
use crate::harness::client::Client;

/// Reads the whole table and every index and compares them.
pub(super) fn every_index_is_its_function(client: &mut Client) -> Result<()> {
    let rows = client.ask_all(&format!("[1,{TABLE}]"))?;
    ensure!(!rows.is_empty(), "there are no rows");
    for index in INDEXES {
        let found = entries(client, index)?;
        let expected = expected(&rows, index);
        println!("index-build: index {} has {} entries of {} rows", index.name, found.len(), rows.len());
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            ensure!(
                found == expected,
                "entry {at} of index {} is of row {found}, not {expected}",
                index.name
            );
        }
        let (found, expected) = (found.len(), expected.len());
        ensure!(found == expected, "index {} has {found} entries, not {expected}", index.name);
    }
    Ok(())
}

/// The rows that an index leads to, in its order.
fn entries(client: &mut Client, index: &Index) -> Result<Vec<Value>> {
    // order_by(index).map(row => row["id"])
    let id = "[69,[[2,[1]],[170,[[10,[1]],\"id\"]]]]";
    client.ask_all(&format!("[1,[38,[[41,[{TABLE}],{{\"index\":\"{}\"}}],{id}]]]", index.name))
}

fn expected(rows: &[Value], index: &Index) -> Vec<Value> {
    let of_row = |row: &Value| {
        let key = row["id"].clone();
        (index.values)(row).into_iter().map(move |value| (value, key.clone()))
    };
    let mut entries: Vec<(Value, Value)> = rows.iter().flat_map(of_row).collect();
    entries.sort_by(|left, right| order(&left.0, &right.0).then_with(|| order(&left.1, &right.1)));
    entries.into_iter().map(|(_, key)| key).collect()
}

/// The order of the values in this table: numbers, strings, and arrays of them.
fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            let parts = left.iter().zip(right).map(|(left, right)| order(left, right));
            parts.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
        }
        (Value::String(left), Value::String(right)) => left.cmp(right),
        _ => left.as_f64().unwrap_or(f64::NAN).total_cmp(&right.as_f64().unwrap_or(f64::NAN)),
    }
}
