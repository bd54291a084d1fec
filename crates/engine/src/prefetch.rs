//! A hint to the processor: memory that is looked at soon is fetched while something else is done. One of the
//! two places of this crate where `unsafe` may stand.
#![allow(unsafe_code, reason = "a prefetch is an instruction of the processor")]

const LINE_BYTES: usize = 64;

/// Has the processor fetch the memory of `value` itself, not of what it refers to. It changes nothing and waits
/// for nothing; what is not looked at soon is fetched in vain and takes another's place in the processor's cache.
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    let mut offset = 0;
    while offset < size_of_val(value) {
        prefetch_line(start.wrapping_add(offset));
        offset += LINE_BYTES;
    }
}

/// The same for the line of memory that `at` lies in, whether anything is there or not.
#[inline]
pub(crate) fn prefetch_line(at: *const u8) {
    // SAFETY: a prefetch reads nothing: of an address that cannot be read it does nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
