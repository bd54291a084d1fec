//! A listener for RocksDB's flushes, including those started by RocksDB itself.
//!
//! When RocksDB announces a flush it has already fixed which memtables it will write, and it holds none of its locks.
//! It writes them after the listener returns. All column families are flushed together in one job, which is announced
//! once per column family. A flush that is not announced, because the database is being closed, is rolled back.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, Options};

use crate::pre_flush::Hook;

/// The listener's state. RocksDB keeps it as long as the listener.
struct Listener {
    hook: Arc<Hook>,
    // The last job for which the hook has run.
    done: AtomicI64,
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
    }
}

/// Runs `hook` before every flush of a database that is opened with `options`.
pub(super) fn listen(options: &mut Options, hook: Arc<Hook>) {
    let listener = Box::new(Listener { hook, done: AtomicI64::new(-1) });
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
            Some(flush_ignored),
            Some(compaction_ignored),
            Some(compaction_ignored),
            Some(subcompaction_ignored),
            Some(subcompaction_ignored),
            Some(ingestion_ignored),
            Some(error_ignored),
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

unsafe extern "C" fn flush_ignored(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_flushjobinfo_t,
) {
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

unsafe extern "C" fn error_ignored(_: *mut c_void, _: u32, _: *mut ffi::rocksdb_status_ptr_t) {}

unsafe extern "C" fn stall_ignored(_: *mut c_void, _: *const ffi::rocksdb_writestallinfo_t) {}

unsafe extern "C" fn memtable_ignored(_: *mut c_void, _: *const ffi::rocksdb_memtableinfo_t) {}
