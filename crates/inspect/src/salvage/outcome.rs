//! The outcome of a salvage: the written rows, and the unreadable parts.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use storage::TableId;

use super::place::Places;
use crate::catalog::Tables;
use crate::check::Records;
use crate::report::Report;

/// The file with the outcome, beside the folders of the databases.
const FILE: &str = "salvage.json";

/// The outcome of a salvage.
#[derive(Debug)]
pub struct Salvaged {
    /// The number of rows written, by `database.table` as in the files.
    pub rows: BTreeMap<String, u64>,
    /// How many of them were in damaged blocks or files: each matches its checksum, but it may be an older version.
    pub from_damaged: u64,
    /// How many of them were only in the log.
    pub from_log: u64,
    /// The unreadable parts.
    pub report: Report,
}

impl Salvaged {
    pub(super) fn new(
        places: &Places,
        records: &Records,
        written: BTreeMap<TableId, u64>,
        (from_damaged, from_log): (u64, u64),
        mut report: Report,
    ) -> Salvaged {
        let mut rows: BTreeMap<String, u64> = BTreeMap::new();
        let known = places.tables().catalog.tables.iter().map(|table| (table.id, 0));
        for (table, count) in known.chain(written) {
            let place = places.place(table);
            *rows.entry(format!("{}.{}", place.db, place.table)).or_default() += count;
        }
        for table in &places.tables().catalog.tables {
            let groups = Tables::groups_of(table);
            if !groups.is_empty()
                && !table.shards.iter().any(|shard| records.applied.contains_key(&shard.group))
            {
                report.notes.push(format!(
                    "{}: the engine has none of its shards; what was found of it was in the log",
                    places.name(table.id)
                ));
            }
        }
        if !places.left_out.is_empty() {
            report.notes.push(format!(
                "rows of {} tables that the catalog does not have were left out: the tables were dropped",
                places.left_out.len()
            ));
        }
        Salvaged { rows, from_damaged, from_log, report }
    }

    /// Whether everything could be read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.report.is_clean()
    }

    /// Writes the outcome into the target.
    pub(super) fn store(&self, target: &Path) -> std::io::Result<()> {
        std::fs::write(target.join(FILE), format!("{:#}\n", self.json()))
    }

    /// The outcome as lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.rows.iter().map(|(table, rows)| format!("{table}: {rows} rows written")).collect();
        lines.push(format!(
            "{} rows were only in the log, {} in damaged blocks or files (they match their checksums, but may be older \
             versions)",
            self.from_log, self.from_damaged
        ));
        lines.extend(self.report.damage_lines());
        lines
    }

    /// The outcome as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows: Map<String, Value> =
            self.rows.iter().map(|(table, rows)| (table.clone(), json!(rows))).collect();
        json!({
            "complete": self.is_complete(),
            "rows": rows,
            "rows_from_log": self.from_log,
            "rows_from_damaged": self.from_damaged,
            "unreadable": self.report.json(),
        })
    }
}
