//! The functions that change the bytes of files.

use std::slice;

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use powercut::journal::Record;

use crate::recorder::{Journal, recorder, regular, stat};

/// Carries out a write to a file of the directory with its record; `None` for another file.
fn record_write(
    fd: c_int,
    offset: Option<off_t>,
    data: impl Fn() -> Vec<u8>,
    call: impl Fn() -> i64,
) -> Option<i64> {
    let recorder = recorder()?;
    regular(fd)?;
    let mut journal = recorder.lock();
    // Its length is known only now.
    let file = regular(fd).filter(|file| journal.has(file))?;
    // SAFETY: a system call without memory.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) } as c_int;
    let at = match offset {
        _ if flags & libc::O_APPEND != 0 => file.st_size,
        Some(offset) => offset,
        // SAFETY: the same.
        None => unsafe { libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR) },
    };
    let data = data();
    let wanted = data.len() as i64;
    let record = Record::Write { inode: file.st_ino, offset: at as u64, data };
    let written = journal.perform(&record, call);
    if (0..wanted).contains(&written) {
        journal.note(&Record::Short { len: written as u64 });
    }
    if flags & libc::O_DSYNC != 0 && written >= 0 {
        let upto = journal.len();
        journal.note(&Record::Synced { inode: file.st_ino, upto });
    }
    Some(written)
}

/// # Safety
/// `data` has `count` bytes.
unsafe fn copied(data: *const c_void, count: size_t) -> Vec<u8> {
    match count {
        0 => Vec::new(),
        // SAFETY: the caller has these bytes.
        _ => unsafe { slice::from_raw_parts(data.cast::<u8>(), count) }.to_vec(),
    }
}

/// # Safety
/// As `write(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, data: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller has these bytes, also below.
    let call = || unsafe { libc::syscall(libc::SYS_write, fd, data, count) };
    // SAFETY: the same.
    let bytes = || unsafe { copied(data, count) };
    record_write(fd, None, bytes, call).unwrap_or_else(call) as ssize_t
}

/// # Safety
/// As `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, data: *const c_void, count: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller has these bytes, also below.
    let call = || unsafe { libc::syscall(libc::SYS_pwrite64, fd, data, count, offset) };
    // SAFETY: the same.
    let bytes = || unsafe { copied(data, count) };
    record_write(fd, Some(offset), bytes, call).unwrap_or_else(call) as ssize_t
}

/// # Safety
/// As `pwrite(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, data: *const c_void, count: size_t, offset: off_t) -> ssize_t {
    // SAFETY: both names have the same contract.
    unsafe { pwrite(fd, data, count, offset) }
}

/// # Safety
/// As `writev(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller has these parts, also below.
    let call = || unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) };
    let bytes = || {
        // SAFETY: the same.
        let parts = unsafe { slice::from_raw_parts(parts, count.max(0) as usize) };
        // SAFETY: the same, of each part.
        parts.iter().flat_map(|part| unsafe { copied(part.iov_base, part.iov_len) }).collect()
    };
    record_write(fd, None, bytes, call).unwrap_or_else(call) as ssize_t
}

/// # Safety
/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    // SAFETY: a system call without memory.
    let call = || unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) };
    record_resize(fd, |_| len as u64, call).unwrap_or_else(call) as c_int
}

/// # Safety
/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    // SAFETY: both names have the same contract.
    unsafe { ftruncate(fd, len) }
}

/// # Safety
/// As `fallocate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    // SAFETY: a system call without memory.
    let call = || unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, len) };
    let result = match (mode, recorder()) {
        // Space beyond the end changes neither the bytes nor the length.
        (libc::FALLOC_FL_KEEP_SIZE, _) | (_, None) => call(),
        (0, _) => {
            let resized = |file: &libc::stat| file.st_size.max(offset + len) as u64;
            record_resize(fd, resized, call).unwrap_or_else(call)
        }
        (_, Some(recorder)) => {
            recorder.refuse_file("fallocate", fd);
            call()
        }
    };
    result as c_int
}

/// # Safety
/// As `fallocate(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    // SAFETY: both names have the same contract.
    unsafe { fallocate(fd, mode, offset, len) }
}

fn record_resize(fd: c_int, len: impl Fn(&libc::stat) -> u64, call: impl Fn() -> i64) -> Option<i64> {
    let recorder = recorder()?;
    let mut journal = recorder.lock();
    let file = regular(fd).filter(|file| journal.has(file))?;
    Some(journal.perform(&Record::Resize { inode: file.st_ino, len: len(&file) }, call))
}

/// Records that the file at `path`, which was opened, is the one with this descriptor.
pub(crate) fn opened(journal: &mut Journal, path: String, fd: c_int) {
    if let Some(file) = stat(fd).filter(|file| file.st_mode & libc::S_IFMT == libc::S_IFREG) {
        journal.add(&file);
        journal.note(&Record::Open { path, inode: file.st_ino });
    }
}
