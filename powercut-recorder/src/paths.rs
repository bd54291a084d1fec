//! Paths of system calls, relative to the recorded directory.

use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use libc::{AT_FDCWD, c_char, c_int};

/// The path relative to `root` (an absolute path without a slash at its end), if it is inside. The root itself has the
/// empty path.
///
/// # Safety
/// `path` is null or a text that ends with a zero.
pub(crate) unsafe fn inside(root: &[u8], dir: c_int, path: *const c_char) -> Option<String> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's text is one of C.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if path.first() == Some(&b'/') {
        return relative(root, path);
    }
    let folder = match dir {
        AT_FDCWD => "/proc/self/cwd".to_owned(),
        fd => format!("/proc/self/fd/{fd}"),
    };
    let folder = fs::read_link(folder).ok()?;
    relative(root, &[folder.as_os_str().as_bytes(), b"/", path].concat())
}

/// The path of an open file or directory.
pub(crate) fn of_open(root: &[u8], fd: c_int) -> Option<String> {
    let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    relative(root, path.as_os_str().as_bytes())
}

// Nothing is allocated for another path: the allocator of the process may be opening a file.
fn relative(root: &[u8], path: &[u8]) -> Option<String> {
    let rest = path.strip_prefix(root)?;
    if !rest.is_empty() && rest[0] != b'/' {
        return None;
    }
    let text = String::from_utf8_lossy(rest);
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    Some(names.join("/"))
}
