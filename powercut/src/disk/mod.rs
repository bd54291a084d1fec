//! A directory as a disk has it: durable data, and data that a power loss may drop.

mod content;
mod names;

use std::collections::{BTreeMap, HashMap};

use rand::Rng;
use rand::rngs::StdRng;

use crate::journal::{DecodeError, Record, decode};
use crate::tree::{Node, Tree};
use content::{Change, Content};
use names::{Entry, FileId, Names};

/// Syncs without effect, as of a disk that lies. A test must notice that writes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredSyncs {
    /// Syncs of files whose path begins with this.
    Files(&'static str),
    /// Syncs of directories.
    Directories,
}

/// The journal and the directory do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the process changed files in a way that is not recorded: {what}")]
    Refused { what: String },
    #[error("byte {at} of the journal: {record} without its file or directory")]
    Unknown { at: u64, record: String },
    #[error("{path} differs from the journal, which misses a kind of change: {what}")]
    Differs { path: String, what: String },
}

/// The last change of a journal. It may not have been carried out.
#[derive(Clone, Copy, Debug)]
enum LastChange {
    Names,
    Bytes(FileId),
}

/// The files and names of a directory, with their durable and their present state.
#[derive(Default)]
pub struct Disk {
    names: Names,
    files: Vec<Content>,
    inodes: HashMap<u64, FileId>,
    ignored: Option<IgnoredSyncs>,
    replayed: usize,
    last: Option<(u64, LastChange)>,
}

impl Disk {
    /// A disk on which all of `tree` is durable.
    pub fn new(tree: &Tree, ignored: Option<IgnoredSyncs>) -> Disk {
        let mut disk = Disk { ignored, ..Disk::default() };
        for (path, node) in &tree.0 {
            let entry = match node {
                Node::Dir => Entry::Dir(disk.names.new_dir()),
                Node::File(bytes) => disk.add(Content::durable(bytes.clone())),
            };
            // A tree has the parents of all its paths.
            disk.names.add_durable(path, entry);
        }
        disk
    }

    fn add(&mut self, content: Content) -> Entry {
        self.files.push(content);
        Entry::File(self.files.len() - 1)
    }

    /// Replays the records appended to the journal since the last call. Returns the length of its whole records: the process
    /// may have been killed while it wrote another one.
    pub fn replay(&mut self, journal: &[u8]) -> Result<usize, ReplayError> {
        let start = self.replayed;
        let (records, len) = decode(journal.get(start..).unwrap_or_default())?;
        for (nth, (at, record)) in records.iter().enumerate() {
            let next = records.get(nth + 1).map(|(_, next)| next);
            // A change that failed may be one that is impossible.
            if *record == Record::Failed || next == Some(&Record::Failed) {
                self.last = None;
                continue;
            }
            match self.apply(at + start as u64, record) {
                // The process was killed before it could record the failure.
                Err(ReplayError::Unknown { .. }) if next.is_none() => self.last = None,
                applied => applied?,
            }
        }
        self.replayed = start + len;
        Ok(self.replayed)
    }

    fn apply(&mut self, at: u64, record: &Record) -> Result<(), ReplayError> {
        let last = self.last.take();
        let done = match record {
            Record::Short { len } => last.map(|last| self.shorten(last, *len as usize)),
            Record::Refused { what } => return Err(ReplayError::Refused { what: what.clone() }),
            Record::Open { path, inode } => self.bind(path, *inode),
            Record::Buffered { inode } => self.file(*inode).map(|file| self.files[file].is_buffered = true),
            Record::Synced { inode, upto } => self.file(*inode).map(|file| self.sync(file, *upto)),
            Record::DirSynced { path, upto } => self.sync_dir(path, *upto),
            Record::Write { inode, offset, data } => {
                self.change(at, *inode, Change::Write { offset: *offset, data: data.clone() })
            }
            Record::Resize { inode, len } => self.change(at, *inode, Change::Resize { len: *len }),
            _ => self.change_names(at, record),
        };
        done.ok_or_else(|| ReplayError::Unknown { at, record: format!("{record:.200?}") })
    }

    fn change_names(&mut self, at: u64, record: &Record) -> Option<()> {
        self.last = Some((at, LastChange::Names));
        match record {
            Record::Create { path } => {
                let file = self.add(Content::default());
                self.names.add(at, path, file)
            }
            Record::CreateDir { path } => {
                let dir = Entry::Dir(self.names.new_dir());
                self.names.add(at, path, dir)
            }
            Record::Rename { from, to } => self.names.rename(at, from, to),
            Record::Link { from, to } => {
                let entry = self.names.find(from)?;
                self.names.add(at, to, entry)
            }
            Record::Unlink { path } | Record::RemoveDir { path } => self.names.remove(at, path),
            _ => None,
        }
    }

    fn file(&self, inode: u64) -> Option<FileId> {
        self.inodes.get(&inode).copied()
    }

    fn bind(&mut self, path: &str, inode: u64) -> Option<()> {
        let Entry::File(file) = self.names.find(path)? else { return None };
        self.inodes.insert(inode, file);
        Some(())
    }

    fn change(&mut self, at: u64, inode: u64, change: Change) -> Option<()> {
        let file = self.file(inode)?;
        self.files[file].change(at, change);
        self.last = Some((at, LastChange::Bytes(file)));
        Some(())
    }

    fn sync(&mut self, file: FileId, upto: u64) {
        if let Some(IgnoredSyncs::Files(prefix)) = self.ignored {
            let names = self.names.current();
            if names.iter().any(|(path, entry)| *entry == Entry::File(file) && path.starts_with(prefix)) {
                return;
            }
        }
        self.files[file].sync(upto);
    }

    fn sync_dir(&mut self, path: &str, upto: u64) -> Option<()> {
        let Entry::Dir(dir) = self.names.find(path)? else { return None };
        if self.ignored != Some(IgnoredSyncs::Directories) {
            self.names.sync(dir, upto);
        }
        Some(())
    }

    fn take_back(&mut self, (at, change): (u64, LastChange)) -> Option<Change> {
        match change {
            LastChange::Bytes(file) => self.files[file].take_back(at),
            LastChange::Names => {
                self.names.take_back(at);
                None
            }
        }
    }

    fn shorten(&mut self, last: (u64, LastChange), len: usize) {
        let taken = self.take_back(last);
        if let (LastChange::Bytes(file), Some(Change::Write { offset, mut data })) = (last.1, taken) {
            data.truncate(len);
            self.files[file].change(last.0, Change::Write { offset, data });
        }
    }

    /// Compares the present state with the directory after the process was killed, which may have been before or amid the
    /// last change. Fails if they differ: then the process changes files in a way that the recorder does not see.
    pub fn reconcile(&mut self, found: &Tree) -> Result<(), ReplayError> {
        let Err(difference) = self.compare(found) else { return Ok(()) };
        let Some(last) = self.last.take() else { return Err(difference) };
        let taken = self.take_back(last);
        if let (LastChange::Bytes(file), Some(Change::Write { offset, data })) = (last.1, taken) {
            let bytes = self.found_bytes(file, found).unwrap_or_default();
            let start = bytes.len().min(offset as usize);
            let data = bytes[start..bytes.len().min(start + data.len())].to_vec();
            self.files[file].change(last.0, Change::Write { offset, data });
        }
        self.compare(found).map_err(|_| difference)
    }

    fn found_bytes<'a>(&self, file: FileId, found: &'a Tree) -> Option<&'a [u8]> {
        let names = self.names.current();
        let (path, _) = names.iter().find(|(_, entry)| **entry == Entry::File(file))?;
        match found.0.get(path)? {
            Node::File(bytes) => Some(bytes),
            Node::Dir => None,
        }
    }

    fn compare(&self, found: &Tree) -> Result<(), ReplayError> {
        let differs = |path: &String, what: String| Err(ReplayError::Differs { path: path.clone(), what });
        let names = self.names.current();
        if let Some(path) = found.0.keys().find(|path| !names.contains_key(*path)) {
            return differs(path, "it is there".to_owned());
        }
        for (path, entry) in &names {
            match (entry, found.0.get(path)) {
                (_, None) => return differs(path, "it is not there".to_owned()),
                (Entry::Dir(_), Some(Node::Dir)) => {}
                (Entry::File(file), Some(Node::File(bytes))) => {
                    let content = &self.files[*file];
                    let current = content.current();
                    if !content.is_buffered && current != *bytes {
                        let same = current.iter().zip(bytes).take_while(|(one, other)| one == other).count();
                        let (found, recorded) = (bytes.len(), current.len());
                        return differs(path, format!("{found} bytes, not {recorded}; equal up to {same}"));
                    }
                }
                _ => return differs(path, "a file or a directory".to_owned()),
            }
        }
        Ok(())
    }

    /// How many files and how many names have changes that are not durable.
    pub fn unsynced(&self) -> (usize, usize) {
        let names = self.names.current();
        let has_pending =
            |entry: &&Entry| matches!(entry, Entry::File(file) if self.files[*file].has_pending());
        (names.values().filter(has_pending).count(), self.names.pending_count())
    }

    /// The directory after a power loss. `found` is its present content.
    pub fn cut_power(&self, found: &Tree, random: &mut StdRng) -> Tree {
        let mut survivors: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
        let mut tree = Tree::default();
        for (path, entry) in self.names.survive(random) {
            let node = match entry {
                Entry::Dir(_) => Node::Dir,
                Entry::File(file) => {
                    let bytes = survivors.entry(file).or_insert_with(|| self.survive(file, found, random));
                    Node::File(bytes.clone())
                }
            };
            tree.0.insert(path, node);
        }
        tree
    }

    fn survive(&self, file: FileId, found: &Tree, random: &mut StdRng) -> Vec<u8> {
        let content = &self.files[file];
        if content.is_buffered {
            let bytes = self.found_bytes(file, found).unwrap_or_default();
            return bytes[..random.random_range(0..=bytes.len())].to_vec();
        }
        content.survive(random)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::journal::encode;

    fn journal(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| encode(record, &mut bytes));
        bytes
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        Tree(
            files
                .iter()
                .map(|(path, text)| ((*path).to_owned(), Node::File(text.as_bytes().to_vec())))
                .collect(),
        )
    }

    /// A file `a` with the inode 1, to which `records` happen.
    fn disk(records: &[Record]) -> Disk {
        let first =
            [Record::Create { path: "a".to_owned() }, Record::Open { path: "a".to_owned(), inode: 1 }];
        let mut disk = Disk::default();
        disk.replay(&journal(&[&first, records].concat())).unwrap();
        disk
    }

    fn write(offset: u64, text: &str) -> Record {
        Record::Write { inode: 1, offset, data: text.as_bytes().to_vec() }
    }

    #[test]
    fn an_acknowledged_file_needs_a_sync_of_itself_and_of_its_directory() {
        let synced = Record::Synced { inode: 1, upto: 1000 };
        let dir_synced = Record::DirSynced { path: String::new(), upto: 1000 };
        let found = tree(&[("a", "text")]);
        let survives = |records: &[Record]| {
            let disk = disk(records);
            let cut = |seed| disk.cut_power(&found, &mut StdRng::seed_from_u64(seed)) == found;
            (0..100).filter(|seed| cut(*seed)).count()
        };
        assert_eq!(survives(&[write(0, "text"), synced.clone(), dir_synced.clone()]), 100);
        for records in [[write(0, "text"), synced], [write(0, "text"), dir_synced]] {
            assert!((1..100).contains(&survives(&records)));
        }
    }

    #[test]
    fn the_last_change_may_be_missing_or_partial() {
        for found in ["", "te", "text"] {
            let mut disk = disk(&[write(0, "text")]);
            disk.reconcile(&tree(&[("a", found)])).unwrap();
            assert_eq!(disk.files[0].current(), found.as_bytes());
        }
        let mut renamed = disk(&[Record::Rename { from: "a".to_owned(), to: "b".to_owned() }]);
        renamed.reconcile(&tree(&[("a", "")])).unwrap();
        assert!(renamed.names.find("a").is_some());
    }

    #[test]
    fn a_change_that_was_not_recorded_is_found() {
        let records = [write(0, "text"), Record::Synced { inode: 1, upto: 1000 }];
        let error = disk(&records).reconcile(&tree(&[("a", "texT")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a differs from the journal, which misses a kind of change: 4 bytes, not 4; equal up to 3"
        );
        assert!(disk(&records).reconcile(&tree(&[("a", "text"), ("b", "")])).is_err());
        assert!(disk(&records).reconcile(&Tree::default()).is_err());
    }

    #[test]
    fn failed_and_short_changes_are_corrected() {
        let records = [write(0, "text"), Record::Short { len: 2 }, write(2, "more"), Record::Failed];
        assert_eq!(disk(&records).files[0].current(), b"te");
        let records = [Record::Unlink { path: "a".to_owned() }, Record::Failed];
        assert!(disk(&records).names.find("a").is_some());
    }

    #[test]
    fn ignored_syncs_lose_synced_bytes() {
        let found = tree(&[("a", "text")]);
        let mut lost = 0;
        for ignored in [IgnoredSyncs::Files("a"), IgnoredSyncs::Directories] {
            let mut disk = Disk { ignored: Some(ignored), ..disk(&[]) };
            disk.replayed = 0;
            let records = [
                write(0, "text"),
                Record::Synced { inode: 1, upto: 1000 },
                Record::DirSynced { path: String::new(), upto: 1000 },
            ];
            disk.replay(&journal(&records)).unwrap();
            lost += (0..20)
                .filter(|seed| disk.cut_power(&found, &mut StdRng::seed_from_u64(*seed)) != found)
                .count();
        }
        assert!(lost > 10, "{lost} of 40");
    }

    #[test]
    fn a_refused_change_and_an_unknown_file_are_errors() {
        let mut disk = Disk::default();
        assert!(disk.replay(&journal(&[Record::Refused { what: "mmap of a".to_owned() }])).is_err());
        assert!(Disk::default().replay(&journal(&[write(0, "text"), write(4, "text")])).is_err());
    }
}
