//! The functions that open, create, rename and remove files and directories.

use std::mem::MaybeUninit;

use libc::{AT_FDCWD, c_char, c_int, c_uint, mode_t};
use powercut::journal::Record;

use crate::bytes::opened;
use crate::paths::inside;
use crate::recorder::{Journal, Recorder, recorder};

/// # Safety
/// As `openat(2)`. The mode is read only with flags that need it; it is passed on in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) };
    // SAFETY: the same.
    let place =
        recorder().and_then(|recorder| Some((recorder, unsafe { inside(&recorder.root, dir, path) }?)));
    match place {
        Some((recorder, name)) => {
            let mut journal = recorder.lock();
            // SAFETY: the same.
            let found = unsafe { inode_at(dir, path) };
            open_inside(recorder, &mut journal, (name, flags), found, call)
        }
        None => call() as c_int,
    }
}

/// Opens a path inside the directory. `found` is the regular file that is there.
fn open_inside(
    recorder: &Recorder,
    journal: &mut Journal,
    (path, flags): (String, c_int),
    found: Option<libc::stat>,
    call: impl Fn() -> i64,
) -> c_int {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        journal.append(&Record::Refused { what: format!("O_TMPFILE in {path:?}") });
        crate::recorder::fail("O_TMPFILE");
    }
    let is_dir = flags & libc::O_DIRECTORY != 0 || path.is_empty();
    let fd = match &found {
        None if flags & libc::O_CREAT != 0 && !is_dir => {
            journal.perform(&Record::Create { path: path.clone() }, call)
        }
        Some(file) if flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY => {
            journal.note(&Record::Open { path: path.clone(), inode: file.st_ino });
            journal.perform(&Record::Resize { inode: file.st_ino, len: 0 }, call)
        }
        _ => call(),
    };
    if fd >= 0 && !is_dir {
        // The path of the file itself, in case it was reached through another one.
        let path = crate::paths::of_open(&recorder.root, fd as c_int).unwrap_or(path);
        opened(journal, path, fd as c_int);
    }
    fd as c_int
}

/// The regular file at a path.
///
/// # Safety
/// `path` is a text that ends with a zero.
unsafe fn inode_at(dir: c_int, path: *const c_char) -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure when it returns 0.
    let is_found = unsafe { libc::fstatat(dir, path, found.as_mut_ptr(), 0) } == 0;
    // SAFETY: it has been filled.
    let found = is_found.then(|| unsafe { found.assume_init() })?;
    Some(found).filter(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments are those of the other name.
    unsafe { openat(dir, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { openat(AT_FDCWD, path, flags, mode) }
}

/// Carries out a change of names with its record, if one of the paths is inside the directory. Both must be.
///
/// # Safety
/// The paths are texts that end with zeros.
unsafe fn record_names<const N: usize>(
    what: &str,
    paths: [(c_int, *const c_char); N],
    record: impl Fn([String; N]) -> Record,
    call: impl Fn() -> i64,
) -> c_int {
    let Some(recorder) = recorder() else { return call() as c_int };
    // SAFETY: the caller's texts.
    let places = paths.map(|(dir, path)| unsafe { inside(&recorder.root, dir, path) });
    let count = places.iter().flatten().count();
    let names = places.map(Option::unwrap_or_default);
    if count == 0 {
        return call() as c_int;
    }
    if count < N {
        recorder.refuse(what, &names.concat());
    }
    // The directory itself has no name in it.
    if names.iter().any(String::is_empty) {
        return call() as c_int;
    }
    recorder.lock().perform(&record(names), call) as c_int
}

/// # Safety
/// As `renameat2(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) };
    if flags & libc::RENAME_EXCHANGE != 0
        && let Some(recorder) = recorder()
    {
        // SAFETY: the same.
        if let Some(path) = unsafe { inside(&recorder.root, from_dir, from) } {
            recorder.refuse("an exchange", &path);
        }
    }
    // SAFETY: the same.
    unsafe {
        record_names(
            "rename",
            [(from_dir, from), (to_dir, to)],
            |[from, to]| Record::Rename { from, to },
            call,
        )
    }
}

/// # Safety
/// As `renameat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(from_dir, from, to_dir, to, 0) }
}

/// # Safety
/// As `rename(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { renameat2(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// # Safety
/// As `linkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) };
    // SAFETY: the same.
    unsafe {
        record_names("link", [(from_dir, from), (to_dir, to)], |[from, to]| Record::Link { from, to }, call)
    }
}

/// # Safety
/// As `link(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// # Safety
/// As `unlinkat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) };
    let record = |[path]: [String; 1]| match flags & libc::AT_REMOVEDIR {
        0 => Record::Unlink { path },
        _ => Record::RemoveDir { path },
    };
    // SAFETY: the same.
    unsafe { record_names("unlink", [(dir, path)], record, call) }
}

/// # Safety
/// As `unlink(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

/// # Safety
/// As `rmdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

/// # Safety
/// As `mkdirat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    let call = || unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) };
    // SAFETY: the same.
    unsafe { record_names("mkdir", [(dir, path)], |[path]| Record::CreateDir { path }, call) }
}

/// # Safety
/// As `mkdir(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}
