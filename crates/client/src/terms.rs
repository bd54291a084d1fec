//! ReQL as JSON: the terms of unmeasured queries.
//!
//! Workloads write their measured queries as bytes. The terms here are built as values, because each is only sent once.

use serde_json::{Value, json};

/// `r.db(name)`
pub fn db(name: &str) -> Value {
    json!([14, [name]])
}

/// `r.db(db).table(table)`
pub fn table(db_name: &str, table: &str) -> Value {
    json!([15, [db(db_name), table]])
}

/// `r.db(db).table(table, {readMode: 'outdated'})`
pub fn table_outdated(db_name: &str, table: &str) -> Value {
    json!([15, [db(db_name), table], {"read_mode": "outdated"}])
}

/// `r.dbList()`
pub fn db_list() -> Value {
    json!([59, []])
}

/// `r.dbCreate(name)`
pub fn db_create(name: &str) -> Value {
    json!([57, [name]])
}

/// `r.db(db).tableList()`
pub fn table_list(db_name: &str) -> Value {
    json!([62, [db(db_name)]])
}

/// `r.db(db).tableCreate(table, options)`
pub fn table_create(db_name: &str, table: &str, options: Value) -> Value {
    json!([60, [db(db_name), table], options])
}

/// `r.db(db).tableDrop(table)`
pub fn table_drop(db_name: &str, table: &str) -> Value {
    json!([61, [db(db_name), table]])
}

pub fn wait(target: Value) -> Value {
    json!([177, [target]])
}

/// `target.wait({wait_for: "all_replicas_ready"})`
pub fn wait_all(target: Value) -> Value {
    json!([177, [target], {"wait_for": "all_replicas_ready"}])
}

pub fn rebalance(table: Value) -> Value {
    json!([179, [table]])
}

pub fn info(target: Value) -> Value {
    json!([79, [target]])
}

pub fn config(target: Value) -> Value {
    json!([174, [target]])
}

/// `table.status()`
pub fn status(target: Value) -> Value {
    json!([175, [target]])
}

/// `reconfigure` with a number of replicas, which may be on any servers.
pub fn reconfigure(table: Value, shards: u32, replicas: u32) -> Value {
    json!([176, [table], {"shards": shards, "replicas": replicas}])
}

pub fn get(table: Value, key: &str) -> Value {
    json!([16, [table, key]])
}

/// `table.insert(document, options)`; the document must not contain arrays.
pub fn insert(table: Value, document: Value, options: Value) -> Value {
    json!([56, [table, document], options])
}

/// `selection.update(document)`; the document must not contain arrays.
pub fn update(selection: Value, document: Value) -> Value {
    json!([53, [selection, document]])
}

pub fn count(sequence: Value) -> Value {
    json!([43, [sequence]])
}

/// `sequence.map(row => row(field))`
pub fn map_field(sequence: Value, field: &str) -> Value {
    json!([38, [sequence, [69, [[2, [1]], [170, [[10, [1]], field]]]]]])
}

/// `sequence.map(row => row(field).split(separator).count()).sum()`
pub fn sum_of_split_counts(sequence: Value, field: &str, separator: &str) -> Value {
    let body = json!([43, [[149, [[170, [[10, [1]], field]], separator]]]]);
    json!([145, [[38, [sequence, [69, [[2, [1]], body]]]]]])
}
