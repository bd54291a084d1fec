//! From the plan and the state of an earlier run to the tables that readers work on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;

use super::options::{Mode, Options};
use crate::catalog::{Catalog, Plan, TablePlan};
use crate::coverage::{Coverage, Work};
use crate::error::{InputError, MigrateError};
use crate::gate::{FeedState, Gate};
use crate::key::{Key, KeyRange};
use crate::queries::{self, HookUse, ReadMode, TableName};
use crate::server::{Connection, Line, Stop};
use crate::split::pieces;
use crate::state::{State, TableState};
use crate::table::{Table, TableFacts};

/// Tables with fewer rows are one piece.
const ROWS_TO_DIVIDE: u64 = 20_000;

/// The tables that the state knows, with their ids at the target.
pub(super) fn known(state: &State) -> BTreeMap<TableName, String> {
    let name = |text: &String| text.split_once('.').map(|(db, table)| TableName::new(db, table));
    let tables = state.tables.iter();
    tables.filter_map(|(text, table)| Some((name(text)?, table.target_id.clone()))).collect()
}

/// Adds the plan's tables to the state, before they are made. Fails if the source has a new table in the place of a known one.
pub(super) fn enter(plan: &Plan, state: &mut State) -> Result<(), InputError> {
    for table in &plan.tables {
        let name = table.facts.name.to_string();
        let known = state.tables.entry(name.clone()).or_insert_with(|| TableState {
            source_id: table.facts.id.clone(),
            keeps_extra: table.keeps_extra,
            ..TableState::default()
        });
        if known.source_id != table.facts.id {
            return Err(InputError::new(format!(
                "{name}: the source's table is not the one that was copied before; begin anew with another --state"
            )));
        }
    }
    Ok(())
}

/// The tables, with the progress of earlier runs. Fails when the source is lost.
pub(super) fn tables(
    options: &Options,
    plan: &Plan,
    target: &Catalog,
    state: &State,
    (source, stop): (&mut Line, &Stop),
) -> Result<Vec<Arc<Table>>, MigrateError> {
    let mut tables = Vec::new();
    for planned in &plan.tables {
        let Some(known) = state.tables.get(&planned.facts.name.to_string()) else { continue };
        let hook = match target.table(&planned.facts.name).is_some_and(|table| table.hook.is_some()) {
            true => HookUse::Ignore,
            false => HookUse::None,
        };
        let edges = source.run(stop, |from| edges(from, &planned.facts.name, &planned.facts.primary_key))?;
        let facts = TableFacts {
            source_id: known.source_id.clone(),
            target_id: known.target_id.clone(),
            keeps_extra: known.keeps_extra,
            was_begun: !known.keeps_extra && target.table(&planned.facts.name).is_some(),
            hook,
            read_mode: match options.mode {
                Mode::Follow => ReadMode::Majority,
                _ => ReadMode::Single,
            },
            edges,
            ..facts(planned)
        };
        tables.push(Arc::new(table(options, facts, known)));
    }
    Ok(tables)
}

fn facts(planned: &TablePlan) -> TableFacts {
    TableFacts {
        name: planned.facts.name.clone(),
        primary_key: planned.facts.primary_key.clone(),
        source_id: planned.facts.id.clone(),
        target_id: String::new(),
        keeps_extra: planned.keeps_extra,
        was_begun: false,
        hook: HookUse::None,
        read_mode: ReadMode::Single,
        rows_expected: planned.facts.rows,
        edges: None,
    }
}

fn table(options: &Options, facts: TableFacts, known: &TableState) -> Table {
    let count = if facts.rows_expected < ROWS_TO_DIVIDE { 1 } else { options.readers };
    let new = || Coverage::new(Work::Copy, &pieces(facts.edges.as_ref(), count));
    let mut coverage = Coverage::restored(&known.segments).unwrap_or_else(new);
    let feed = match options.mode {
        Mode::Follow => {
            // Changes that came while nothing followed are found by comparing.
            coverage.lose();
            FeedState::Closed
        }
        _ => FeedState::Unused,
    };
    let gate = Gate::new(coverage, feed, facts.keeps_extra);
    let table = Table::new(facts, gate);
    table.done.rows.store(known.rows, Ordering::Relaxed);
    table.done.bytes.store(known.bytes, Ordering::Relaxed);
    table.done.refused.store(known.refused, Ordering::Relaxed);
    table
}

/// Puts the progress of all tables into the state.
pub(super) fn store(tables: &[Arc<Table>], state: &mut State) {
    for table in tables {
        if let Some(known) = state.tables.get_mut(&table.facts.name.to_string()) {
            known.segments = table.gate().coverage().stored();
            known.rows = table.done.rows.load(Ordering::Relaxed);
            known.bytes = table.done.bytes.load(Ordering::Relaxed);
            known.refused = table.done.refused.load(Ordering::Relaxed);
        }
    }
}

/// The smallest and the greatest key of a table. Fails with the server's error.
fn edges(
    connection: &mut Connection,
    name: &TableName,
    primary_key: &str,
) -> Result<Option<(Key, Key)>, MigrateError> {
    let first = queries::rows(name, primary_key, &KeyRange::all(), ReadMode::Single);
    let last = queries::rows_backwards(name, primary_key);
    let mut key_of_first = |term: &str| -> Result<Option<Key>, MigrateError> {
        let keys = queries::keys(&queries::limit(term, 1), primary_key);
        let answer = connection.ask_text(&format!("keys of {name}"), &keys)?;
        let text = answer.get(0).map(Value::to_string);
        Ok(text.and_then(|text| Key::parse(&text).ok()))
    };
    Ok(key_of_first(&first)?.zip(key_of_first(&last)?))
}

/// The tables of a source, to be compared. Fails when it is lost.
pub fn facts_of_tables(
    catalog: &Catalog,
    state: Option<&State>,
    source: &mut Line,
    stop: &Stop,
) -> Result<Vec<TableFacts>, MigrateError> {
    let mut tables = Vec::new();
    for table in &catalog.tables {
        let known = state.and_then(|state| state.tables.get(&table.name.to_string()));
        let edges = source.run(stop, |from| edges(from, &table.name, &table.primary_key))?;
        tables.push(TableFacts {
            name: table.name.clone(),
            primary_key: table.primary_key.clone(),
            source_id: table.id.clone(),
            target_id: String::new(),
            keeps_extra: known.is_some_and(|known| known.keeps_extra),
            was_begun: false,
            hook: HookUse::None,
            read_mode: ReadMode::Single,
            rows_expected: table.rows,
            edges,
        });
    }
    Ok(tables)
}
