//! Compresses rows again, better, once they have settled: with a dictionary that is larger than the one for rows that are
//! being written, and that more of the table's rows are sampled for.
//!
//! The engine does it when it moves rows from file to file ([`RowRewriter`](engine::RowRewriter)); such a row is stored under its old sequence
//! number, so no later change of it can be undone. [`Settling::step`] prepares the dictionaries, and has the engine
//! rewrite ranges of a table whose rows are not settled and where nothing would move them otherwise.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Direction, EngineError, Occasion, ScanRange, Snapshot, Space};
use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};

use super::dictionary::Tier;
use super::samples::{SampleMemory, Samples};
use super::settled::SettledTraining;
use super::tables::Compression;
use crate::TableId;
use crate::sweep::tables_present;

/// Says whether a table is an archive.
pub type IsArchive = Box<dyn Fn(TableId) -> bool + Send + Sync>;

/// The settling of all tables in an engine.
pub(super) struct Settling {
    compression: Arc<Compression>,
    is_archive: RwLock<IsArchive>,
    tables: Mutex<HashMap<TableId, Progress>>,
}

/// The settling of one table.
#[derive(Default)]
struct Progress {
    /// The bytes that had been written to the table when it was settled last; `None` if it was not yet.
    settled_at: Option<u64>,
    /// The tier and size of the table when a dictionary was trained that was no better.
    failed_at: Option<(Tier, u64)>,
    /// The tier of the last complete pass.
    tier: Option<Tier>,
    pass: Option<Pass>,
}

/// A pass over a table.
struct Pass {
    tier: Tier,
    /// The ranges that are not looked at yet: first key, and the key after the last.
    ranges: VecDeque<(Bytes, Bytes)>,
    /// The bytes that had been written when the pass began.
    seen_bytes: u64,
}

/// A range of a pass has about this many bytes.
const RANGE_BYTES: u64 = 16 << 20;
/// So many rows of a range are compressed to see whether the range gets smaller, and these are read at one place.
const TRIED_ROWS: usize = 32;
/// A range is rewritten if its rows then take at most this share of their present bytes.
const REWRITTEN_SHARE_MAX: f64 = 0.97;
/// A table is settled again after one in this many of its bytes were written.
const WRITTEN_SHARE: u64 = 8;
/// A dictionary is trained again when the table takes this many times the bytes of the last time.
const GROWTH: u64 = 8;
/// The first settled dictionary is trained at this many times the bytes of the first dictionary; that of an archive at
/// one in this many.
const FIRST_FACTOR: u64 = 4;
/// The most bytes of the sample of a table that is no archive.
const SAMPLE_BYTES_MAX: usize = 8 << 20;
/// The most bytes of the dictionary of an archive, and the most as a share of the memory for compression. Preparing it
/// takes ten times as much.
const ARCHIVE_BYTES_MAX: usize = 64 << 20;
const ARCHIVE_SHARE: usize = 8;
/// Rows are sampled at so many places of a table.
const SAMPLE_PLACES: usize = 1024;

impl Settling {
    pub(super) fn new(compression: Arc<Compression>) -> Settling {
        let is_archive: IsArchive = Box::new(|_| false);
        Settling { compression, is_archive: RwLock::new(is_archive), tables: Mutex::default() }
    }

    /// When this returns, no call of the earlier function is running.
    pub(super) fn set_is_archive(&self, is_archive: IsArchive) {
        *self.is_archive.write() = is_archive;
    }

    /// The tables with rows. Also makes the settled dictionaries that they have known to the rewriter.
    pub(super) fn tables(&self) -> Result<Vec<TableId>, EngineError> {
        let snapshot = self.compression.engine.snapshot()?;
        let tables =
            tables_present(&snapshot).map_err(|error| EngineError::Corrupt { detail: error.to_string() })?;
        let mut known = self.tables.lock();
        known.retain(|table, _| tables.contains(table));
        self.compression.settled.retain_unsettled(&tables);
        for table in &tables {
            if !known.contains_key(table) {
                self.compression.load_settled(*table)?;
                known.insert(*table, Progress::default());
            }
        }
        Ok(tables)
    }

    /// Does one step for a table: trains a dictionary, or has one range rewritten. Returns whether there may be another
    /// step. Costs some lookups if there is nothing to do. `flush` makes a dictionary durable.
    pub(super) fn step(
        &self,
        table: TableId,
        flush: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let is_more = self.advance(table, flush)?;
        if !is_more {
            self.compression.settled.set_settled(table);
        }
        Ok(is_more)
    }

    fn advance(
        &self,
        table: TableId,
        flush: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let mut tables = self.tables.lock();
        let Some(progress) = tables.get_mut(&table) else { return Ok(false) };
        if let Some(pass) = &mut progress.pass {
            if let Some((start, end)) = pass.ranges.pop_front() {
                self.settle_range((Bound::Included(&start), Bound::Excluded(&end)))?;
                return Ok(true);
            }
            progress.settled_at = Some(pass.seen_bytes);
            progress.tier = Some(pass.tier);
            progress.pass = None;
            self.compression.settled.end_archiving(table);
            return Ok(false);
        }
        self.begin(table, progress, flush)
    }

    /// Begins a pass, if one is due; trains a dictionary for it, if it needs one.
    fn begin(
        &self,
        table: TableId,
        progress: &mut Progress,
        flush: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let (seen_bytes, has_failed) = self.compression.seen(table);
        let is_archive = (self.is_archive.read())(table);
        let tier = if is_archive { Tier::Archived } else { Tier::Settled };
        if has_failed {
            return Ok(false);
        }
        if let Some(settled_at) = progress.settled_at
            && progress.tier == Some(tier)
            && seen_bytes.saturating_sub(settled_at) < self.compression.first_training_bytes
        {
            return Ok(false);
        }
        let view = self.compression.engine.snapshot()?;
        let Some(end) = table.next() else { return Ok(false) };
        let whole = (Bound::Included(&table.as_bytes()[..]), Bound::Excluded(&end.as_bytes()[..]));
        let bytes = view.bytes_in(Space::Rows, whole)?;
        let is_due = progress.tier != Some(tier)
            || progress.settled_at.is_none_or(|at| seen_bytes.saturating_sub(at) >= bytes / WRITTEN_SHARE);
        if !is_due {
            return Ok(false);
        }
        self.compression.settled.set_unsettled(table);
        if self.needs_dictionary(table, progress, tier, bytes) {
            progress.failed_at = Some((tier, bytes));
            let samples = self.sample(&view, whole, tier)?;
            let training = SettledTraining { table, tier, table_bytes: bytes, samples };
            if self.compression.train_settled(training, flush)? {
                progress.failed_at = None;
            }
            return Ok(true);
        }
        if self.compression.settled.of(table).is_none() {
            return Ok(false);
        }
        if !self.compression.has_settled_dictionary(table) {
            return Ok(true);
        }
        progress.pass = Some(Pass { tier, ranges: ranges(&*view, whole, bytes)?, seen_bytes });
        Ok(true)
    }

    fn needs_dictionary(&self, table: TableId, progress: &Progress, tier: Tier, bytes: u64) -> bool {
        let first = self.compression.first_training_bytes;
        let is_large_enough = match tier {
            Tier::Archived => bytes >= first / FIRST_FACTOR,
            Tier::Written | Tier::Settled => bytes >= first * FIRST_FACTOR,
        };
        let has_failed = progress
            .failed_at
            .is_some_and(|(failed, at)| failed == tier && bytes < at.saturating_mul(GROWTH));
        let has_one = self.compression.settled.of(table).is_some_and(|settled| {
            settled.tier == tier && bytes < settled.table_bytes.saturating_mul(GROWTH)
        });
        is_large_enough && !has_failed && !has_one
    }

    /// Rows from all parts of a table.
    fn sample(
        &self,
        view: &Arc<dyn Snapshot>,
        whole: ScanRange<'_>,
        tier: Tier,
    ) -> Result<Samples, EngineError> {
        let bytes_max = match tier {
            Tier::Archived => ARCHIVE_BYTES_MAX.min(self.compression.limit_bytes() / ARCHIVE_SHARE),
            Tier::Written | Tier::Settled => SAMPLE_BYTES_MAX.min(self.compression.limit_bytes() / 2),
        };
        // Each place has up to a row too many.
        let mut samples = Samples::new(SampleMemory::new(2 * bytes_max), 2 * bytes_max);
        let mut starts = view.split_points(Space::Rows, whole, SAMPLE_PLACES)?;
        starts.insert(0, first_of(whole));
        let place_bytes = bytes_max / starts.len();
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).map_or(whole.1, |next| Bound::Excluded(&next[..]));
            let range = (Bound::Included(&start[..]), end);
            let mut scan = Arc::clone(view).scan(Space::Rows, range, Direction::Ascending);
            let mut taken = 0;
            while taken < place_bytes
                && let Some((key, stored)) = scan.next()?
            {
                // A damaged row is not sampled.
                taken += self.compression.with_text(key, stored, |text| samples.offer(text)).unwrap_or(1);
            }
        }
        Ok(samples)
    }

    /// Rewrites a range, if its rows become smaller.
    fn settle_range(&self, range: ScanRange<'_>) -> Result<(), EngineError> {
        let view = self.compression.engine.snapshot()?;
        let mut scan = view.scan(Space::Rows, range, Direction::Ascending);
        let (mut bytes, mut settled_bytes, mut rows) = (0, 0, 0);
        while rows < TRIED_ROWS
            && let Some((key, stored)) = scan.next()?
        {
            let settled = self.compression.settle(key, stored, Occasion::Requested);
            bytes += stored.len();
            settled_bytes += settled.map_or(stored.len(), |settled| settled.len());
            rows += 1;
        }
        drop(scan);
        if settled_bytes as f64 <= bytes as f64 * REWRITTEN_SHARE_MAX && rows > 0 {
            self.compression.engine.compact(Space::Rows, range)?;
        }
        Ok(())
    }
}

/// Divides a table.
fn ranges(
    view: &dyn Snapshot,
    whole: ScanRange<'_>,
    bytes: u64,
) -> Result<VecDeque<(Bytes, Bytes)>, EngineError> {
    let parts = usize::try_from(bytes / RANGE_BYTES).unwrap_or(usize::MAX).max(1);
    let mut starts = view.split_points(Space::Rows, whole, parts)?;
    starts.insert(0, first_of(whole));
    let end = match whole.1 {
        Bound::Included(end) | Bound::Excluded(end) => Bytes::copy_from_slice(end),
        Bound::Unbounded => return Ok(VecDeque::new()),
    };
    let ends = starts.iter().skip(1).cloned().chain([end]);
    Ok(starts.iter().cloned().zip(ends).collect())
}

fn first_of(range: ScanRange<'_>) -> Bytes {
    match range.0 {
        Bound::Included(start) | Bound::Excluded(start) => Bytes::copy_from_slice(start),
        Bound::Unbounded => Bytes::new(),
    }
}
