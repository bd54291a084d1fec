//! RocksDB's compaction filter, which gives rows to the engine's [`RowRewriter`](crate::RowRewriter), and compactions on
//! request.
//!
//! RocksDB holds none of its locks while it runs a filter. It asks for the newest version of each key in the compaction, and
//! stores the result with the same sequence number. Deletions, and older versions that snapshots need, are not asked for.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, BottommostLevelCompaction, CompactOptions, DB, Options};

use super::bounds::{first_excluded, first_included};
use super::{column, options};
use crate::row_rewriter::{Occasion, RewriterCell};
use crate::{EngineError, ScanRange, Space};

const NAME: &std::ffi::CStr = c"rekindle.rows";

/// The rewriter of a column family, and the merges that RocksDB starts by itself.
#[derive(Default)]
pub(super) struct Rewriting {
    pub(super) rewriter: RewriterCell,
    merges_begun: AtomicU64,
    merges_ended: AtomicU64,
}

impl Rewriting {
    /// Rewrites the files with pairs of `range`. Flushes the memtables first if they have some.
    pub(super) fn compact(&self, db: &DB, space: Space, range: ScanRange<'_>) {
        let ended = self.merges_ended.load(Ordering::SeqCst);
        compact(db, space, range, BottommostLevelCompaction::ForceOptimized);
        // RocksDB leaves out files that were written since the call began. Some of them may be results of other merges.
        if self.merges_begun.load(Ordering::SeqCst) > ended {
            compact(db, space, range, BottommostLevelCompaction::Force);
        }
    }
}

/// The state of the factory of filters.
struct Factory {
    rewriting: Arc<Rewriting>,
}

/// The state of the filter of one compaction. Only one thread uses it.
struct Filter {
    rewriting: Arc<Rewriting>,
    is_requested: bool,
    /// The last new value. RocksDB copies it when the callback returns.
    rewritten: Bytes,
}

/// Has compactions of a column family that is opened with `options` give its rows to the rewriter.
pub(super) fn filter(options: &mut Options, rewriting: Arc<Rewriting>) {
    let state = Box::into_raw(Box::new(Factory { rewriting })).cast::<c_void>();
    // SAFETY: each callback matches its signature. `state` is a `Factory` that any thread may use and that has no other
    // owner; RocksDB calls `forget_factory` once, when the last of the options and column families that share the
    // factory is gone. The options own the factory from here on.
    unsafe {
        let factory = ffi::rocksdb_compactionfilterfactory_create(
            state,
            Some(forget_factory),
            Some(create_filter),
            Some(name),
        );
        ffi::rocksdb_options_set_compaction_filter_factory(options.as_raw_ptr(), factory);
    }
}

fn compact(db: &DB, space: Space, range: ScanRange<'_>, bottommost: BottommostLevelCompaction) {
    let mut options = CompactOptions::default();
    options.set_exclusive_manual_compaction(false);
    options.set_bottommost_level_compaction(bottommost);
    let (start, end) = (first_included(range.0), first_excluded(range.1));
    db.compact_range_cf_opt(column(db, space), start, end, &options);
}

/// Writes all large values of a space that are in use to new files, so that the files that have them now are deleted.
pub(super) fn rewrite_large_values(db: &DB, space: Space) -> Result<(), EngineError> {
    let column = column(db, space);
    db.set_options_cf(column, &[("blob_garbage_collection_age_cutoff", "1.0")])?;
    let whole = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    compact(db, space, whole, BottommostLevelCompaction::Force);
    let share = options::LARGE_VALUE_AGE_CUTOFF.to_string();
    Ok(db.set_options_cf(column, &[("blob_garbage_collection_age_cutoff", &share)])?)
}

/// Ends running calls of [`Rewriting::compact`] soon, and lets later ones do nothing.
pub(super) fn cancel(db: &DB) {
    // SAFETY: the database is open as long as `db` is borrowed.
    unsafe { ffi::rocksdb_disable_manual_compaction(db.as_raw_ptr()) };
}

unsafe extern "C" fn create_filter(
    state: *mut c_void,
    context: *mut ffi::rocksdb_compactionfiltercontext_t,
) -> *mut ffi::rocksdb_compactionfilter_t {
    // SAFETY: `state` is the factory of `filter`, which RocksDB keeps until it has called `forget_factory`, and `context`
    // is valid during the call.
    let (factory, is_requested) = unsafe {
        let is_manual = ffi::rocksdb_compactionfiltercontext_is_manual_compaction(context);
        (&*state.cast::<Factory>(), is_manual != 0)
    };
    // A panic must not reach C++; the panic hook has already reported it.
    let is_active = catch_unwind(AssertUnwindSafe(|| factory.rewriting.rewriter.is_active()));
    if !is_active.unwrap_or(false) {
        return std::ptr::null_mut();
    }
    let rewriting = Arc::clone(&factory.rewriting);
    if !is_requested {
        rewriting.merges_begun.fetch_add(1, Ordering::SeqCst);
    }
    let filter = Box::new(Filter { rewriting, is_requested, rewritten: Bytes::new() });
    let state = Box::into_raw(filter).cast::<c_void>();
    // SAFETY: as in `filter`; `forget_filter` frees `state`, and RocksDB owns the filter that is returned.
    unsafe { ffi::rocksdb_compactionfilter_create(state, Some(forget_filter), Some(filter_row), Some(name)) }
}

/// Always returns zero: the pair stays, with a new value if `value_changed` is set.
#[allow(clippy::too_many_arguments, reason = "the signature of RocksDB's callback")]
unsafe extern "C" fn filter_row(
    state: *mut c_void,
    level: c_int,
    key: *const c_char,
    key_bytes: usize,
    value: *const c_char,
    value_bytes: usize,
    new_value: *mut *mut c_char,
    new_value_bytes: *mut usize,
    value_changed: *mut c_uchar,
) -> c_uchar {
    // SAFETY: `state` is a filter of `create_filter`, and only this thread uses it. The key and the value are valid
    // during the call.
    let (filter, key, value) =
        unsafe { (&mut *state.cast::<Filter>(), slice(key, key_bytes), slice(value, value_bytes)) };
    let occasion = match (filter.is_requested, level) {
        (true, _) => Occasion::Requested,
        // The first merge after a flush decides how fast rows can be written.
        (false, ..=0) => return 0,
        (false, _) => Occasion::Settling,
    };
    // A panic must not reach C++; the panic hook has already reported it.
    let rewritten =
        catch_unwind(AssertUnwindSafe(|| filter.rewriting.rewriter.rewrite(key, value, occasion)));
    if let Ok(Some(rewritten)) = rewritten {
        filter.rewritten = rewritten;
        // SAFETY: RocksDB gives places for all three, and copies the value before it uses the filter again.
        unsafe {
            *new_value = filter.rewritten.as_ptr().cast_mut().cast::<c_char>();
            *new_value_bytes = filter.rewritten.len();
            *value_changed = 1;
        }
    }
    0
}

/// # Safety
///
/// `start` must have `bytes` readable bytes, if there are any, until the slice is no longer used.
unsafe fn slice<'a>(start: *const c_char, bytes: usize) -> &'a [u8] {
    if start.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }
}

unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn forget_factory(state: *mut c_void) {
    // SAFETY: `state` came from `Box::into_raw` in `filter`, and this is called once.
    drop(unsafe { Box::from_raw(state.cast::<Factory>()) });
}

unsafe extern "C" fn forget_filter(state: *mut c_void) {
    // SAFETY: `state` came from `Box::into_raw` in `create_filter`, and this is called once.
    let filter = unsafe { Box::from_raw(state.cast::<Filter>()) };
    if !filter.is_requested {
        filter.rewriting.merges_ended.fetch_add(1, Ordering::SeqCst);
    }
}
