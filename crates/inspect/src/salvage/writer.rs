//! The files of the salvaged tables: one row a line, in the layout of `rethinkdb export`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Result, Write};
use std::path::{Path, PathBuf};

use storage::TableId;

/// A table's place in the layout.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TablePlace {
    pub db: String,
    pub table: String,
}

impl TablePlace {
    fn path(&self, target: &Path, end: &str) -> PathBuf {
        target.join(&self.db).join(format!("{}.{end}", self.table))
    }
}

/// Writes rows. One file is open at a time.
pub(super) struct TableWriter {
    target: PathBuf,
    open: Option<(TableId, BufWriter<File>)>,
    /// The rows of each table that were written.
    pub rows: BTreeMap<TableId, u64>,
}

impl TableWriter {
    pub(super) fn new(target: &Path) -> TableWriter {
        TableWriter { target: target.to_owned(), open: None, rows: BTreeMap::new() }
    }

    /// Appends the JSON text of a row.
    pub(super) fn write(&mut self, id: TableId, place: &TablePlace, text: &[u8]) -> Result<()> {
        let file = match &mut self.open {
            Some((open, file)) if *open == id => file,
            _ => {
                self.close()?;
                let path = place.path(&self.target, "json");
                std::fs::create_dir_all(self.target.join(&place.db))?;
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                &mut self.open.insert((id, BufWriter::with_capacity(1 << 20, file))).1
            }
        };
        file.write_all(text)?;
        file.write_all(b"\n")?;
        *self.rows.entry(id).or_default() += 1;
        Ok(())
    }

    /// Writes the description of a table, and an empty list of rows if it has none: `rethinkdb import` refuses files
    /// without content.
    pub(super) fn describe(&mut self, place: &TablePlace, info: &str) -> Result<()> {
        std::fs::create_dir_all(self.target.join(&place.db))?;
        let rows = place.path(&self.target, "json");
        if !rows.try_exists()? {
            std::fs::write(rows, "[]\n")?;
        }
        std::fs::write(place.path(&self.target, "info"), format!("{info}\n"))
    }

    /// Completes the open file: its rows are durable.
    pub(super) fn close(&mut self) -> Result<()> {
        if let Some((_, mut file)) = self.open.take() {
            file.flush()?;
            file.get_ref().sync_data()?;
        }
        Ok(())
    }
}
