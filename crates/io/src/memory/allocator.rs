//! How long the allocator keeps freed memory.

#![allow(unsafe_code)]

#[cfg(feature = "jemalloc")]
mod configuration {
    use std::ffi::c_char;

    /// The settings of jemalloc at the start of the process (jemalloc(3), "TUNING"). The environment variable
    /// `MALLOC_CONF` is read later and takes precedence.
    ///
    /// Freed memory is kept for a minute instead of ten seconds, because writes soon allocate as much again. Free runs
    /// of 8 MB are returned at once, as by default: `docs/decisions/0043-memory-reuse.md`. A thread keeps none for itself
    /// that has 16 KB or more, the size of a block of the engine: a hundred threads would keep up to 2 MB each
    /// (`docs/decisions/0063-memory-accountant.md`).
    const SETTINGS: &[u8] = b"dirty_decay_ms:60000,tcache_max:14336\0";

    /// A pointer to a string that ends with a zero.
    #[repr(transparent)]
    pub struct Configuration(*const c_char);

    // SAFETY: it points to a constant, which is never written.
    unsafe impl Sync for Configuration {}

    /// Where jemalloc finds its settings.
    // SAFETY: the name and the type are as jemalloc(3) defines them: a pointer to a string that ends with a zero.
    #[unsafe(export_name = "malloc_conf")]
    pub static CONFIGURATION: Configuration = Configuration(SETTINGS.as_ptr().cast());
}

/// Returns the allocator's freed memory to the system. An allocator keeps freed pages for a while, separately
/// in each of its arenas. So queries that follow one another on different threads would together keep several times the
/// memory that any of them may hold.
///
/// Makes a system call for each run of free pages, so it is called only after a query that held much, and when the process
/// comes close to its limit.
pub fn return_freed() {
    #[cfg(feature = "jemalloc")]
    {
        use std::ptr::null_mut;
        // SAFETY: the name ends with a zero, and this control neither reads nor writes a value.
        // 4096 stands for all arenas (jemalloc(3), `arena.<i>.purge`). A refusal changes nothing.
        unsafe {
            tikv_jemalloc_sys::mallctl(c"arena.4096.purge".as_ptr(), null_mut(), null_mut(), null_mut(), 0);
        }
    }
}

/// Bytes of freed memory that the allocator keeps and [`return_freed`] returns. Zero with another allocator.
#[must_use]
pub fn freed_bytes() -> u64 {
    #[cfg(feature = "jemalloc")]
    {
        // The figures are those of the last epoch.
        set(c"epoch", 1);
        let [page, dirty] = [c"arenas.page", c"stats.arenas.4096.pdirty"].map(get);
        (page as u64) * (dirty as u64)
    }
    #[cfg(not(feature = "jemalloc"))]
    0
}

/// Reads a control of the type `size_t`; zero if there is none of this name.
#[cfg(feature = "jemalloc")]
fn get(name: &std::ffi::CStr) -> usize {
    let (mut value, mut bytes) = (0_usize, size_of::<usize>());
    // SAFETY: the name ends with a zero, and `value` has the size that `bytes` says. A control of another size is refused.
    let refused = unsafe {
        let (value, bytes) = (&raw mut value, &raw mut bytes);
        tikv_jemalloc_sys::mallctl(name.as_ptr(), value.cast(), bytes, std::ptr::null_mut(), 0)
    };
    if refused == 0 { value } else { 0 }
}

/// Writes a control of the type `uint64_t`, if there is one of this name.
#[cfg(feature = "jemalloc")]
fn set(name: &std::ffi::CStr, mut value: u64) {
    use std::ptr::null_mut;
    // SAFETY: the name ends with a zero, and `value` has the given size. A control of another size is refused.
    unsafe {
        let value = (&raw mut value).cast();
        tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), value, size_of::<u64>());
    }
}
