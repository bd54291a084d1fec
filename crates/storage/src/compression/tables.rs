//! The state of compression in an engine: the policy of each table, and the dictionaries in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use datum::{PrimaryKey, RestoredRow, row};
use engine::{Batch, Change, CompressionStats, Engine, EngineError, Space};
use foldhash::HashMap;
use parking_lot::Mutex;
use zstd_safe::{CDict, DDict};

use super::compressed_row::{CorruptCompression, Parts, compress};
use super::dictionary::{DictionaryNumber, decode_record, encode_record, record_key};
use super::in_use::InUse;
use super::policy::Policy;
use super::prepared::PreparedDictionaries;
use super::samples::{SampleMemory, Samples};
use super::settled_tables::SettledTables;
use super::training::{WRITE_LEVEL, train};
use crate::TableId;
use crate::layout::{VERSION_WRITTEN, dropped_dictionaries, raise_version};

/// Of the memory for compression, samples take this share. Of the rest, dictionaries for decompression take one half, and
/// those for rows that are being written and for settled rows a quarter each.
const SAMPLE_SHARE: usize = 4;

/// The compression of all tables in an engine.
pub(super) struct Compression {
    pub engine: Arc<dyn Engine>,
    pub first_training_bytes: u64,
    pub settled: SettledTables,
    memory_bytes: AtomicUsize,
    policies: Mutex<HashMap<TableId, Arc<Mutex<Policy>>>>,
    compressing: PreparedDictionaries<CDict<'static>>,
    decompressing: PreparedDictionaries<DDict<'static>>,
    samples: Arc<SampleMemory>,
    trainings: AtomicU64,
    adopted: AtomicU64,
    /// Held while a dictionary is put into the engine, and while a table's dictionaries are deleted.
    adoption: Mutex<()>,
}

/// A dictionary to be trained.
pub(super) struct Training {
    table: TableId,
    policy: Arc<Mutex<Policy>>,
    samples: Samples,
}

/// Why a stored row could not be read.
pub(super) enum RowError {
    Engine(EngineError),
    Corrupt(CorruptCompression),
}

impl From<EngineError> for RowError {
    fn from(error: EngineError) -> RowError {
        RowError::Engine(error)
    }
}

impl From<CorruptCompression> for RowError {
    fn from(error: CorruptCompression) -> RowError {
        RowError::Corrupt(error)
    }
}

/// Looks a record up in the space `meta`.
pub(super) type MetaLookup<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Bytes>, EngineError>;

impl Compression {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        memory_bytes: usize,
        first_training_bytes: u64,
    ) -> Compression {
        let Shares { samples, decompressing, compressing, settling } = Shares::of(memory_bytes);
        Compression {
            engine,
            first_training_bytes,
            settled: SettledTables::new(settling),
            memory_bytes: AtomicUsize::new(memory_bytes),
            policies: Mutex::default(),
            compressing: PreparedDictionaries::new(compressing),
            decompressing: PreparedDictionaries::new(decompressing),
            samples: SampleMemory::new(samples),
            trainings: AtomicU64::new(0),
            adopted: AtomicU64::new(0),
            adoption: Mutex::new(()),
        }
    }

    pub(super) fn set_memory_bytes(&self, bytes: usize) {
        let Shares { samples, decompressing, compressing, settling } = Shares::of(bytes);
        self.memory_bytes.store(bytes, Relaxed);
        self.samples.set_bytes_max(samples);
        self.compressing.set_bytes_max(compressing);
        self.decompressing.set_bytes_max(decompressing);
        self.settled.encoders.set_bytes_max(settling);
    }

    /// The most bytes that compression is to take.
    pub(super) fn limit_bytes(&self) -> usize {
        self.memory_bytes.load(Relaxed)
    }

    /// Bytes of prepared dictionaries and samples.
    pub(super) fn memory_bytes(&self) -> usize {
        let dictionaries = self.compressing.bytes() + self.decompressing.bytes();
        dictionaries + self.settled.bytes() + self.samples.bytes()
    }

    pub(super) fn stats(&self) -> CompressionStats {
        let mut stats = CompressionStats {
            trainings: self.trainings.load(Relaxed),
            dictionaries: self.adopted.load(Relaxed),
            ..CompressionStats::default()
        };
        self.settled.add_to(&mut stats);
        for policy in self.policies.lock().values() {
            let totals = policy.lock().totals();
            stats.rows += totals.rows;
            stats.row_bytes += totals.row_bytes;
            stats.stored_bytes += totals.stored_bytes;
        }
        stats
    }

    /// Writes `batch` with its rows compressed where that is worth it. Returns the dictionaries that are to be trained.
    pub(super) fn write(&self, mut batch: Batch) -> Result<Vec<Training>, EngineError> {
        let mut due = Vec::new();
        let mut last: Option<(TableId, Arc<Mutex<Policy>>)> = None;
        let mut dropped = Vec::new();
        for index in 0..batch.len() {
            let (table, value) = match batch.change(index) {
                Some(Change::Put { space: Space::Rows, key, value }) => match table_of(key) {
                    Some(table) => (table, value),
                    None => continue,
                },
                Some(Change::DeleteRange { space: Space::Meta, start, .. }) => {
                    dropped.extend(dropped_dictionaries(start));
                    continue;
                }
                _ => continue,
            };
            let policy = match last.take() {
                Some((of, policy)) if of == table => policy,
                _ => self.policy(table),
            };
            let stored = self.encode(table, &policy, value);
            if let Some(samples) = policy.lock().take_samples() {
                due.push(Training { table, policy: Arc::clone(&policy), samples });
            }
            last = Some((table, policy));
            if let Some(stored) = stored {
                batch.supersede(index, Some(stored));
            }
        }
        if dropped.is_empty() {
            self.engine.write(batch)?;
        } else {
            self.write_drop(batch, &dropped)?;
        }
        Ok(due)
    }

    fn write_drop(&self, batch: Batch, dropped: &[TableId]) -> Result<(), EngineError> {
        let _adoption = self.adoption.lock();
        for table in dropped {
            self.policies.lock().remove(table);
            self.compressing.forget(*table);
            self.decompressing.forget(*table);
            self.settled.forget(*table);
        }
        io::failpoint("compression.table.dropped");
        self.engine.write(batch)
    }

    /// The bytes that were written to a table since the start, and whether its rows turned out not to shrink.
    pub(super) fn seen(&self, table: TableId) -> (u64, bool) {
        let policy = self.policies.lock().get(&table).cloned();
        policy.map_or((0, false), |policy| {
            let policy = policy.lock();
            (policy.seen_bytes(), policy.has_failed())
        })
    }

    pub(super) fn policy(&self, table: TableId) -> Arc<Mutex<Policy>> {
        if let Some(policy) = self.policies.lock().get(&table) {
            return Arc::clone(policy);
        }
        // An engine that cannot be read refuses the write that follows.
        let in_use = InUse::read(&*self.engine, table).unwrap_or_default();
        let policy =
            Policy::new(Arc::clone(&self.samples), self.first_training_bytes, in_use.written, in_use.newest);
        Arc::clone(self.policies.lock().entry(table).or_insert_with(|| Arc::new(Mutex::new(policy))))
    }

    /// The compressed form of a row, or `None` if it is stored as it is.
    fn encode(&self, table: TableId, policy: &Mutex<Policy>, row: &Bytes) -> Option<Bytes> {
        let number = {
            let mut policy = policy.lock();
            let number = policy.begin_row(row.len());
            policy.samples().into_iter().for_each(|samples| samples.offer(row::json(row)));
            number?
        };
        let Ok(dictionary) = self.dictionary_for_compression(table, number) else {
            policy.lock().lose(number);
            return None;
        };
        let compressed = compress(row, number, &*dictionary)?;
        policy.lock().end_row(row.len(), compressed.bytes, compressed.stored.is_some());
        compressed.stored
    }

    pub(super) fn dictionary_for_compression(
        &self,
        table: TableId,
        number: DictionaryNumber,
    ) -> Result<Arc<CDict<'static>>, RowError> {
        if let Some(dictionary) = self.compressing.find((table, number)) {
            return Ok(dictionary);
        }
        let content = self.content(table, number, &|key| self.engine.get(Space::Meta, key))?;
        let dictionary = CDict::try_create(&content, WRITE_LEVEL).ok_or(CorruptCompression::Memory)?;
        let bytes = dictionary.sizeof();
        Ok(self.compressing.keep((table, number), dictionary, bytes))
    }

    /// A dictionary of `table`, prepared, from memory or from the engine that `meta` reads.
    pub(super) fn dictionary(
        &self,
        table: TableId,
        number: DictionaryNumber,
        meta: MetaLookup<'_>,
    ) -> Result<Arc<DDict<'static>>, RowError> {
        if let Some(dictionary) = self.decompressing.find((table, number)) {
            return Ok(dictionary);
        }
        let content = self.content(table, number, meta)?;
        let dictionary = DDict::try_create(&content).ok_or(CorruptCompression::Dictionary { number })?;
        drop(content);
        // Of a dropped table, only a view has the dictionary: the table may come back with another one of that number.
        // Not awaited: a drop may wait for a compaction, which reads this.
        let adoption = self.adoption.try_lock();
        let is_present = adoption.is_some()
            && meta(&record_key(table, number))?
                == self.engine.get(Space::Meta, &record_key(table, number))?;
        if !is_present {
            return Ok(Arc::new(dictionary));
        }
        let bytes = dictionary.sizeof();
        Ok(self.decompressing.keep((table, number), dictionary, bytes))
    }

    pub(super) fn content(
        &self,
        table: TableId,
        number: DictionaryNumber,
        meta: MetaLookup<'_>,
    ) -> Result<Bytes, RowError> {
        let record = meta(&record_key(table, number))?.ok_or(CorruptCompression::NoDictionary { number })?;
        Ok(decode_record(table, number, &record).ok_or(CorruptCompression::Dictionary { number })?)
    }

    /// The row in `stored`, which is compressed, under the engine's key `key`.
    pub(super) fn decode(&self, key: &[u8], stored: &[u8], meta: MetaLookup<'_>) -> Result<Bytes, RowError> {
        let parts = Parts::of(stored)?;
        let table = table_of(key).ok_or(CorruptCompression::Header)?;
        let dictionary = self.dictionary(table, parts.dictionary, meta)?;
        let mut row = RestoredRow::default();
        parts.decompress(&dictionary, &mut row)?;
        Ok(Bytes::from(row.into_bytes()))
    }

    /// Calls `read` with the text of the row in `stored`, compressed or not, under the engine's key `key`, and returns its
    /// length. `None` if the row cannot be read.
    pub(super) fn with_text(&self, key: &[u8], stored: &[u8], read: impl FnOnce(&[u8])) -> Option<usize> {
        let row = match is_compressed(key, stored) {
            true => self.decode(key, stored, &|key| self.engine.get(Space::Meta, key)).ok()?,
            false => Bytes::copy_from_slice(stored),
        };
        let text = row::json(&row);
        read(text);
        Some(text.len())
    }

    /// Trains a dictionary and has new rows use it, if it is better than the present one. `flush` makes it durable.
    pub(super) fn run(&self, training: Training, flush: impl FnOnce() -> Result<(), EngineError>) {
        let Training { table, policy, samples } = training;
        self.count_training();
        let current = policy.lock().current();
        let current = current.and_then(|number| self.dictionary_for_compression(table, number).ok());
        let trained = train(&samples, current.as_deref());
        drop(samples);
        // A dictionary that cannot be stored is not used. The engine's failure is reported by the next write.
        io::failpoint("compression.trained");
        let adopted = trained.and_then(|content| {
            let record = |number| Some(encode_record(table, number, &content));
            self.store(table, &policy, VERSION_WRITTEN, record, flush).ok().flatten()
        });
        policy.lock().end_training(adopted);
    }

    /// Puts the record of a dictionary into an engine that then has at least format `version`. `None` if the table was
    /// dropped meanwhile, or if there is no record.
    pub(super) fn store(
        &self,
        table: TableId,
        policy: &Arc<Mutex<Policy>>,
        version: u32,
        record: impl FnOnce(DictionaryNumber) -> Option<Bytes>,
        flush: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<Option<DictionaryNumber>, EngineError> {
        let Some(number) = policy.lock().take_number() else { return Ok(None) };
        let Some(record) = record(number) else { return Ok(None) };
        let written = self.if_present(table, policy, || {
            let mut batch = Batch::new();
            raise_version(&*self.engine, &mut batch, version)?;
            batch.put(Space::Meta, &record_key(table, number), record);
            self.engine.write(batch)
        });
        let Some(written) = written else { return Ok(None) };
        written?;
        io::failpoint("compression.dictionary.written");
        flush()?;
        io::failpoint("compression.dictionary.flushed");
        self.adopted.fetch_add(1, Relaxed);
        Ok(Some(number))
    }

    /// Runs `work` while the table cannot be dropped, unless it was dropped since `policy` was found.
    pub(super) fn if_present<T>(
        &self,
        table: TableId,
        policy: &Arc<Mutex<Policy>>,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let _adoption = self.adoption.lock();
        let is_present = self.policies.lock().get(&table).is_some_and(|found| Arc::ptr_eq(found, policy));
        is_present.then(work)
    }

    pub(super) fn count_training(&self) {
        self.trainings.fetch_add(1, Relaxed);
    }
}

/// The memory for compression, by purpose.
struct Shares {
    samples: usize,
    decompressing: usize,
    compressing: usize,
    settling: usize,
}

impl Shares {
    fn of(memory_bytes: usize) -> Shares {
        let samples = memory_bytes / SAMPLE_SHARE;
        let quarter = (memory_bytes - samples) / 4;
        Shares { samples, decompressing: 2 * quarter, compressing: quarter, settling: quarter }
    }
}

/// The table of the engine's key of a row.
pub(super) fn table_of(key: &[u8]) -> Option<TableId> {
    let id = key.first_chunk::<{ TableId::BYTES }>()?;
    Some(TableId::from_uuid(uuid::Uuid::from_bytes(*id)))
}

/// Whether the value `stored` of the engine's key `key` is a compressed row.
#[inline]
pub(super) fn is_compressed(key: &[u8], stored: &[u8]) -> bool {
    row::is_compressed(stored) && key.len() >= TableId::BYTES
}

/// The error that names the row under the engine's key `key`. A damaged row is listed.
#[cold]
pub(super) fn named(engine: &dyn Engine, key: &[u8], error: RowError) -> EngineError {
    let cause = match error {
        RowError::Engine(error) => return error,
        RowError::Corrupt(cause) => cause,
    };
    let (table, row) = key.split_at(key.len().min(TableId::BYTES));
    let table = table_of(table).map_or_else(|| "unknown".to_owned(), |table| table.to_string());
    let row = PrimaryKey(Bytes::copy_from_slice(row));
    let detail = format!("row {row} of table {table} is damaged: {cause}");
    if let Some(damage) = engine.damage().filter(|_| !matches!(cause, CorruptCompression::Memory)) {
        damage.note_row(key, &detail);
    }
    EngineError::Corrupt { detail }
}
