//! A file system in memory that loses unsynced data on a power loss, and has the faults that a test requests.
//!
//! There are two kinds of stops. The end of a process ([`SimFiles::end_process`]) loses its handles and locks, but no
//! written bytes. A power loss ([`SimFiles::crash`]) also loses unsynced names, or the last of them, and a random part of
//! unsynced bytes. The seed determines the rest of an unsynced tail: nothing, a prefix of any length, or the full length
//! with some sectors still zero.
//!
//! A [`Fault`] makes one operation fail, or an append store other bytes than it was given; [`Decay`] changes bytes at rest.

mod content;
mod fault;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{SimRandom, tasks};
use crate::{File, Files, Lock};
use content::Content;
pub use fault::{Decay, Fault};
use names::Names;

/// The interval at which an operation checks whether the disk still hangs.
const HANG_POLL_INTERVAL: Duration = Duration::from_millis(2);

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
    // The boot whose end makes all operations fail.
    process: Option<u64>,
}

#[derive(Default)]
struct Disk {
    names: Names,
    dirs: BTreeSet<PathBuf>,
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
        SimFiles { disk: Arc::default(), random: SimRandom::new(seed), process: None }
    }

    /// The disk as a process has it that starts now: after the end of that process, all its operations fail. Threads of
    /// it that still run then change nothing.
    #[must_use]
    pub fn of_process(&self) -> SimFiles {
        let process = Some(self.disk().boot);
        SimFiles { process, ..self.clone() }
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
        disk.names.forget_unsynced(&self.random);
        for content in disk.names.all().values() {
            hold(content).forget_unsynced(&self.random);
        }
    }

    /// A copy of the disk with its present content, all of it durable, without locks.
    pub fn copy(&self) -> SimFiles {
        let disk = self.disk();
        let copied = |content: &Arc<Mutex<Content>>| {
            let bytes = hold(content).bytes.clone();
            Arc::new(Mutex::new(Content::durable(bytes)))
        };
        let names: BTreeMap<PathBuf, _> =
            disk.names.all().iter().map(|(path, content)| (path.clone(), copied(content))).collect();
        let copy = Disk { names: Names::durable(names), dirs: disk.dirs.clone(), ..Disk::default() };
        SimFiles { disk: Arc::new(Mutex::new(copy)), random: self.random.clone(), process: None }
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
        let mut content = hold(disk.names.get(path)?);
        change(&mut content.bytes);
        content.sync();
        Ok(())
    }

    /// Changes a random place of a file, to simulate damage. The new content is durable. Returns whether a byte changed.
    pub fn decay(&self, path: &Path, decay: Decay) -> Result<bool> {
        let disk = self.disk();
        let mut content = hold(disk.names.get(path)?);
        let before = content.bytes.clone();
        content.decay(decay, &self.random);
        Ok(content.bytes != before)
    }

    /// Makes no operation fail that has not failed yet.
    pub fn cancel_fault(&self) {
        self.disk().fault = None;
    }

    /// Whether the fault that was requested has not happened yet.
    #[must_use]
    pub fn has_pending_fault(&self) -> bool {
        self.disk().fault.is_some()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the process has ended that these files belong to.
    fn running(&self) -> Result<MutexGuard<'_, Disk>> {
        let disk = self.disk();
        if self.process.is_some_and(|boot| boot != disk.boot) {
            return Err(Error::other("a process that has ended"));
        }
        Ok(disk)
    }

    fn handle(&self, disk: &Disk, content: &Arc<Mutex<Content>>) -> Arc<dyn File> {
        Arc::new(SimFile { files: self.clone(), content: Arc::clone(content), boot: disk.boot })
    }
}

fn hold(content: &Mutex<Content>) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Fails once if such a fault was requested.
    fn check(&mut self, fault: Fault) -> Result<()> {
        self.fails(&[fault]).map_or(Ok(()), |fault| Err(fault.error()))
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

impl Files for SimFiles {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.running()?.dirs.insert(dir.to_owned());
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut disk = self.running()?;
        disk.check(Fault::Name)?;
        if disk.names.get(path).is_ok() {
            return Err(Error::from(ErrorKind::AlreadyExists));
        }
        let content = Arc::<Mutex<Content>>::default();
        disk.names.add(path, &content);
        Ok(self.handle(&disk, &content))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut disk = self.running()?;
        disk.check(Fault::Name)?;
        Ok(self.handle(&disk, disk.names.get(path)?))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let mut disk = self.running()?;
        disk.check(Fault::Read)?;
        Ok(hold(disk.names.get(path)?).bytes.clone())
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let disk = self.running()?;
        Ok(disk.names.all().keys().filter(|path| path.parent() == Some(dir)).cloned().collect())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut disk = self.running()?;
        disk.names.get(path)?;
        disk.check(Fault::Name)?;
        disk.names.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut disk = self.running()?;
        disk.check(Fault::Name)?;
        disk.names.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut disk = self.running()?;
        disk.check(Fault::Sync)?;
        disk.names.sync(dir);
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut disk = self.running()?;
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
        let fault = disk.fails(&Fault::APPENDS);
        hold(&self.content).append(bytes, fault, &self.files.random);
        match fault.filter(|fault| Fault::REPORTED.contains(fault)) {
            None => Ok(()),
            Some(fault) => Err(fault.error()),
        }
    }

    fn sync_data(&self) -> Result<()> {
        self.files.wait_while(&[Hang::Everything, Hang::Syncs]);
        self.alive()?.check(Fault::Sync)?;
        hold(&self.content).sync();
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.alive()?.check(Fault::Read)?;
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
        self.alive()?.check(Fault::Name)?;
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
    fn a_process_that_has_ended_changes_no_name() {
        let (files, path, _) = disk_with_file(1);
        let process = files.of_process();
        process.read(&path).unwrap();
        files.crash();
        assert!(process.read(&path).is_err() && process.open(&path).is_err());
        assert!(process.create(Path::new("/d/g")).is_err() && process.remove(&path).is_err());
        files.of_process().remove(&path).unwrap();
    }

    #[test]
    fn names_survive_when_their_folder_was_synced_and_later_ones_in_order() {
        let mut lost_all = 0;
        for seed in 0..100 {
            let files = SimFiles::new(seed);
            let path = |name: &str| Path::new("/d").join(name);
            files.create(&path("a")).unwrap();
            files.sync_dir(Path::new("/d")).unwrap();
            files.create(&path("b")).unwrap();
            files.rename(&path("b"), &path("a")).unwrap();
            files.create(&path("c")).unwrap();
            files.crash();
            let names = files.list(Path::new("/d")).unwrap();
            let possible = [vec!["a"], vec!["a", "b"], vec!["a", "c"]];
            let possible = possible.map(|names| names.into_iter().map(path).collect::<Vec<_>>());
            assert!(possible.contains(&names), "seed {seed}: {names:?}");
            lost_all += usize::from(names == possible[0]);
        }
        assert!(lost_all > 0 && lost_all < 100, "{lost_all} of 100 lost all unsynced names");
    }

    #[test]
    fn an_injected_fault_fires_once() {
        let (files, _, file) = disk_with_file(1);
        files.inject(Fault::Sync);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
        files.inject(Fault::Read);
        assert!(file.read_at(0, &mut [0]).is_err() && file.read_at(0, &mut [0]).is_ok());
        files.inject(Fault::Name);
        assert!(files.create(Path::new("/d/g")).is_err() && files.create(Path::new("/d/g")).is_ok());
    }

    #[test]
    fn silent_faults_succeed_and_change_what_is_stored() {
        for seed in 0..200 {
            for fault in Fault::SILENT {
                let (files, path, file) = disk_with_file(seed);
                let before = [[1; 600], [2; 600]].concat();
                let added = [3; 2000];
                file.append(&before).unwrap();
                files.inject(fault);
                file.append(&added).unwrap();
                assert!(!files.has_pending_fault());
                let stored = files.read(&path).unwrap();
                assert_eq!(stored.len(), before.len() + added.len(), "seed {seed} {fault:?}");
                let is_whole = stored == [&before[..], &added[..]].concat();
                // Each sector of a torn append may be there by chance.
                assert!(!is_whole || fault == Fault::Torn, "seed {seed} {fault:?}");
                let keeps_earlier = stored.starts_with(&before);
                assert_eq!(keeps_earlier, fault != Fault::Misdirected, "seed {seed} {fault:?}");
            }
        }
    }

    #[test]
    fn decay_changes_a_file_at_rest() {
        for seed in 0..100 {
            for decay in Decay::ALL {
                let (files, path, file) = disk_with_file(seed);
                let whole: Vec<u8> = (0..3000_u32).map(|n| (n / 300) as u8 + 1).collect();
                file.append(&whole).unwrap();
                let changed = files.decay(&path, decay).unwrap();
                let stored = files.read(&path).unwrap();
                assert_eq!(changed, stored != whole, "seed {seed} {decay:?}");
                // A sector may be exchanged with itself.
                assert!(changed || decay == Decay::Swap, "seed {seed} {decay:?}");
                assert_eq!(stored.len() < whole.len(), decay == Decay::Truncate, "seed {seed} {decay:?}");
                files.crash();
                assert_eq!(files.read(&path).unwrap(), stored, "damage is durable");
            }
        }
    }
}
