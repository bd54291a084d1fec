//! Prefetching: has the processor load memory into its cache while it does something else. One of the two places in
//! this crate where `unsafe` is allowed.
#![allow(unsafe_code, reason = "a prefetch is an instruction of the processor")]

const LINE_BYTES: usize = 64;

/// Has the processor load the memory of `value` itself, not the memory it points to. The call changes nothing and does
/// not wait. Memory that is not read soon is loaded in vain and displaces other data from the processor's cache.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    let mut offset = 0;
    while offset < size_of_val(value) {
        prefetch_line(start.wrapping_add(offset));
        offset += LINE_BYTES;
    }
}

/// Has the processor load the cache line that contains `at`, whether anything is stored there or not.
#[inline]
pub(crate) fn prefetch_line(at: *const u8) {
    // SAFETY: a prefetch reads nothing. For an address that cannot be read it does nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
