//! Snapshots and scans of the engine on disk.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use rocksdb::{DB, DBRawIterator, ReadOptions, ReadTier};

use super::bounds::{first_excluded, first_included, successor};
use super::damage::Damage;
use super::{column, split_points};
use crate::prefetch::prefetch_line;
use crate::{Direction, EngineError, Pair, Scan, ScanRange, Snapshot, Space, scan_range};

/// Bytes read at once from a file when a block is not cached. By default RocksDB would make read-ahead system calls
/// from the second block of a scan on, again and again, even if all blocks are cached.
const READAHEAD_BYTES: usize = 32 << 10;
/// The same once a scan has read [`LONG_SCAN_BYTES`] of values: a disk reads large pieces much faster.
const LONG_READAHEAD_BYTES: usize = 512 << 10;
/// A scan that has read so many bytes will probably read as many again.
const LONG_SCAN_BYTES: usize = 1 << 20;

/// Where a view looks for values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tier {
    /// In memtables and cached blocks; reads of other values fail.
    Memory,
    /// Everywhere.
    Disk,
}

impl Tier {
    fn apply_to(self, read: &mut ReadOptions) {
        if self == Tier::Memory {
            read.set_read_tier(ReadTier::BlockCache);
        }
    }
}

/// A view of the database at one sequence number.
pub(super) struct RocksSnapshot {
    // Fields are dropped in this order: options that name the snapshot, the snapshot, the database.
    read: ReadOptions,
    snapshot: rocksdb::Snapshot<'static>,
    db: Arc<DB>,
    tier: Tier,
    damage: Arc<Damage>,
}

impl RocksSnapshot {
    pub(super) fn new(db: Arc<DB>, damage: Arc<Damage>, tier: Tier) -> Self {
        let snapshot = db.snapshot();
        // SAFETY: the snapshot borrows the `DB` inside the `Arc`, whose address does not change
        // and which lives until `self.db` is dropped, after `self.snapshot`. No method hands the
        // 'static reference out.
        let snapshot: rocksdb::Snapshot<'static> = unsafe { mem::transmute(snapshot) };
        let mut read = ReadOptions::default();
        read.set_snapshot(&snapshot);
        tier.apply_to(&mut read);
        RocksSnapshot { read, snapshot, db, tier, damage }
    }

    /// An iterator over the keys inside `bounds`, which must be dropped before this view.
    fn iterator(
        &self,
        space: Space,
        bounds: &Within,
        mut read: ReadOptions,
        readahead_bytes: usize,
    ) -> DBRawIterator<'static> {
        self.tier.apply_to(&mut read);
        if let Some(start) = &bounds.start {
            read.set_iterate_lower_bound(start.clone());
        }
        if let Some(end) = &bounds.end {
            read.set_iterate_upper_bound(end.clone());
        }
        read.set_readahead_size(readahead_bytes);
        read.set_auto_readahead_size(false);
        let iterator = self.snapshot.raw_iterator_cf_opt(column(&self.db, space), read);
        // SAFETY: the iterator borrows the `DB` and the snapshot, both owned by `self`, which the
        // scan keeps alive in `source`, dropped after `iterator`.
        unsafe { mem::transmute::<DBRawIterator<'_>, DBRawIterator<'static>>(iterator) }
    }
}

impl Snapshot for RocksSnapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.db.get_pinned_cf_opt(column(&self.db, space), key, &self.read);
        let found = found.map_err(|error| self.damage.failed(error, space, (key, key)))?;
        Ok(found.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn scan(self: Arc<Self>, space: Space, range: ScanRange<'_>, direction: Direction) -> Box<dyn Scan> {
        let scan = new_scan(self, space, range, direction, ReadOptions::default());
        Box::new(RocksScan { may_become_long: true, ..scan })
    }

    fn split_points(
        &self,
        space: Space,
        range: ScanRange<'_>,
        parts: usize,
    ) -> Result<Vec<Bytes>, EngineError> {
        if scan_range::is_empty(range) {
            return Ok(Vec::new());
        }
        split_points::find(&self.db, &self.snapshot, space, range, parts)
    }

    fn bytes_in(&self, space: Space, range: ScanRange<'_>) -> Result<u64, EngineError> {
        if scan_range::is_empty(range) {
            return Ok(0);
        }
        let start = first_included(range.0).unwrap_or_default();
        match first_excluded(range.1) {
            Some(end) => split_points::bytes_between(&self.db, space, &start, &end),
            None => match split_points::last_key(&self.db, &self.snapshot, space, range)? {
                Some(last) => split_points::bytes_between(&self.db, space, &start, &successor(&last)),
                None => Ok(0),
            },
        }
    }
}

/// Scans `range` of a snapshot. `read` says how blocks are read: perhaps damaged ones, so it never continues with another
/// iterator, which might not find a key again.
pub(super) fn scan_with(
    snapshot: Arc<RocksSnapshot>,
    space: Space,
    range: ScanRange<'_>,
    direction: Direction,
    read: ReadOptions,
) -> Box<dyn Scan> {
    Box::new(new_scan(snapshot, space, range, direction, read))
}

fn new_scan(
    snapshot: Arc<RocksSnapshot>,
    space: Space,
    range: ScanRange<'_>,
    direction: Direction,
    read: ReadOptions,
) -> RocksScan {
    let bounds = Within { start: first_included(range.0), end: first_excluded(range.1) };
    let iterator = snapshot.iterator(space, &bounds, read, READAHEAD_BYTES);
    RocksScan {
        iterator,
        direction,
        step: if scan_range::is_empty(range) { Step::Ended } else { Step::Start },
        within: None,
        prefetch_offset: None,
        bytes_read: 0,
        may_become_long: false,
        source: Source { snapshot, space, bounds },
    }
}

struct RocksScan {
    // Dropped before the snapshot it walks.
    iterator: DBRawIterator<'static>,
    direction: Direction,
    step: Step,
    // The part of the iterator's range that the scan is restricted to, if not all of it.
    within: Option<Within>,
    // The offset in values that the caller will read, if it gave a hint.
    prefetch_offset: Option<usize>,
    // The values so far.
    bytes_read: usize,
    // Whether the iterator will read ahead further once the scan is long.
    may_become_long: bool,
    source: Source,
}

/// The view and the range of an iterator.
struct Source {
    snapshot: Arc<RocksSnapshot>,
    space: Space,
    bounds: Within,
}

/// A range of keys: the first key inside and the first key outside.
struct Within {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

impl Within {
    fn contains(&self, key: &[u8]) -> bool {
        self.start.as_deref().is_none_or(|start| start <= key)
            && self.end.as_deref().is_none_or(|end| key < end)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    Onward,
    Ended,
}

impl Scan for RocksScan {
    fn next(&mut self) -> Result<Option<Pair<'_>>, EngineError> {
        match (self.step, self.direction) {
            (Step::Ended, _) => return Ok(None),
            (Step::Start, Direction::Ascending) => self.seek_first(),
            (Step::Start, Direction::Descending) => self.seek_last(),
            (Step::Onward, Direction::Ascending) if self.has_become_long() => self.next_of_long_scan(),
            (Step::Onward, Direction::Ascending) => self.iterator.next(),
            (Step::Onward, Direction::Descending) => self.iterator.prev(),
        }
        self.step = Step::Onward;
        let belongs = |key| self.within.as_ref().is_none_or(|within| within.contains(key));
        if let Some((key, value)) = self.iterator.item()
            && belongs(key)
        {
            self.bytes_read += value.len();
            prefetch_after(value, self.prefetch_offset);
            return Ok(Some((key, value)));
        }
        self.step = Step::Ended;
        let bounds = &self.source.bounds;
        let (start, end) = (bounds.start.as_deref(), bounds.end.as_deref());
        // For the list of damaged files: the keys that the failed read may concern.
        let keys = (start.unwrap_or_default(), end.unwrap_or(&[0xFF; 16]));
        let (space, damage) = (self.source.space, &self.source.snapshot.damage);
        self.iterator.status().map_err(|error| damage.failed(error, space, keys))?;
        Ok(None)
    }

    /// Every block, and every separately stored large value, has a checksum that is verified when it is read into
    /// memory (option `verify_checksums`, on by default).
    fn is_verified(&self) -> bool {
        true
    }

    fn prefetch_value_at(&mut self, offset: usize) {
        self.prefetch_offset = Some(offset);
    }

    fn restart(&mut self, range: ScanRange<'_>) {
        self.step = if scan_range::is_empty(range) { Step::Ended } else { Step::Start };
        self.within = Some(Within { start: first_included(range.0), end: first_excluded(range.1) });
    }
}

/// Prefetches the memory that is read next, which the processor would otherwise wait for: the pairs of a block are
/// adjacent, but the bytes read of each are too far apart for the hardware prefetcher. The next pair begins right after
/// `value`. Its end is a guess, that its value is as long as this one; so is the position of `prefetch_offset` in it.
#[inline]
fn prefetch_after(value: &[u8], prefetch_offset: Option<usize>) {
    const LINE_BYTES: usize = 64;
    // Three lengths, and the part of the key that is not shared with the previous key.
    const KEY_BYTES: usize = 16;
    let next = value.as_ptr_range().end;
    let next_end = next.wrapping_add(value.len());
    for line in [
        next,
        next.wrapping_add(LINE_BYTES),
        next_end.wrapping_sub(LINE_BYTES),
        next_end,
        next_end.wrapping_add(LINE_BYTES),
    ] {
        prefetch_line(line);
    }
    if let Some(offset) = prefetch_offset {
        // The field's name precedes the offset, and rows are similar but not identical.
        let about = next.wrapping_add(KEY_BYTES + offset);
        prefetch_line(about.wrapping_sub(LINE_BYTES / 2));
        prefetch_line(about.wrapping_add(LINE_BYTES / 2));
    }
}

impl RocksScan {
    fn has_become_long(&self) -> bool {
        self.may_become_long && self.bytes_read >= LONG_SCAN_BYTES
    }

    /// Continues after the present key with an iterator that reads ahead further. Only for an ascending scan: what follows
    /// in the file is behind a descending one.
    fn next_of_long_scan(&mut self) {
        self.may_become_long = false;
        let Some(key) = self.iterator.key().map(<[u8]>::to_vec) else { return self.iterator.next() };
        let Source { snapshot, space, bounds } = &self.source;
        self.iterator = snapshot.iterator(*space, bounds, ReadOptions::default(), LONG_READAHEAD_BYTES);
        self.iterator.seek(&key);
        self.iterator.next();
    }

    fn seek_first(&mut self) {
        match self.within.as_ref().and_then(|within| within.start.as_deref()) {
            Some(start) => self.iterator.seek(start),
            None => self.iterator.seek_to_first(),
        }
    }

    fn seek_last(&mut self) {
        match self.within.as_ref().and_then(|within| within.end.as_deref()) {
            Some(end) => {
                self.iterator.seek_for_prev(end);
                if self.iterator.key() == Some(end) {
                    self.iterator.prev();
                }
            }
            None => self.iterator.seek_to_last(),
        }
    }
}
