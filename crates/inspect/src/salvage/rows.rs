//! Reads rows and passes them on, each once: the newest version that can be read.

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use datum::{Object, PrimaryKey, row};
use engine::Space;
use storage::{TableId, row_place};

use super::SalvageError;
use super::log_rows::LogRows;
use super::place::Places;
use super::writer::TableWriter;
use crate::check::{OpenEngine, keys, read_row};
use crate::large_values::{large_value_files, read_large_values};
use crate::progress::Progress;
use crate::report::{DamageKind, Report};
use crate::walk::{Found, Range, walk};

/// Keys of which nothing could be read.
pub(super) struct LostRange {
    after: Option<Vec<u8>>,
    before: Option<Vec<u8>>,
    cause: String,
}

/// The state of reading and writing rows.
pub(super) struct RowSalvage<'a> {
    pub places: &'a mut Places,
    pub writer: TableWriter,
    /// The changes that are only in the log. Emptied as their rows are met.
    pub log_rows: LogRows,
    pub report: &'a mut Report,
    /// Rows that were written from damaged blocks or from the log.
    pub from_damaged: u64,
    pub from_log: u64,
    /// The engine's keys of the rows in damaged ranges that were written, or whose newest version is in the log.
    met: HashSet<Vec<u8>>,
    lost: Vec<LostRange>,
    failed: Option<std::io::Error>,
}

impl LostRange {
    fn bounds(&self) -> Range<'_> {
        Range { after: self.after.as_deref(), before: self.before.as_deref() }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.after.as_deref().is_none_or(|after| after < key)
            && self.before.as_deref().is_none_or(|before| key < before)
    }
}

impl<'a> RowSalvage<'a> {
    pub(super) fn new(
        places: &'a mut Places,
        target: &Path,
        log_rows: LogRows,
        report: &'a mut Report,
    ) -> RowSalvage<'a> {
        RowSalvage {
            places,
            writer: TableWriter::new(target),
            log_rows,
            report,
            from_damaged: 0,
            from_log: 0,
            met: HashSet::new(),
            lost: Vec::new(),
            failed: None,
        }
    }

    /// Writes all rows of an engine.
    pub(super) fn read_all(
        &mut self,
        open: &OpenEngine,
        progress: &mut Progress,
    ) -> Result<(), SalvageError> {
        walk(&open.engine, Space::Rows, (&[], None), &mut |found| {
            progress.step();
            self.take(open, found);
        })?;
        self.check_written()
    }

    /// Tries the lost ranges again, in a copy of the engine that lists other files.
    pub(super) fn read_lost(&mut self, copy: &OpenEngine) -> Result<(), SalvageError> {
        for range in std::mem::take(&mut self.lost) {
            // The lowest key after it.
            let from = range.after.as_deref().map(|after| [after, &[0]].concat()).unwrap_or_default();
            walk(&copy.engine, Space::Rows, (&from, range.before.as_deref()), &mut |found| {
                self.take_again(copy, found);
            })?;
            self.lost.push(range);
        }
        self.check_written()
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Looks for large values with keys in the lost ranges, in the newest file first.
    pub(super) fn read_large_values(&mut self, engine: &Path, open: &OpenEngine) -> Result<(), SalvageError> {
        let failed = |cause| SalvageError::Source { path: engine.display().to_string(), cause };
        for path in large_value_files(engine).map_err(failed)?.into_iter().rev() {
            let each = &mut |key: &[u8], value: &[u8]| {
                if self.lost.iter().any(|range| range.contains(key)) {
                    self.take_again(open, Found::Doubtful { key, value });
                }
            };
            // A file that cannot be read is one more reason why rows of the range are missing.
            drop(read_large_values(&path, each, &mut |_| {}));
        }
        self.check_written()
    }

    /// Writes the rows that are only in the log, and names the lost ranges.
    pub(super) fn finish(&mut self) -> Result<(), SalvageError> {
        for ((table, key), bytes) in std::mem::take(&mut self.log_rows) {
            if let Some(bytes) = bytes {
                self.write_from_log(table, &key, bytes);
            }
        }
        for range in std::mem::take(&mut self.lost) {
            let place = range.bounds();
            let table = place.after.or(place.before).and_then(row_place).map(|(table, _)| table);
            let table = table.map(|table| self.places.name(table));
            let what = format!("rows {} may be missing: {}", keys(place), range.cause);
            self.report.add(DamageKind::File, table.as_deref(), what);
        }
        self.check_written()?;
        self.writer.close().map_err(|cause| SalvageError::Write { cause })
    }

    fn check_written(&mut self) -> Result<(), SalvageError> {
        self.failed.take().map_or(Ok(()), |cause| Err(SalvageError::Write { cause }))
    }

    fn take(&mut self, open: &OpenEngine, found: Found<'_>) {
        match found {
            Found::Pair { key, value } => self.pair(open, key, value),
            Found::Doubtful { key, value } => self.doubtful(open, key, value, true),
            Found::Damage { range, cause } => {
                let table = range.after.or(range.before).and_then(row_place);
                let table = table.map(|(table, _)| self.places.name(table));
                let what = format!("a block has damage {}: {cause}", keys(range));
                self.report.add(DamageKind::File, table.as_deref(), what);
            }
            Found::Lost { range, cause } => self.lost.push(LostRange {
                after: range.after.map(<[u8]>::to_vec),
                before: range.before.map(<[u8]>::to_vec),
                cause: cause.to_string(),
            }),
        }
    }

    /// A pair of a lost range, which was found elsewhere.
    fn take_again(&mut self, open: &OpenEngine, found: Found<'_>) {
        if let Found::Pair { key, value } | Found::Doubtful { key, value } = found {
            self.doubtful(open, key, value, false);
        }
    }

    fn pair(&mut self, open: &OpenEngine, key: &[u8], value: &[u8]) {
        let Some((table, primary)) = row_place(key) else { return };
        if self.is_newer_in_log(table, &primary) || !self.places.is_wanted(table) {
            return;
        }
        match self.read(open, key, table, &primary, value) {
            Ok((bytes, _)) => self.write(table, &bytes),
            Err(cause) => {
                let name = self.places.name(table);
                self.report.add(DamageKind::Row, Some(&name), cause);
            }
        }
    }

    /// A pair whose block is damaged: it is written if its own checksum is right.
    fn doubtful(&mut self, open: &OpenEngine, key: &[u8], value: &[u8], is_named: bool) {
        let Some((table, primary)) = row_place(key) else { return };
        if self.met.contains(key) || !self.places.is_wanted(table) {
            return;
        }
        if self.is_newer_in_log(table, &primary) {
            self.met.insert(key.to_vec());
            return;
        }
        match self.read(open, key, table, &primary, value) {
            Ok((bytes, _)) => {
                self.met.insert(key.to_vec());
                self.from_damaged += 1;
                self.write(table, &bytes);
            }
            Err(cause) if is_named => {
                let name = self.places.name(table);
                self.report.add(DamageKind::Row, Some(&name), cause);
            }
            Err(_) => {}
        }
    }

    /// Writes the log's version of a row that is being met in the engine. True if the log has one.
    fn is_newer_in_log(&mut self, table: TableId, key: &PrimaryKey) -> bool {
        match self.log_rows.remove(&(table, key.clone())) {
            Some(Some(bytes)) => {
                self.write_from_log(table, key, bytes);
                true
            }
            Some(None) => true,
            None => false,
        }
    }

    fn write_from_log(&mut self, table: TableId, key: &PrimaryKey, bytes: Bytes) {
        match row::decode(bytes.clone()) {
            Ok(object) => {
                self.places.learn(table, key, &object);
                self.from_log += 1;
                self.write(table, &bytes);
            }
            Err(cause) => {
                let (name, what) =
                    (self.places.name(table), format!("row {key} in the log is damaged: {cause}"));
                self.report.add(DamageKind::Row, Some(&name), what);
            }
        }
    }

    fn read(
        &mut self,
        open: &OpenEngine,
        key: &[u8],
        table: TableId,
        primary: &PrimaryKey,
        value: &[u8],
    ) -> Result<(Bytes, Object), String> {
        if self.places.primary_key(table).is_none() {
            let stored = open.rows.decode(key, Bytes::copy_from_slice(value)).ok().flatten();
            if let Some(object) = stored.and_then(|bytes| row::decode(bytes).ok()) {
                self.places.learn(table, primary, &object);
            }
        }
        let primary_key = self.places.primary_key(table).unwrap_or("id").to_owned();
        read_row(&open.rows, key, primary, value, &primary_key)
    }

    fn write(&mut self, table: TableId, bytes: &Bytes) {
        if self.failed.is_none() {
            let place = self.places.place(table);
            self.failed = self.writer.write(table, &place, row::json(bytes)).err();
        }
    }
}
