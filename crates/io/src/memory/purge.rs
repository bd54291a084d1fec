//! Giving freed memory back to the system.

#![allow(unsafe_code)]

/// Returns to the system what the allocator keeps for later. An allocator keeps freed pages for
/// seconds, each of its arenas its own, so that queries that follow one another on different threads
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
