//! The functions that make files and directories durable. A sync covers the changes that were complete when it began.

use libc::{c_int, c_long};
use powercut::journal::Record;

use crate::paths::of_open;
use crate::recorder::{Recorder, recorder, stat};

fn sync(number: c_long, fd: c_int) -> c_int {
    // SAFETY: a system call without memory.
    let call = || unsafe { libc::syscall(number, fd) } as c_int;
    let Some(recorder) = recorder() else { return call() };
    let upto = recorder.lock().len();
    let result = call();
    if result == 0 {
        record_sync(recorder, fd, upto);
    }
    result
}

fn record_sync(recorder: &Recorder, fd: c_int, upto: u64) {
    let Some(found) = stat(fd) else { return };
    match found.st_mode & libc::S_IFMT {
        libc::S_IFREG => {
            let mut journal = recorder.lock();
            if journal.has(&found) {
                journal.append(&Record::Synced { inode: found.st_ino, upto });
            }
        }
        libc::S_IFDIR => {
            if let Some(path) = of_open(&recorder.root, fd) {
                recorder.lock().append(&Record::DirSynced { path, upto });
            }
        }
        _ => {}
    }
}

/// # Safety
/// As `fsync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(libc::SYS_fsync, fd)
}

/// # Safety
/// As `fdatasync(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(libc::SYS_fdatasync, fd)
}
