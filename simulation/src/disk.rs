//! A slow disk: simulated files whose syncs take time and may be interrupted meanwhile.

use std::io::Result;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io::sim::{Hang, SimFiles, SimRandom, is_task};
use io::{File, Files, Lock, task};
use parking_lot::Mutex;

/// How often a task that waits for a hanging disk checks the disk.
const HANG_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A simulated disk and how slow it is.
#[derive(Clone)]
pub struct Disk {
    pub files: SimFiles,
    random: SimRandom,
    sync_us_most: Arc<AtomicU64>,
    hangs: Arc<Mutex<Option<Hang>>>,
}

impl Disk {
    /// An empty disk; delays and faults are drawn from `random`.
    #[must_use]
    pub fn new(random: SimRandom, seed: u64) -> Disk {
        Disk {
            files: SimFiles::new(seed),
            random,
            sync_us_most: Arc::new(AtomicU64::new(2000)),
            hangs: Arc::default(),
        }
    }

    /// Sets the longest time of a sync.
    pub fn set_sync_delay(&self, most: Duration) {
        self.sync_us_most.store(most.as_micros() as u64, Ordering::Relaxed);
    }

    /// Makes its operations hang, or ends that.
    pub fn hang(&self, hangs: Option<Hang>) {
        *self.hangs.lock() = hangs;
    }

    /// Ends a full or hanging state, and cancels a failure that has not happened.
    pub fn repair(&self) {
        self.files.fill(false);
        self.files.cancel_fault();
        self.hang(None);
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.files.is_full()
    }

    fn wait_while(&self, hangs: &[Hang]) {
        // See `wait` for `is_task`.
        while is_task() && self.hangs.lock().is_some_and(|hang| hangs.contains(&hang)) {
            task::sleep(HANG_POLL_INTERVAL);
        }
    }

    fn wait(&self) {
        // Work on the network thread does not wait for the disk; see `Receiver::may_adopt`.
        if is_task() {
            task::sleep(Duration::from_micros(self.random.below(self.sync_us_most.load(Ordering::Relaxed))));
        }
    }
}

impl Files for Disk {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.files.create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile { file: self.files.create(path)?, disk: self.clone() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(SlowFile { file: self.files.open(path)?, disk: self.clone() }))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.read(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        self.files.list(dir)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.wait();
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.files.lock(path)
    }
}

struct SlowFile {
    file: Arc<dyn File>,
    disk: Disk,
}

impl File for SlowFile {
    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.disk.wait_while(&[Hang::Everything]);
        self.file.append(bytes)
    }

    fn sync_data(&self) -> Result<()> {
        self.disk.wait_while(&[Hang::Everything, Hang::Syncs]);
        // The data may become durable long before the sync returns, or only then.
        if self.disk.random.one_in(2) {
            self.disk.wait();
            return self.file.sync_data();
        }
        let synced = self.file.sync_data();
        self.disk.wait();
        synced
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }

    fn uncache(&self, range: Range<u64>) {
        self.file.uncache(range);
    }
}
