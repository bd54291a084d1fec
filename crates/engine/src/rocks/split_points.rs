//! Splits a range of keys into parts of equal size without reading it.
//!
//! RocksDB estimates the bytes between any two keys from its block indexes and memtables in some microseconds. Keys are
//! treated as binary fractions, and each split point is found by bisection.

use std::ffi::c_char;
use std::ptr;

use bytes::Bytes;
use librocksdb_sys as ffi;
use rocksdb::{AsColumnFamilyRef, AsRawPtr, DB, ReadOptions};

use super::bounds::{first_excluded, first_included};
use super::column;
use crate::{EngineError, ScanRange, Space};

/// Bytes after the common prefix of all keys that take part in the bisection.
const FRACTION_BYTES: usize = 16;
/// The size of a part may be off by one in this many.
const TOLERANCE: u64 = 16;

pub(super) fn find(
    db: &DB,
    snapshot: &rocksdb::Snapshot<'_>,
    space: Space,
    range: ScanRange<'_>,
    parts: usize,
) -> Result<Vec<Bytes>, EngineError> {
    let (Some(first), Some(last)) =
        (first_key(db, snapshot, space, range)?, last_key(db, snapshot, space, range)?)
    else {
        return Ok(Vec::new());
    };
    let parts = parts.max(1) as u64;
    let line = Line::between(&first, &last);
    let total_bytes = bytes_between(db, space, &first, &last)?;
    let mut points: Vec<Bytes> = Vec::new();
    let mut low = line.low;
    for part in 1..parts {
        let wanted_bytes = total_bytes * part / parts;
        let tolerance_bytes = total_bytes / parts / TOLERANCE;
        let mut high = line.high;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let found_bytes = bytes_between(db, space, &first, &line.key(middle))?;
            if found_bytes > wanted_bytes + tolerance_bytes {
                high = middle;
            } else {
                low = middle;
                if found_bytes + tolerance_bytes >= wanted_bytes {
                    break;
                }
            }
        }
        if let Some(key) = key_at_or_after(db, snapshot, space, range, &line.key(low))?
            && key[..] > first[..]
            && points.last().is_none_or(|cut| *cut < key)
        {
            points.push(key);
        }
    }
    Ok(points)
}

/// Keys as points on a line: the bytes after the common prefix, read as a binary fraction.
struct Line {
    prefix: Vec<u8>,
    low: u128,
    high: u128,
}

impl Line {
    fn between(first: &[u8], last: &[u8]) -> Line {
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let fraction = |key: &[u8]| {
            let mut bytes = [0; FRACTION_BYTES];
            let rest = &key[common..];
            let taken = rest.len().min(FRACTION_BYTES);
            bytes[..taken].copy_from_slice(&rest[..taken]);
            u128::from_be_bytes(bytes)
        };
        Line { prefix: first[..common].to_vec(), low: fraction(first), high: fraction(last) }
    }

    fn key(&self, point: u128) -> Vec<u8> {
        [&self.prefix[..], &point.to_be_bytes()].concat()
    }
}

fn first_key(
    db: &DB,
    snapshot: &rocksdb::Snapshot<'_>,
    space: Space,
    range: ScanRange<'_>,
) -> Result<Option<Bytes>, EngineError> {
    let mut iterator = snapshot.raw_iterator_cf_opt(column(db, space), bounded(range));
    iterator.seek_to_first();
    iterator.status()?;
    Ok(iterator.key().map(Bytes::copy_from_slice))
}

pub(super) fn last_key(
    db: &DB,
    snapshot: &rocksdb::Snapshot<'_>,
    space: Space,
    range: ScanRange<'_>,
) -> Result<Option<Bytes>, EngineError> {
    let mut iterator = snapshot.raw_iterator_cf_opt(column(db, space), bounded(range));
    iterator.seek_to_last();
    iterator.status()?;
    Ok(iterator.key().map(Bytes::copy_from_slice))
}

fn key_at_or_after(
    db: &DB,
    snapshot: &rocksdb::Snapshot<'_>,
    space: Space,
    range: ScanRange<'_>,
    position: &[u8],
) -> Result<Option<Bytes>, EngineError> {
    let mut iterator = snapshot.raw_iterator_cf_opt(column(db, space), bounded(range));
    iterator.seek(position);
    iterator.status()?;
    Ok(iterator.key().map(Bytes::copy_from_slice))
}

fn bounded(range: ScanRange<'_>) -> ReadOptions {
    let mut read = ReadOptions::default();
    if let Some(start) = first_included(range.0) {
        read.set_iterate_lower_bound(start);
    }
    if let Some(end) = first_excluded(range.1) {
        read.set_iterate_upper_bound(end);
    }
    read
}

/// About how many bytes lie between two keys, in files and in memory.
pub(super) fn bytes_between(db: &DB, space: Space, start: &[u8], end: &[u8]) -> Result<u64, EngineError> {
    // Files and memtables. The safe wrapper counts files only, but a table that was just loaded is in memory.
    const INCLUDE: u8 = 0b11;
    if start >= end {
        return Ok(0);
    }
    let mut bytes = 0_u64;
    let mut error: *mut c_char = ptr::null_mut();
    let (start_ptr, start_len) = (start.as_ptr().cast::<c_char>(), start.len());
    let (end_ptr, end_len) = (end.as_ptr().cast::<c_char>(), end.len());
    // SAFETY: `db` and its column live through the call; one range is announced and each array
    // holds one element; the key bytes outlive the call, which keeps none of the pointers.
    unsafe {
        ffi::rocksdb_approximate_sizes_cf_with_flags(
            db.as_raw_ptr(),
            column(db, space).inner(),
            1,
            &raw const start_ptr,
            &raw const start_len,
            &raw const end_ptr,
            &raw const end_len,
            INCLUDE,
            &raw mut bytes,
            &raw mut error,
        );
    }
    // SAFETY: the error is null or was set by the call above.
    match unsafe { take_error(error) } {
        None => Ok(bytes),
        Some(detail) => Err(EngineError::Io { detail }),
    }
}

/// The text of an error of the C interface, which is freed.
///
/// # Safety
///
/// `error` is null, or a C string that RocksDB allocated and handed over.
pub(super) unsafe fn take_error(error: *mut c_char) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    unsafe {
        let detail = std::ffi::CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        Some(detail)
    }
}
