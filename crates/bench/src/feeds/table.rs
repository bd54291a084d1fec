//! The measured table.

use anyhow::{Context, bail};
use client::admin::Admin;
use client::terms;
use serde_json::{Value, json};

use super::model::Row;
use super::writes::document;
use crate::ycsb::table::{create_database, wait_for_primaries};

const DB: &str = "bench_feeds";
const TABLE: &str = "documents";
/// Rows in one insert while the table is filled.
const ROWS_PER_INSERT: usize = 500;

/// The term of the table.
pub fn term() -> Value {
    terms::table(DB, TABLE)
}

/// The layout of the table.
#[derive(Clone, Copy, Debug)]
pub struct TableShape {
    pub shards: u32,
    /// Replicas of each shard.
    pub replicas: u32,
    /// Length of a text in each row.
    pub text_bytes: usize,
}

/// Creates the table anew, with an index on `rank`, and inserts `rows`.
pub fn prepare(admin: &mut Admin, shape: TableShape, rows: &[Row]) -> anyhow::Result<()> {
    create_database(admin, DB)?;
    let tables = admin.ask(&terms::table_list(DB))?;
    if tables.as_array().is_some_and(|names| names.iter().any(|name| name == TABLE)) {
        admin.ask(&terms::table_drop(DB, TABLE))?;
    }
    let options = json!({"shards": shape.shards, "replicas": shape.replicas});
    admin.ask(&terms::table_create(DB, TABLE, options)).context("creating the table")?;
    admin.ask(&terms::wait(term())).context("waiting for the table")?;
    wait_for_primaries(admin, DB, TABLE);
    admin.ask(&json!([75, [term(), "rank"]])).context("creating the index")?;
    admin.ask(&json!([140, [term()]])).context("waiting for the index")?;
    for some in rows.chunks(ROWS_PER_INSERT) {
        let some: Vec<Value> = some.iter().map(|row| document(row, shape.text_bytes)).collect();
        let answer = admin.ask(&terms::insert(term(), json!([2, some]), json!({"durability": "soft"})))?;
        if answer["errors"] != 0 {
            bail!("rows were refused: {answer}");
        }
    }
    admin.ask(&json!([138, [term()]])).context("writing the rows to disk")?;
    Ok(())
}
