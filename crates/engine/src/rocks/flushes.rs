//! A listener for RocksDB's flushes, including those started by RocksDB itself. It also counts the bytes that flushes and
//! compactions write.
//!
//! When RocksDB announces a flush it has already fixed which memtables it will write, and it holds none of its locks.
//! It writes them after the listener returns. All column families are flushed together in one job, which is announced
//! once per column family. A flush that is not announced, because the database is being closed, is rolled back.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, DB, FlushOptions, Options};

use super::damage::Damage;
use super::split_points::take_error;
use super::{column, is_full};
use crate::full_disk::FullDisk;
use crate::pre_flush::Hook;
use crate::{EngineError, Space};

/// The listener's state. RocksDB keeps it as long as the listener.
struct Listener {
    hook: Arc<Hook>,
    // The last job for which the hook has run.
    done: AtomicI64,
    written: Arc<WrittenBytes>,
    damage: Arc<Damage>,
    full_disk: Arc<FullDisk>,
}

/// Bytes that RocksDB has written since the start, by reason.
#[derive(Debug, Default)]
pub(super) struct WrittenBytes {
    pub flush: AtomicU64,
    pub compaction: AtomicU64,
    /// Separately stored large values, when they are first written.
    pub large_values: AtomicU64,
}

impl Listener {
    /// A flush job begins. It cannot be refused.
    fn begin(&self, job: c_int) {
        if self.done.load(Ordering::Relaxed) == i64::from(job) {
            return;
        }
        self.done.store(i64::from(job), Ordering::Relaxed);
        // A panic must not reach C++; the panic hook has already reported it.
        let ran = catch_unwind(AssertUnwindSafe(|| self.hook.run()));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => tracing::warn!("rows may become durable before their log: {cause}"),
            Err(_) => tracing::warn!("rows may become durable before their log: the hook panicked"),
        }
        io::failpoint("engine.flush");
    }
}

/// Makes everything written before this call durable. Fails, and makes nothing durable, when the hook fails.
pub(super) fn flush(db: &DB, hook: &Hook) -> Result<(), EngineError> {
    // The listener runs the hook again, for batches written in between; but there a failure could not stop the flush.
    hook.run()?;
    let columns = Space::ALL.map(|space| column(db, space));
    let mut options = FlushOptions::default();
    options.set_wait(true);
    Ok(db.flush_cfs_opt(&columns, &options)?)
}

/// Runs `hook` before every flush of a database that is opened with `options`, counts what it writes in `written`, and
/// notes damage that merges meet in `damage`, and a full disk in
/// `full_disk`, so that the database does not refuse writes because of them.
pub(super) fn listen(
    options: &mut Options,
    hook: Arc<Hook>,
    written: Arc<WrittenBytes>,
    damage: Arc<Damage>,
    full_disk: Arc<FullDisk>,
) {
    let listener = Box::new(Listener { hook, done: AtomicI64::new(-1), written, damage, full_disk });
    let state = Box::into_raw(listener).cast::<c_void>();
    // SAFETY: RocksDB calls every callback without checking for null, so all are given, and each matches its signature.
    // `state` is a `Listener` that any thread may use and that has no other owner. `forget` frees it; RocksDB calls
    // that once, when the last of the options and databases that share the listener is gone. The options own the
    // listener from here on.
    unsafe {
        let listener = ffi::rocksdb_eventlistener_create(
            state,
            Some(forget),
            Some(flush_begins),
            Some(flush_completed),
            Some(compaction_ignored),
            Some(compaction_completed),
            Some(subcompaction_ignored),
            Some(subcompaction_ignored),
            Some(ingestion_ignored),
            Some(background_error),
            Some(stall_ignored),
            Some(memtable_ignored),
        );
        ffi::rocksdb_options_add_eventlistener(options.as_raw_ptr(), listener);
    }
}

unsafe extern "C" fn flush_begins(
    state: *mut c_void,
    _: *mut ffi::rocksdb_t,
    info: *const ffi::rocksdb_flushjobinfo_t,
) {
    // SAFETY: `state` is the listener of `listen`, which RocksDB keeps until it has called `forget`, and `info` is valid
    // during the call.
    let (listener, job) = unsafe { (&*state.cast::<Listener>(), ffi::rocksdb_flushjobinfo_job_id(info)) };
    listener.begin(job);
}

unsafe extern "C" fn forget(state: *mut c_void) {
    // SAFETY: `state` came from `Box::into_raw` in `listen`, and this is called once.
    drop(unsafe { Box::from_raw(state.cast::<Listener>()) });
}

unsafe extern "C" fn flush_completed(
    state: *mut c_void,
    _: *mut ffi::rocksdb_t,
    info: *const ffi::rocksdb_flushjobinfo_t,
) {
    // SAFETY: as in `flush_begins`. The path has `bytes` bytes and is valid during the call.
    let (listener, path, blob) = unsafe {
        let mut bytes = 0;
        let path = ffi::rocksdb_flushjobinfo_file_path(info, &raw mut bytes);
        let path = match path.is_null() {
            true => &[][..],
            false => std::slice::from_raw_parts(path.cast::<u8>(), bytes),
        };
        (&*state.cast::<Listener>(), path, ffi::rocksdb_flushjobinfo_oldest_blob_file_number(info))
    };
    io::failpoint("engine.flushed");
    let path = Path::new(OsStr::from_bytes(path));
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    listener.written.flush.fetch_add(size(path), Ordering::Relaxed);
    if blob > 0 {
        let blob = path.with_file_name(format!("{blob:06}.blob"));
        listener.written.large_values.fetch_add(size(&blob), Ordering::Relaxed);
    }
}

unsafe extern "C" fn compaction_completed(
    state: *mut c_void,
    _: *mut ffi::rocksdb_t,
    info: *const ffi::rocksdb_compactionjobinfo_t,
) {
    // SAFETY: as in `flush_begins`.
    let (listener, bytes) =
        unsafe { (&*state.cast::<Listener>(), ffi::rocksdb_compactionjobinfo_total_output_bytes(info)) };
    io::failpoint("engine.compacted");
    listener.written.compaction.fetch_add(bytes, Ordering::Relaxed);
}

unsafe extern "C" fn compaction_ignored(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_compactionjobinfo_t,
) {
}

unsafe extern "C" fn subcompaction_ignored(_: *mut c_void, _: *const ffi::rocksdb_subcompactionjobinfo_t) {}

unsafe extern "C" fn ingestion_ignored(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_externalfileingestioninfo_t,
) {
}

/// RocksDB's number for errors of compactions (`BackgroundErrorReason`).
const REASON_FLUSH: u32 = 0;
const REASON_COMPACTION: u32 = 1;

/// An error in the background, after which RocksDB refuses writes unless it is reset here. The input of a compaction stays as
/// it is when the compaction fails, so damage in it is no reason to refuse writes.
unsafe extern "C" fn background_error(
    state: *mut c_void,
    reason: u32,
    status: *mut ffi::rocksdb_status_ptr_t,
) {
    if !matches!(reason, REASON_FLUSH | REASON_COMPACTION) {
        return;
    }
    let mut error: *mut c_char = std::ptr::null_mut();
    // SAFETY: as in `flush_begins`; the status is valid during the call, and its text is handed over.
    let (listener, detail) = unsafe {
        ffi::rocksdb_status_ptr_get_error(status, &raw mut error);
        (&*state.cast::<Listener>(), take_error(error))
    };
    let Some(detail) = detail else { return };
    let is_full = is_full(&detail);
    if is_full {
        listener.full_disk.note_failed();
    }
    // RocksDB itself continues after a flush for which there was no space, when there is space.
    if reason != REASON_COMPACTION || !(is_full || detail.starts_with("Corruption")) {
        return;
    }
    // SAFETY: the status is valid during the call.
    unsafe { ffi::rocksdb_reset_status(status) };
    if !is_full {
        // A panic must not reach C++; the panic hook has already reported it.
        let _reported = catch_unwind(AssertUnwindSafe(|| listener.damage.merge_failed(&detail)));
    }
}

unsafe extern "C" fn stall_ignored(_: *mut c_void, _: *const ffi::rocksdb_writestallinfo_t) {}

unsafe extern "C" fn memtable_ignored(_: *mut c_void, _: *const ffi::rocksdb_memtableinfo_t) {}
