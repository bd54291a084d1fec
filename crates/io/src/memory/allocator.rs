//! How long the allocator keeps freed memory.

#![allow(unsafe_code)]

#[cfg(feature = "jemalloc")]
mod configuration {
    use std::ffi::c_char;

    /// What jemalloc is told when the process starts (jemalloc(3), "TUNING"). The environment variable `MALLOC_CONF` is
    /// read later and wins.
    ///
    /// Freed memory is kept for a minute, not ten seconds: what writes took is wanted again. Where 8 MB are free together they
    /// go back at once, as by default: `docs/decisions/0043-memory-reuse.md`.
    const SETTINGS: &[u8] = b"dirty_decay_ms:60000\0";

    /// A text that ends with a zero.
    #[repr(transparent)]
    pub struct Configuration(*const c_char);

    // SAFETY: it points to a constant, which nobody writes to.
    unsafe impl Sync for Configuration {}

    /// Where jemalloc finds its settings.
    // SAFETY: the name and the type are those of jemalloc(3): a pointer to a text that ends with a zero.
    #[unsafe(export_name = "malloc_conf")]
    pub static CONFIGURATION: Configuration = Configuration(SETTINGS.as_ptr().cast());
}

/// Returns to the system what the allocator keeps for later. An allocator keeps freed pages for
/// a while, each of its arenas its own, so that queries that follow one another on different threads
/// would together keep several times what any of them may hold.
///
/// A system call for each run of free pages: for after a query that held much.
pub(super) fn purge() {
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
