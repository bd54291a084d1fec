//! The functions that change files without a record. They end the process when the file is one of the directory.

use std::ffi::CStr;
use std::mem::transmute;

use libc::{AT_FDCWD, FILE, c_char, c_int, c_uint, c_void, iovec, loff_t, mode_t, off_t, size_t, ssize_t};
use powercut::journal::Record;

use crate::paths::{inside, of_open};
use crate::recorder::recorder;

/// The diagnostic file of RocksDB, which no recovery reads.
const BUFFERED: &str = "LOG";

fn refuse_file(what: &str, fd: c_int) {
    if let Some(recorder) = recorder() {
        recorder.refuse_file(what, fd);
    }
}

/// # Safety
/// `path` is a text that ends with a zero.
unsafe fn refuse_path(what: &str, path: *const c_char) {
    let Some(recorder) = recorder() else { return };
    // SAFETY: the caller's text.
    if let Some(path) = unsafe { inside(&recorder.root, AT_FDCWD, path) } {
        recorder.refuse(what, &path);
    }
}

/// The function of libc with this name.
fn original(name: &CStr) -> *mut c_void {
    // SAFETY: a search by name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        crate::recorder::fail("libc lacks a function");
    }
    found
}

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if fd >= 0 && flags & libc::MAP_SHARED != 0 && protection & libc::PROT_WRITE != 0 {
        refuse_file("mmap", fd);
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) as *mut c_void }
}

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: both names have the same contract.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

/// # Safety
/// As `fdopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's text.
    if !unsafe { is_read_only(mode) }
        && let Some(recorder) = recorder()
        && let Some(file) = recorder.file(fd)
    {
        let path = of_open(&recorder.root, fd).unwrap_or_default();
        let name = path.rsplit('/').next().unwrap_or_default();
        if !name.starts_with(BUFFERED) {
            recorder.refuse("fdopen", &path);
        }
        recorder.lock().append(&Record::Buffered { inode: file.st_ino });
    }
    type Fdopen = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;
    // SAFETY: the function with this name has this type; the caller's arguments.
    unsafe { transmute::<*mut c_void, Fdopen>(original(c"fdopen"))(fd, mode) }
}

/// Whether a file with this mode of `fopen(3)` is only read.
///
/// # Safety
/// `mode` is a text that ends with a zero.
unsafe fn is_read_only(mode: *const c_char) -> bool {
    // SAFETY: the caller's text.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    mode.first() == Some(&b'r') && !mode.contains(&b'+')
}

/// # Safety
/// As `fopen(3)`.
unsafe fn open_buffered(name: &CStr, path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's text.
    if !unsafe { is_read_only(mode) } {
        // SAFETY: the same.
        unsafe { refuse_path("fopen", path) };
    }
    type Fopen = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
    // SAFETY: the functions with these names have this type; the caller's arguments.
    unsafe { transmute::<*mut c_void, Fopen>(original(name))(path, mode) }
}

/// # Safety
/// As `fopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe { open_buffered(c"fopen", path, mode) }
}

/// # Safety
/// As `fopen(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's arguments.
    unsafe { open_buffered(c"fopen64", path, mode) }
}

/// # Safety
/// As `pwritev2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    refuse_file("pwritev2", fd);
    // SAFETY: the caller's arguments. The offset has a second half, which is unused with 64 bits.
    unsafe { libc::syscall(libc::SYS_pwritev2, fd, parts, count, offset, 0, flags) as ssize_t }
}

/// # Safety
/// As `pwritev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    refuse_file("pwritev", fd);
    // SAFETY: the same.
    unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, offset, 0) as ssize_t }
}

/// # Safety
/// As `pwritev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: both names have the same contract.
    unsafe { pwritev(fd, parts, count, offset) }
}

/// # Safety
/// As `copy_file_range(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    refuse_file("copy_file_range", to);
    // SAFETY: the caller's arguments.
    unsafe {
        libc::syscall(libc::SYS_copy_file_range, from, from_offset, to, to_offset, len, flags) as ssize_t
    }
}

/// # Safety
/// As `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    refuse_file("sendfile", to);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as ssize_t }
}

/// # Safety
/// As `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: both names have the same contract.
    unsafe { sendfile(to, from, offset, count) }
}

/// # Safety
/// As `splice(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    refuse_file("splice", to);
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(libc::SYS_splice, from, from_offset, to, to_offset, len, flags) as ssize_t }
}

/// # Safety
/// As `posix_fallocate(3)`. Returns an error and does not set `errno`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
    refuse_file("posix_fallocate", fd);
    // SAFETY: a system call without memory.
    match unsafe { libc::syscall(libc::SYS_fallocate, fd, 0, offset, len) } {
        0 => 0,
        // SAFETY: the location belongs to this thread.
        _ => unsafe { *libc::__errno_location() },
    }
}

/// # Safety
/// As `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        refuse_path("truncate", path);
        libc::syscall(libc::SYS_truncate, path, len) as c_int
    }
}

/// # Safety
/// As `truncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: both names have the same contract.
    unsafe { truncate(path, len) }
}

/// # Safety
/// As `symlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        refuse_path("symlink", path);
        libc::syscall(libc::SYS_symlinkat, target, AT_FDCWD, path) as c_int
    }
}

/// # Safety
/// As `creat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { crate::names::open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}
