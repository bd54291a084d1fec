//! The settled dictionaries of all tables of an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::CompressionStats;
use foldhash::{HashMap, HashSet};
use parking_lot::{Mutex, RwLock};

use super::dictionary::DictionaryNumber;
use super::in_use::SettledDictionary;
use super::prepared::PreparedDictionaries;
use super::settled_encoder::SettledEncoder;
use crate::TableId;

/// The encoder of an archive that is being settled.
struct Archiving {
    table: TableId,
    number: DictionaryNumber,
    encoder: Arc<SettledEncoder>,
}

/// The dictionaries with which settled rows are compressed, and the prepared ones among them.
pub(super) struct SettledTables {
    dictionaries: RwLock<HashMap<TableId, SettledDictionary>>,
    /// Apart from `encoders`, for which it would be too large.
    archiving: RwLock<Option<Archiving>>,
    pub encoders: PreparedDictionaries<SettledEncoder>,
    /// The tables whose rows are yet to be compressed again.
    unsettled: Mutex<HashSet<TableId>>,
    rows: AtomicU64,
    bytes_before: AtomicU64,
    bytes_after: AtomicU64,
}

impl SettledTables {
    /// No dictionaries. The prepared ones take at most `encoder_bytes_max` bytes.
    pub(super) fn new(encoder_bytes_max: usize) -> SettledTables {
        SettledTables {
            dictionaries: RwLock::default(),
            archiving: RwLock::default(),
            encoders: PreparedDictionaries::new(encoder_bytes_max),
            unsettled: Mutex::default(),
            rows: AtomicU64::new(0),
            bytes_before: AtomicU64::new(0),
            bytes_after: AtomicU64::new(0),
        }
    }

    pub(super) fn of(&self, table: TableId) -> Option<SettledDictionary> {
        self.dictionaries.read().get(&table).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dictionaries.read().is_empty()
    }

    pub(super) fn adopt(&self, table: TableId, dictionary: SettledDictionary) {
        self.dictionaries.write().insert(table, dictionary);
    }

    pub(super) fn forget(&self, table: TableId) {
        self.dictionaries.write().remove(&table);
        self.encoders.forget(table);
        self.end_archiving(table);
    }

    pub(super) fn encoder(&self, table: TableId, number: DictionaryNumber) -> Option<Arc<SettledEncoder>> {
        if let Some(archiving) = &*self.archiving.read()
            && (archiving.table, archiving.number) == (table, number)
        {
            return Some(Arc::clone(&archiving.encoder));
        }
        self.encoders.find((table, number))
    }

    /// Keeps an encoder: that of an archive until it is settled, or another archive is.
    pub(super) fn keep(
        &self,
        table: TableId,
        number: DictionaryNumber,
        encoder: SettledEncoder,
    ) -> Arc<SettledEncoder> {
        if matches!(encoder, SettledEncoder::Settled(_)) {
            let bytes = encoder.bytes();
            return self.encoders.keep((table, number), encoder, bytes);
        }
        let encoder = Arc::new(encoder);
        *self.archiving.write() = Some(Archiving { table, number, encoder: Arc::clone(&encoder) });
        encoder
    }

    /// Frees the encoder of an archive.
    pub(super) fn end_archiving(&self, table: TableId) {
        drop(self.archiving.write().take_if(|archiving| archiving.table == table));
    }

    /// Notes that rows of the table are yet to be compressed again.
    pub(super) fn set_unsettled(&self, table: TableId) {
        self.unsettled.lock().insert(table);
    }

    /// Forgets which tables are unsettled, but for `tables`.
    pub(super) fn retain_unsettled(&self, tables: &[TableId]) {
        self.unsettled.lock().retain(|table| tables.contains(table));
    }

    /// Notes that there is nothing left to do for the table.
    pub(super) fn set_settled(&self, table: TableId) {
        self.unsettled.lock().remove(&table);
    }

    /// Bytes of all encoders.
    pub(super) fn bytes(&self) -> usize {
        let archiving = self.archiving.read();
        self.encoders.bytes() + archiving.as_ref().map_or(0, |archiving| archiving.encoder.bytes())
    }

    /// Counts a row that was stored in `after` bytes instead of `before`.
    pub(super) fn count_row(&self, before: usize, after: usize) {
        self.rows.fetch_add(1, Relaxed);
        self.bytes_before.fetch_add(before as u64, Relaxed);
        self.bytes_after.fetch_add(after as u64, Relaxed);
    }

    pub(super) fn add_to(&self, stats: &mut CompressionStats) {
        stats.settled_rows += self.rows.load(Relaxed);
        stats.settled_bytes_before += self.bytes_before.load(Relaxed);
        stats.settled_bytes_after += self.bytes_after.load(Relaxed);
        stats.unsettled_tables += self.unsettled.lock().len() as u64;
    }
}
