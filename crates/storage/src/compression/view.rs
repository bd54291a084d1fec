//! Snapshots and scans that decompress rows.

use std::sync::Arc;

use bytes::Bytes;
use datum::RestoredRow;
use engine::{Direction, EngineError, Pair, Scan, ScanRange, Snapshot, Space};
use zstd_safe::DDict;

use super::compressed_row::{CorruptCompression, Parts};
use super::dictionary::DictionaryNumber;
use super::tables::{Compression, RowError, is_compressed, named, table_of};
use crate::TableId;

/// A view of an engine with compressed rows.
#[derive(Clone)]
pub(super) struct CompressedSnapshot {
    pub view: Arc<dyn Snapshot>,
    pub compression: Arc<Compression>,
}

impl CompressedSnapshot {
    /// A record from the view, since the table may have been dropped since; otherwise from the engine, since the row may
    /// have been compressed again since, with a dictionary that the view does not have.
    fn meta(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        match self.view.get(Space::Meta, key)? {
            Some(record) => Ok(Some(record)),
            None => self.compression.engine.get(Space::Meta, key),
        }
    }
}

impl Snapshot for CompressedSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let Some(stored) = self.view.get(space, key)? else { return Ok(None) };
        if space != Space::Rows || !is_compressed(key, &stored) {
            return Ok(Some(stored));
        }
        let meta = |key: &[u8]| self.meta(key);
        let decoded = self.compression.decode(key, &stored, &meta);
        decoded.map(Some).map_err(|error| named(&*self.compression.engine, key, error))
    }

    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan> {
        let scan = Arc::clone(&self.view).scan(space, range, direction);
        if space != Space::Rows {
            return scan;
        }
        Box::new(CompressedScan { scan, snapshot: self, row: RestoredRow::default(), last: None })
    }

    fn split_points(
        &self,
        space: Space,
        range: ScanRange<'_>,
        parts: usize,
    ) -> Result<Vec<Bytes>, EngineError> {
        self.view.split_points(space, range, parts)
    }

    fn bytes_in(&self, space: Space, range: ScanRange<'_>) -> Result<u64, EngineError> {
        self.view.bytes_in(space, range)
    }
}

/// A scan that decompresses rows into memory that it reuses.
struct CompressedScan {
    scan: Box<dyn Scan>,
    snapshot: Arc<CompressedSnapshot>,
    row: RestoredRow,
    last: Option<LastDictionary>,
}

/// The dictionary of the last row: most likely also that of the next.
struct LastDictionary {
    table: TableId,
    number: DictionaryNumber,
    dictionary: Arc<DDict<'static>>,
}

impl Scan for CompressedScan {
    #[inline]
    fn next(&mut self) -> Result<Option<Pair<'_>>, EngineError> {
        let CompressedScan { scan, snapshot, row, last } = self;
        let Some((key, stored)) = scan.next()? else { return Ok(None) };
        if !is_compressed(key, stored) {
            return Ok(Some((key, stored)));
        }
        match decompress(key, stored, snapshot, row, last) {
            Ok(row) => Ok(Some((key, row))),
            Err(error) => Err(named(&*snapshot.compression.engine, key, error)),
        }
    }

    /// A decompressed row has been compared with its checksum.
    fn is_verified(&self) -> bool {
        self.scan.is_verified()
    }

    fn prefetch_value_at(&mut self, offset: usize) {
        self.scan.prefetch_value_at(offset);
    }

    fn restart(&mut self, range: ScanRange<'_>) {
        self.scan.restart(range);
    }
}

fn decompress<'a>(
    key: &[u8],
    stored: &[u8],
    snapshot: &CompressedSnapshot,
    row: &'a mut RestoredRow,
    last: &mut Option<LastDictionary>,
) -> Result<&'a [u8], RowError> {
    let parts = Parts::of(stored)?;
    let (number, table) = (parts.dictionary, table_of(key).ok_or(CorruptCompression::Header)?);
    let is_last = last.as_ref().is_some_and(|last| (last.table, last.number) == (table, number));
    if !is_last {
        let meta = |key: &[u8]| snapshot.meta(key);
        let dictionary = snapshot.compression.dictionary(table, number, &meta)?;
        *last = Some(LastDictionary { table, number, dictionary });
    }
    let last = last.as_ref().ok_or(CorruptCompression::NoDictionary { number })?;
    Ok(parts.decompress(&last.dictionary, row)?)
}
