//! The findings of a check: totals, and every damage by name.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The most damages of one kind that are listed. All are counted.
const LISTED_MAX: usize = 100;

/// The kind of a damaged thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DamageKind {
    /// A segment of the log, or its high-water mark.
    Log,
    /// A log entry whose checksum is right and that cannot be read.
    Entry,
    /// A file of the engine, or a block of one.
    File,
    /// Files that name the data directory or its server.
    Metadata,
    /// A record about a table or a group.
    Record,
    Dictionary,
    /// A row of the catalog.
    Catalog,
    Row,
    /// An index entry without its row, a row without its index entry, or a malformed entry.
    IndexEntry,
    /// The number of rows of a group.
    Count,
    /// The position of a group.
    Position,
    /// A record of the history that changefeeds read.
    History,
}

impl DamageKind {
    /// The name in the output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DamageKind::Log => "log",
            DamageKind::Entry => "log entry",
            DamageKind::File => "file",
            DamageKind::Metadata => "metadata",
            DamageKind::Record => "record",
            DamageKind::Dictionary => "dictionary",
            DamageKind::Catalog => "catalog",
            DamageKind::Row => "row",
            DamageKind::IndexEntry => "index entry",
            DamageKind::Count => "count",
            DamageKind::Position => "position",
            DamageKind::History => "history",
        }
    }
}

/// A damaged thing, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub kind: DamageKind,
    /// The table as `database.name`, if it belongs to one.
    pub table: Option<String>,
    /// The key or the file, and its fault.
    pub what: String,
}

/// The rows and entries that were read of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableTotals {
    pub rows: u64,
    /// Bytes of keys and stored rows.
    pub bytes: u64,
    pub index_entries: u64,
}

/// The findings of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// By `database.name`.
    pub tables: BTreeMap<String, TableTotals>,
    pub log_segments: u64,
    pub log_records: u64,
    pub log_bytes: u64,
    pub dictionaries: u64,
    pub history_records: u64,
    /// Facts that are no damage.
    pub notes: Vec<String>,
    listed: Vec<Damage>,
    counts: BTreeMap<DamageKind, usize>,
}

impl Report {
    /// Counts a damage, and lists it if it is one of the first hundred of its kind.
    pub fn add(&mut self, kind: DamageKind, table: Option<&str>, what: impl Into<String>) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= LISTED_MAX {
            self.listed.push(Damage { kind, table: table.map(str::to_owned), what: what.into() });
        }
    }

    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    #[must_use]
    pub fn has(&self, kind: DamageKind) -> bool {
        self.counts.contains_key(&kind)
    }

    /// The damages, at most a hundred of a kind.
    #[must_use]
    pub fn damages(&self) -> &[Damage] {
        &self.listed
    }

    /// The totals of the table `database.name`, zero at first.
    pub fn table(&mut self, name: &str) -> &mut TableTotals {
        if !self.tables.contains_key(name) {
            self.tables.insert(name.to_owned(), TableTotals::default());
        }
        self.tables.entry(name.to_owned()).or_default()
    }

    /// The report as lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, TableTotals { rows, bytes, index_entries }) in &self.tables {
            lines.push(format!("{name}: {rows} rows, {index_entries} index entries, {bytes} bytes"));
        }
        lines.push(format!(
            "log: {} segments, {} records, {} bytes",
            self.log_segments, self.log_records, self.log_bytes
        ));
        lines.push(format!(
            "dictionaries: {}, records of histories: {}",
            self.dictionaries, self.history_records
        ));
        lines.extend(self.damage_lines());
        lines
    }

    /// The notes and the damages as lines.
    #[must_use]
    pub fn damage_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.notes.iter().map(|note| format!("note: {note}")).collect();
        for Damage { kind, table, what } in &self.listed {
            let table = table.as_ref().map(|table| format!("{table}: ")).unwrap_or_default();
            lines.push(format!("damaged {}: {table}{what}", kind.name()));
        }
        for (kind, count) in self.counts.iter().filter(|(_, count)| **count > LISTED_MAX) {
            lines.push(format!("damaged {}: {} more", kind.name(), count - LISTED_MAX));
        }
        lines.push(match self.counts.values().sum::<usize>() {
            0 => "No damage was found.".to_owned(),
            1 => "1 damage was found.".to_owned(),
            count => format!("{count} damages were found."),
        });
        lines
    }

    /// The report as one JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let table = |(name, totals): (&String, &TableTotals)| {
            let TableTotals { rows, bytes, index_entries } = totals;
            (name.clone(), json!({"rows": rows, "bytes": bytes, "index_entries": index_entries}))
        };
        let damage =
            |damage: &Damage| json!({"kind": damage.kind.name(), "table": damage.table, "what": damage.what});
        let counts: serde_json::Map<String, Value> =
            self.counts.iter().map(|(kind, count)| (kind.name().to_owned(), json!(count))).collect();
        json!({
            "clean": self.is_clean(),
            "tables": self.tables.iter().map(table).collect::<serde_json::Map<_, _>>(),
            "log": {"segments": self.log_segments, "records": self.log_records, "bytes": self.log_bytes},
            "dictionaries": self.dictionaries,
            "history_records": self.history_records,
            "notes": self.notes,
            "damage_counts": counts,
            "damages": self.listed.iter().map(damage).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_of_a_kind_are_listed_and_all_are_counted() {
        let mut report = Report::default();
        assert_eq!(report.lines().last().map(String::as_str), Some("No damage was found."));
        for key in 0..130 {
            report.add(DamageKind::Row, Some("test.t"), format!("key {key}"));
        }
        report.add(DamageKind::File, None, "000012.sst");
        assert_eq!(report.damages().len(), 101);
        let lines = report.lines();
        assert!(lines.contains(&"damaged row: test.t: key 99".to_owned()), "{lines:?}");
        assert!(lines.contains(&"damaged row: 30 more".to_owned()), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("131 damages were found."));
        assert_eq!(report.json()["damage_counts"]["row"], 130);
        assert_eq!(report.json()["clean"], false);
    }
}
