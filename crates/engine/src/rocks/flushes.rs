//! What RocksDB tells of its flushes, those that it begins by itself among them.
//!
//! RocksDB has fixed which memtables it will write when it tells that a flush begins, holds none of its locks, and
//! writes them when the listener has returned. All column families are flushed together, in one job that is told of
//! once for each of them. A flush that is not told of, since the database is being closed, is rolled back.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use librocksdb_sys as ffi;
use rocksdb::{AsRawPtr, Options};

use crate::pre_flush::Hook;

/// What the listener works with. RocksDB keeps it as long as the listener.
struct Listener {
    hook: Arc<Hook>,
    // The last job for which the hook has run.
    done: AtomicI64,
}

impl Listener {
    /// A job begins that makes rows durable. It cannot be refused.
    fn begin(&self, job: c_int) {
        if self.done.load(Ordering::Relaxed) == i64::from(job) {
            return;
        }
        self.done.store(i64::from(job), Ordering::Relaxed);
        // A panic must not reach C++; it has been reported by now.
        let ran = catch_unwind(AssertUnwindSafe(|| self.hook.run()));
        match ran {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => tracing::warn!("rows may become durable without their log: {cause}"),
            Err(_) => tracing::warn!("rows may become durable without their log: it was not asked"),
        }
    }
}

/// Has `hook` run before any flush of a database that is opened with `options`.
pub(super) fn listen(options: &mut Options, hook: Arc<Hook>) {
    let listener = Box::new(Listener { hook, done: AtomicI64::new(-1) });
    let state = Box::into_raw(listener).cast::<c_void>();
    // SAFETY: every callback is given, since RocksDB calls them without a look, and matches its signature. `state` is a
    // `Listener` that any thread may use, and nobody else has it: it is freed by `forget`, which RocksDB calls once, when
    // the last of the options and databases that share the listener is gone. The options own the listener from here on.
    unsafe {
        let listener = ffi::rocksdb_eventlistener_create(
            state,
            Some(forget),
            Some(flush_begins),
            Some(flush_is_of_no_interest),
            Some(compaction_is_of_no_interest),
            Some(compaction_is_of_no_interest),
            Some(subcompaction_is_of_no_interest),
            Some(subcompaction_is_of_no_interest),
            Some(ingestion_is_of_no_interest),
            Some(error_is_of_no_interest),
            Some(stall_is_of_no_interest),
            Some(memtable_is_of_no_interest),
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

unsafe extern "C" fn flush_is_of_no_interest(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_flushjobinfo_t,
) {
}

unsafe extern "C" fn compaction_is_of_no_interest(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_compactionjobinfo_t,
) {
}

unsafe extern "C" fn subcompaction_is_of_no_interest(
    _: *mut c_void,
    _: *const ffi::rocksdb_subcompactionjobinfo_t,
) {
}

unsafe extern "C" fn ingestion_is_of_no_interest(
    _: *mut c_void,
    _: *mut ffi::rocksdb_t,
    _: *const ffi::rocksdb_externalfileingestioninfo_t,
) {
}

unsafe extern "C" fn error_is_of_no_interest(_: *mut c_void, _: u32, _: *mut ffi::rocksdb_status_ptr_t) {}

unsafe extern "C" fn stall_is_of_no_interest(_: *mut c_void, _: *const ffi::rocksdb_writestallinfo_t) {}

unsafe extern "C" fn memtable_is_of_no_interest(_: *mut c_void, _: *const ffi::rocksdb_memtableinfo_t) {}
