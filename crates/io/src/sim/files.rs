//! A file system in memory that loses unsynced data on a power loss.
//!
//! There are two kinds of stops. The end of a process ([`SimFiles::end_process`]) loses its handles and locks, but no
//! written bytes. A power loss ([`SimFiles::crash`]) also loses unsynced names and a random part of unsynced bytes. The
//! seed determines the rest of an unsynced tail: nothing, a prefix of any length, or the full length with some sectors
//! still zero.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{SimRandom, tasks};
use crate::{File, Files, Lock};

/// The unit in which a disk writes.
const SECTOR_BYTES: usize = 512;
/// The interval at which an operation checks whether the disk still hangs.
const HANG_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A failure of the disk that a test requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next `sync_data` or `sync_dir` fails, and the bytes or names are not saved.
    Sync,
    /// The next append writes a random part and fails.
    Append,
    /// The next append writes a random part and fails for want of space, as on a full disk.
    Full,
}

/// The operations that do not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// An append, or `sync_data`.
    Everything,
    /// Only `sync_data`: written bytes do not become durable.
    Syncs,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimFiles {
    disk: Arc<Mutex<Disk>>,
    random: SimRandom,
}

#[derive(Default)]
struct Disk {
    names: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    dirs: BTreeSet<PathBuf>,
    // The names after a power loss.
    names_durable: BTreeMap<PathBuf, Arc<Mutex<Content>>>,
    locks: BTreeSet<PathBuf>,
    // Handles of earlier boots fail, because their process has ended.
    boot: u64,
    fault: Option<Fault>,
    // Every append fails for lack of space.
    is_full: bool,
    // Operations of this kind do not return.
    hangs: Option<Hang>,
    // The number of appends that still succeed.
    passes: u64,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    // Bytes below this offset are durable.
    durable_len: usize,
    // Bytes removed by an unsynced truncation: a power loss restores them at `durable_len`.
    cut: Vec<u8>,
}

struct SimFile {
    files: SimFiles,
    content: Arc<Mutex<Content>>,
    boot: u64,
}

struct SimLock {
    files: SimFiles,
    path: PathBuf,
    boot: u64,
}

impl SimFiles {
    /// An empty disk with faults drawn from `seed`.
    pub fn new(seed: u64) -> SimFiles {
        SimFiles { disk: Arc::default(), random: SimRandom::new(seed) }
    }

    /// The process ends: locks are released, old handles fail, all written bytes stay.
    pub fn end_process(&self) {
        let mut disk = self.disk();
        disk.boot += 1;
        disk.locks.clear();
        disk.fault = None;
    }

    /// A power loss: as [`SimFiles::end_process`], and unsynced names and bytes are lost.
    pub fn crash(&self) {
        self.end_process();
        let mut disk = self.disk();
        disk.names = disk.names_durable.clone();
        for content in disk.names.values() {
            hold(content).forget_unsynced(&self.random);
        }
    }

    /// A copy of the disk with its present content, all of it durable, without locks.
    pub fn copy(&self) -> SimFiles {
        let disk = self.disk();
        let copied = |content: &Arc<Mutex<Content>>| {
            let bytes = hold(content).bytes.clone();
            Arc::new(Mutex::new(Content { durable_len: bytes.len(), bytes, cut: Vec::new() }))
        };
        let names: BTreeMap<PathBuf, _> =
            disk.names.iter().map(|(path, content)| (path.clone(), copied(content))).collect();
        let names_durable = names.clone();
        let copy = Disk { names, names_durable, dirs: disk.dirs.clone(), ..Disk::default() };
        SimFiles { disk: Arc::new(Mutex::new(copy)), random: self.random.clone() }
    }

    /// Makes one later operation fail.
    pub fn inject(&self, fault: Fault) {
        self.disk().fault = Some(fault);
    }

    /// Sets whether appends fail for lack of space.
    pub fn fill(&self, is_full: bool) {
        self.disk().is_full = is_full;
    }

    /// Whether appends fail for lack of space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.disk().is_full
    }

    /// Sets which operations hang, or ends the hang.
    pub fn hang(&self, hang: Option<Hang>) {
        self.disk().hangs = hang;
    }

    /// Lets `count` appends succeed although the disk hangs.
    pub fn let_appends_pass(&self, count: u64) {
        self.disk().passes = count;
    }

    /// Waits while the disk hangs in one of these ways.
    fn wait_while(&self, hangs: &[Hang]) {
        while self.disk().hangs.is_some_and(|hang| hangs.contains(&hang)) {
            match tasks::here() {
                Some(here) => here.sleep(HANG_POLL_INTERVAL),
                None => std::thread::sleep(HANG_POLL_INTERVAL),
            }
            if hangs == [Hang::Everything] && self.may_pass() {
                return;
            }
        }
    }

    /// Whether an append may succeed although the disk hangs.
    fn may_pass(&self) -> bool {
        let mut disk = self.disk();
        let may_pass = disk.hangs.is_some() && disk.passes > 0;
        disk.passes -= u64::from(may_pass);
        may_pass
    }

    /// Changes bytes of a file directly, to simulate damage. The new content is durable.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let disk = self.disk();
        let mut content = hold(disk.content(path)?);
        change(&mut content.bytes);
        content.durable_len = content.bytes.len();
        content.cut.clear();
        Ok(())
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, disk: &Disk, content: &Arc<Mutex<Content>>) -> Arc<dyn File> {
        Arc::new(SimFile { files: self.clone(), content: Arc::clone(content), boot: disk.boot })
    }
}

fn hold(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    fn content(&self, path: &Path) -> Result<&Arc<Mutex<Content>>> {
        self.names.get(path).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    /// Takes the requested fault if it is one of `kinds`.
    fn fails(&mut self, kinds: &[Fault]) -> Option<Fault> {
        if self.is_full && kinds.contains(&Fault::Full) {
            return Some(Fault::Full);
        }
        let fault = self.fault.filter(|fault| kinds.contains(fault))?;
        self.fault = None;
        Some(fault)
    }
}

impl Content {
    fn sync(&mut self) {
        self.durable_len = self.bytes.len();
        self.cut.clear();
    }

    fn truncate(&mut self, len: usize) {
        if len < self.durable_len {
            let mut cut = self.bytes[len..self.durable_len].to_vec();
            cut.append(&mut self.cut);
            self.cut = cut;
            self.durable_len = len;
        }
        self.bytes.resize(len, 0);
    }

    /// Keeps synced bytes and a random part of the others.
    fn forget_unsynced(&mut self, random: &SimRandom) {
        // An unsynced truncation either reached the disk, or neither it nor any later write did.
        if !self.cut.is_empty() && random.one_in(2) {
            self.bytes.truncate(self.durable_len);
            self.bytes.append(&mut self.cut);
            self.sync();
            return;
        }
        let unsynced_bytes = self.bytes.len() - self.durable_len;
        match random.below(4) {
            0 => self.bytes.truncate(self.durable_len),
            1 => self.lose_sectors(random),
            _ => {
                let kept = random.below(unsynced_bytes as u64 + 1) as usize;
                self.bytes.truncate(self.durable_len + kept);
            }
        }
        self.sync();
    }

    /// The length reached the disk, but some of the sectors did not.
    fn lose_sectors(&mut self, random: &SimRandom) {
        let mut start = self.durable_len;
        while start < self.bytes.len() {
            let end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let end = end.min(self.bytes.len());
            if random.one_in(3) {
                self.bytes[start..end].fill(0);
            }
            start = end;
        }
    }
}

impl Files for SimFiles {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.disk().dirs.insert(dir.to_owned());
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut disk = self.disk();
        if disk.names.contains_key(path) {
            return Err(Error::from(ErrorKind::AlreadyExists));
        }
        let content = Arc::<Mutex<Content>>::default();
        disk.names.insert(path.to_owned(), Arc::clone(&content));
        Ok(self.handle(&disk, &content))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let disk = self.disk();
        Ok(self.handle(&disk, disk.content(path)?))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(hold(self.disk().content(path)?).bytes.clone())
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let disk = self.disk();
        Ok(disk.names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.disk().names.remove(path);
        removed.map(drop).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut disk = self.disk();
        let content = disk.names.remove(from).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        disk.names.insert(to.to_owned(), content);
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut disk = self.disk();
        if disk.fails(&[Fault::Sync]).is_some() {
            return Err(Error::other("simulated sync failure"));
        }
        let inside = |path: &Path| path.parent() == Some(dir);
        let Disk { names, names_durable, .. } = &mut *disk;
        names_durable.retain(|path, _| !inside(path));
        for (path, content) in names.iter().filter(|(path, _)| inside(path)) {
            names_durable.insert(path.clone(), Arc::clone(content));
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut disk = self.disk();
        if !disk.locks.insert(path.to_owned()) {
            return Err(Error::from(ErrorKind::WouldBlock));
        }
        let boot = disk.boot;
        Ok(Box::new(SimLock { files: self.clone(), path: path.to_owned(), boot }))
    }
}

impl SimFile {
    /// Fails for a handle whose process has ended.
    fn alive(&self) -> Result<MutexGuard<'_, Disk>> {
        let disk = self.files.disk();
        if disk.boot != self.boot {
            return Err(Error::other("file handle of an earlier boot"));
        }
        Ok(disk)
    }
}

impl File for SimFile {
    fn append(&self, bytes: &[u8]) -> Result<()> {
        if !self.files.may_pass() {
            self.files.wait_while(&[Hang::Everything]);
        }
        let mut disk = self.alive()?;
        let mut content = hold(&self.content);
        match disk.fails(&[Fault::Append, Fault::Full]) {
            None => {
                content.bytes.extend_from_slice(bytes);
                Ok(())
            }
            Some(fault) => {
                let written = self.files.random.below(bytes.len() as u64) as usize;
                content.bytes.extend_from_slice(&bytes[..written]);
                Err(match fault {
                    Fault::Full => Error::from(ErrorKind::StorageFull),
                    Fault::Append | Fault::Sync => Error::other("simulated append failure"),
                })
            }
        }
    }

    fn sync_data(&self) -> Result<()> {
        self.files.wait_while(&[Hang::Everything, Hang::Syncs]);
        let mut disk = self.alive()?;
        if disk.fails(&[Fault::Sync]).is_some() {
            return Err(Error::other("simulated sync failure"));
        }
        hold(&self.content).sync();
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _disk = self.alive()?;
        let content = hold(&self.content);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.bytes.len());
        let count = buffer.len().min(content.bytes.len() - start);
        buffer[..count].copy_from_slice(&content.bytes[start..start + count]);
        Ok(count)
    }

    fn len(&self) -> Result<u64> {
        let _disk = self.alive()?;
        Ok(hold(&self.content).bytes.len() as u64)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let _disk = self.alive()?;
        hold(&self.content).truncate(len as usize);
        Ok(())
    }

    fn uncache(&self, _range: Range<u64>) {}
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.files.disk();
        if disk.boot == self.boot {
            disk.locks.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_with_file(seed: u64) -> (SimFiles, PathBuf, Arc<dyn File>) {
        let files = SimFiles::new(seed);
        let path = PathBuf::from("/d/f");
        let file = files.create(&path).unwrap();
        files.sync_dir(Path::new("/d")).unwrap();
        (files, path, file)
    }

    #[test]
    fn a_power_loss_keeps_synced_bytes_and_at_most_a_part_of_the_rest() {
        let mut whole_tails = 0;
        for seed in 0..200 {
            let (files, path, file) = disk_with_file(seed);
            file.append(b"synced").unwrap();
            file.sync_data().unwrap();
            file.append(b"unsynced").unwrap();
            files.crash();
            let kept = files.read(&path).unwrap();
            assert!(kept.starts_with(b"synced"), "seed {seed}");
            assert!(kept.len() <= b"syncedunsynced".len(), "seed {seed}");
            whole_tails += usize::from(kept == b"syncedunsynced");
        }
        assert!(whole_tails > 0 && whole_tails < 200, "{whole_tails} of 200 tails survived whole");
    }

    #[test]
    fn a_process_that_ends_loses_nothing_but_its_handles() {
        let (files, path, file) = disk_with_file(1);
        let _lock = files.lock(Path::new("/d/lock")).unwrap();
        file.append(b"written").unwrap();
        files.end_process();
        assert_eq!(files.read(&path).unwrap(), b"written");
        assert!(file.append(b"more").is_err());
        files.lock(Path::new("/d/lock")).unwrap();
    }

    #[test]
    fn a_name_survives_only_when_its_folder_was_synced() {
        let files = SimFiles::new(1);
        files.create(Path::new("/d/kept")).unwrap();
        files.sync_dir(Path::new("/d")).unwrap();
        files.create(Path::new("/d/lost")).unwrap();
        files.crash();
        assert_eq!(files.list(Path::new("/d")).unwrap(), [PathBuf::from("/d/kept")]);
    }

    #[test]
    fn an_injected_fault_fires_once() {
        let (files, _, file) = disk_with_file(1);
        files.inject(Fault::Sync);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
    }
}
