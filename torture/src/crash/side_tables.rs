//! Tables that come and go beside the writers, so that kills meet builds of indexes, dictionaries and drops of tables. A
//! table whose creation or rows were acknowledged must be there after a kill; a dropped one must not.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::harness::client::Client;

const BATCHES: u64 = 8;
const ROWS_PER_BATCH: u64 = 100;
const INDEX: &str = "number";
/// Compressible: a dictionary is trained after 256 KB of it.
const TEXT: &str =
    "the storage engine keeps rows in the order of their keys, and a row is found without its neighbours; ";
const TEXT_REPEATS: u64 = 10;

/// A table and the last state that the node has acknowledged.
struct SideTable {
    name: String,
    rows: u64,
    is_created: bool,
    has_index: bool,
    /// Whether the drop was sent.
    is_dropping: bool,
    is_dropped: bool,
}

/// The tables of a run.
#[derive(Default)]
pub(super) struct SideTables {
    tables: Vec<SideTable>,
    made: u64,
}

impl SideTables {
    /// Makes, fills and drops tables until the connection breaks.
    pub(super) fn work(&mut self, mut client: Client) {
        while self.make_and_drop(&mut client).is_ok() {}
    }

    fn make_and_drop(&mut self, client: &mut Client) -> Result<()> {
        self.made += 1;
        let name = format!("side{}", self.made);
        self.tables.push(SideTable {
            name: name.clone(),
            rows: 0,
            is_created: false,
            has_index: false,
            is_dropping: false,
            is_dropped: false,
        });
        let Some(table) = self.tables.last_mut() else { return Ok(()) };
        ask(client, &json!([60, [[14, ["test"]], name]]))?;
        table.is_created = true;
        for batch in 0..BATCHES {
            let rows: Vec<Value> = (0..ROWS_PER_BATCH).map(|nth| row(batch * ROWS_PER_BATCH + nth)).collect();
            ask(client, &json!([56, [term(&name), [2, rows]]]))?;
            table.rows += ROWS_PER_BATCH;
            if batch == BATCHES / 2 {
                ask(client, &json!([75, [term(&name), INDEX]]))?;
                table.has_index = true;
            }
        }
        // A scan has the rows written to the engine.
        ask(client, &json!([43, [[39, [term(&name), {"text": "none"}]]]]))?;
        ask(client, &json!([140, [term(&name)]]))?;
        table.is_dropping = true;
        ask(client, &json!([61, [[14, ["test"]], name]]))?;
        table.is_dropped = true;
        Ok(())
    }

    /// Compares the tables of the node with the acknowledged ones, and drops them. Fails with the first difference.
    pub(super) fn check(&mut self, client: &mut Client) -> Result<()> {
        let listed = ask(client, &json!([62, [[14, ["test"]]]]))?;
        let listed: Vec<Value> = listed["r"][0].as_array().cloned().unwrap_or_default();
        for table in &mut self.tables {
            let is_there = listed.iter().any(|name| *name == table.name);
            ensure!(!(is_there && table.is_dropped), "table {} is back after its drop", table.name);
            ensure!(is_there || table.is_dropping || !table.is_created, "table {} is lost", table.name);
            if is_there {
                check_rows(client, table).with_context(|| format!("table {}", table.name))?;
                ask(client, &json!([61, [[14, ["test"]], table.name]]))?;
            }
            // A table whose creation was not acknowledged and that is not there does not appear later.
            (table.is_dropping, table.is_dropped) = (true, true);
        }
        Ok(())
    }
}

fn check_rows(client: &mut Client, table: &SideTable) -> Result<()> {
    let stored = client.ask_all(&json!([1, [15, [[14, ["test"]], table.name]]]).to_string())?;
    ensure!(stored.len() as u64 >= table.rows, "{} rows of {} acknowledged", stored.len(), table.rows);
    for found in &stored {
        let Some(number) = found["id"].as_u64() else { bail!("a row without a number: {found}") };
        ensure!(*found == row(number), "row {number} is not the one that was written: {found}");
    }
    let indexes = ask(client, &json!([77, [term(&table.name)]]))?;
    let has_index = indexes["r"][0].as_array().is_some_and(|names| names.iter().any(|name| name == INDEX));
    ensure!(has_index || !table.has_index, "its index is lost");
    if has_index {
        ask(client, &json!([140, [term(&table.name)]]))?;
        let counted = ask(client, &json!([43, [[41, [term(&table.name)], {"index": INDEX}]]]))?;
        let counted = counted["r"][0].as_u64();
        ensure!(counted == Some(stored.len() as u64), "{counted:?} entries for {} rows", stored.len());
    }
    Ok(())
}

fn row(number: u64) -> Value {
    let text: String = (0..TEXT_REPEATS).map(|nth| format!("{} {TEXT}", number * nth)).collect();
    json!({"id": number, "number": number % 7, "text": text})
}

fn term(table: &str) -> Value {
    json!([15, [[14, ["test"]], table]])
}

/// Asks a query; an error of the query is an error.
fn ask(client: &mut Client, term: &Value) -> Result<Value> {
    let answer = client.ask(&json!([1, term]).to_string())?;
    match answer["t"].as_u64() {
        Some(1 | 2) if answer["r"][0]["errors"].as_u64().unwrap_or(0) == 0 => Ok(answer),
        _ => bail!("{answer}"),
    }
}
