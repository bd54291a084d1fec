//! The tables of the shapes: one that is read, one that is written.

use anyhow::bail;
use client::admin::Admin;
use client::terms;
use serde_json::{Value, json};

const DB: &str = "bench_reql";
/// Rows in one insert while the table is filled.
const ROWS_PER_INSERT: u64 = 500;
/// Distinct values of the field `g`.
const GROUPS: u64 = 16;
/// Repetitions of the sentences in a text field.
const REPEATS: u64 = 5;
/// Pieces of a text field between full stops: two sentences, repeated, and the rest after the last full stop.
pub const PIECES: u64 = 2 * REPEATS + 1;

/// The table that is read.
pub fn rows() -> Value {
    terms::table(DB, "rows")
}

/// The table that is written.
pub fn written() -> Value {
    terms::table(DB, "written")
}

/// The key of a row of the table that is read.
pub fn key(n: u64) -> String {
    format!("row{n:08}")
}

/// Creates the written table anew, and the read table unless it already has `count` rows.
pub fn prepare(admin: &mut Admin, count: u64, quiet: bool) -> anyhow::Result<()> {
    let known = admin.ask(&terms::db_list())?;
    let has = |list: &Value, name: &str| list.as_array().is_some_and(|names| names.iter().any(|n| n == name));
    if !has(&known, DB) {
        admin.ask(&terms::db_create(DB))?;
    }
    let tables = admin.ask(&terms::table_list(DB))?;
    if has(&tables, "written") {
        admin.ask(&terms::table_drop(DB, "written"))?;
    }
    admin.ask(&terms::table_create(DB, "written", json!({})))?;
    for index in ["a", "b", "c"] {
        admin.ask(&json!([75, [written(), index]]))?;
    }
    admin.ask(&json!([140, [written()]]))?;
    if has(&tables, "rows") {
        if admin.ask(&terms::count(rows()))?.as_u64() == Some(count) {
            return Ok(());
        }
        admin.ask(&terms::table_drop(DB, "rows"))?;
    }
    admin.ask(&terms::table_create(DB, "rows", json!({})))?;
    if !quiet {
        eprintln!("inserting {count} rows");
    }
    for from in (0..count).step_by(ROWS_PER_INSERT as usize) {
        let some: Vec<Value> = (from..count.min(from + ROWS_PER_INSERT)).map(document).collect();
        let answer = admin.ask(&terms::insert(rows(), json!([2, some]), json!({"durability": "soft"})))?;
        if answer["errors"] != 0 {
            bail!("rows were refused: {answer}");
        }
    }
    Ok(())
}

/// A document of about 1 KB.
fn document(n: u64) -> Value {
    let mut row = json!({"id": key(n), "n": n, "g": format!("group{}", n % GROUPS)});
    let sentences = |i: u64| format!("{:x}. {:x} and more. ", n.wrapping_mul(31 + i), n ^ i);
    let text = |i: u64| sentences(i).repeat(REPEATS as usize);
    row["text"] = json!(text(0));
    for i in 1..9 {
        row[format!("field{i}")] = json!(text(i));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_as_many_pieces_as_it_is_said_to_have() {
        for n in [0, 1, 499_999] {
            let row = document(n);
            let text = row["text"].as_str().expect("a text");
            assert_eq!(text.split('.').count() as u64, PIECES);
        }
    }
}
