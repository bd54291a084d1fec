//! The state of the recorder: the journal and the inodes of files inside the directory.

use std::collections::HashSet;
use std::env;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libc::{c_int, c_void};
use powercut::journal::{Record, encode};

const ROOT: &str = "REKINDLE_POWERCUT_ROOT";
const JOURNAL: &str = "REKINDLE_POWERCUT_JOURNAL";

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// Runs when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// The recorder of this process.
pub(crate) struct Recorder {
    /// Absolute, without a slash at its end.
    pub(crate) root: Vec<u8>,
    journal: Mutex<Journal>,
}

/// The open journal. Changes are carried out while it is locked.
pub(crate) struct Journal {
    fd: c_int,
    /// Its length in bytes.
    len: u64,
    /// Files that were opened inside the directory: device and inode.
    inodes: HashSet<(u64, u64)>,
}

extern "C" fn start() {
    let (Some(root), Some(journal)) = (env::var_os(ROOT), env::var_os(JOURNAL)) else { return };
    // Child processes do not change the directory; if they did, the comparison would find it.
    // SAFETY: no other thread runs yet.
    unsafe { env::remove_var("LD_PRELOAD") };
    let Ok(path) = CString::new(journal.into_vec()) else { return };
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: a system call with a text that ends with a zero.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644) } as c_int;
    let Some(found) = stat(fd) else { fail("the journal cannot be opened") };
    let journal = Journal { fd, len: found.st_size as u64, inodes: HashSet::new() };
    let recorder = Recorder { root: root.into_vec(), journal: Mutex::new(journal) };
    if RECORDER.set(recorder).is_err() {
        fail("the recorder is loaded twice");
    }
}

/// The recorder, if the process is recorded.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

impl Recorder {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the process because of a change that has no record.
    pub(crate) fn refuse(&self, what: &str, path: &str) -> ! {
        let what = format!("{what} of {path:?}");
        self.lock().append(&Record::Refused { what: what.clone() });
        fail(&what)
    }

    /// Ends the process if the file is one of the directory.
    pub(crate) fn refuse_file(&self, what: &str, fd: c_int) {
        if self.file(fd).is_some() {
            self.refuse(what, &crate::paths::of_open(&self.root, fd).unwrap_or_default());
        }
    }

    /// The regular file that is open here, if it is one of the directory.
    pub(crate) fn file(&self, fd: c_int) -> Option<libc::stat> {
        let found = regular(fd)?;
        self.lock().has(&found).then_some(found)
    }
}

impl Journal {
    /// Whether the file was opened inside the directory.
    pub(crate) fn has(&self, file: &libc::stat) -> bool {
        self.inodes.contains(&(file.st_dev, file.st_ino))
    }

    pub(crate) fn add(&mut self, file: &libc::stat) {
        self.inodes.insert((file.st_dev, file.st_ino));
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn append(&mut self, record: &Record) {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            // SAFETY: the bytes live as long as the call.
            let count = unsafe { libc::syscall(libc::SYS_write, self.fd, rest.as_ptr(), rest.len()) };
            if count <= 0 {
                fail("the journal cannot be written");
            }
            written += count as usize;
        }
        self.len += bytes.len() as u64;
    }

    /// Records a change, carries it out, and records whether it failed. Keeps `errno`.
    pub(crate) fn perform(&mut self, record: &Record, call: impl FnOnce() -> i64) -> i64 {
        self.append(record);
        let result = call();
        if result < 0 {
            self.note(&Record::Failed);
        }
        result
    }

    /// Appends a record and keeps `errno`.
    pub(crate) fn note(&mut self, record: &Record) {
        // SAFETY: the location belongs to this thread.
        let errno = unsafe { *libc::__errno_location() };
        self.append(record);
        // SAFETY: the same.
        unsafe { *libc::__errno_location() = errno };
    }
}

/// What `fstat` says of an open file.
pub(crate) fn stat(fd: c_int) -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure when it returns 0.
    let is_found = unsafe { libc::fstat(fd, found.as_mut_ptr()) } == 0;
    // SAFETY: it has been filled.
    is_found.then(|| unsafe { found.assume_init() })
}

/// The same, if it is a regular file.
pub(crate) fn regular(fd: c_int) -> Option<libc::stat> {
    stat(fd).filter(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Ends the process with a message.
pub(crate) fn fail(what: &str) -> ! {
    let text = format!("power-cut recorder: {what}\n");
    // SAFETY: the bytes live as long as the call; `abort` is always allowed.
    unsafe {
        libc::syscall(libc::SYS_write, 2, text.as_ptr().cast::<c_void>(), text.len());
        libc::abort()
    }
}
