//! The store in files: a folder of segments. Records are appended to the last one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use io::{File, Files, Lock, Random};

use super::high_water_mark::HighWaterMark;
use super::index::{Index, Segment};
use super::recover::{self, RecoveredLog};
use crate::error::LogError;
use crate::log_sync::LogSync;
use crate::lsn::{GroupId, Position};
use crate::record::{self, RECORD_HEADER_BYTES, Record};
use crate::segment::{FORMAT_VERSION, SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use crate::store::{Compacted, Store, StoreError, StoreSize, StoredEntry, StoredGroup, SyncTask};

/// The name of a segment while it is created.
const NEXT_NAME: &str = "next.tmp";
/// The lock file; one process at a time can lock it.
const LOCK_NAME: &str = "lock";
/// Bytes per read when entries are read back.
const READ_BYTES: usize = 256 << 10;
/// A batch buffer shrinks to this size after use.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// How a store lays out its files.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// A segment takes records until it holds this many bytes.
    pub segment_bytes: u64,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        // Tests of crashes begin and remove segments within seconds.
        StoreOptions { segment_bytes: if io::FAILPOINTS_ENABLED { 1 << 20 } else { 64 << 20 } }
    }
}

/// Segments in a folder. Holds the folder's lock.
pub struct FileStore {
    files: Arc<dyn Files>,
    random: Arc<dyn Random>,
    dir: PathBuf,
    options: StoreOptions,
    index: Index,
    header: SegmentHeader,
    file: Arc<dyn File>,
    log_sync: LogSync,
    /// The start of the batch.
    written: Position,
    durable: Position,
    /// The position in the last mark.
    marked: Position,
    /// The end of the last record that is not a mark. A mark after nothing but marks would be useless.
    last_record_end: Position,
    batch: Vec<u8>,
    _lock: Box<dyn Lock>,
}

impl FileStore {
    /// Opens the log in `dir`, or creates an empty one. Its contents are durable on return.
    pub fn open(
        files: Arc<dyn Files>,
        random: Arc<dyn Random>,
        dir: &Path,
        options: StoreOptions,
    ) -> Result<FileStore, LogError> {
        files.create_dir_all(dir)?;
        let lock = files.lock(&dir.join(LOCK_NAME)).map_err(|cause| match cause.kind() {
            ErrorKind::WouldBlock => LogError::Locked { dir: dir.to_owned() },
            _ => LogError::Io(cause),
        })?;
        remove_if_exists(&*files, &dir.join(NEXT_NAME))?;
        let mut found = recover::read_segments(&*files, dir)?;
        found.check_end(HighWaterMark::load(&*files, dir)?, dir)?;
        let header = match found.last {
            Some(header) => header,
            None => make_first_segment(&*files, &*random, dir, &mut found)?,
        };
        let file = files.open(&segment_path(dir, header.number))?;
        if let Some(torn_at) = found.torn_at {
            tracing::warn!(
                segment = header.number,
                torn_at,
                "the log ends with an unfinished append, which is removed"
            );
            file.truncate(torn_at)?;
            io::failpoint("log.tail.truncated");
        }
        // After a kill, bytes that recovery has just read may only be in the page cache.
        file.sync_data()?;
        files.sync_dir(dir)?;
        let bytes = found.index.segments.back().map_or(0, |segment| segment.bytes);
        let end = Position { segment: header.number, offset: bytes };
        let mut store = FileStore {
            files,
            random,
            dir: dir.to_owned(),
            options,
            index: found.index,
            header,
            log_sync: LogSync::new(Arc::clone(&file), end),
            file,
            written: end,
            durable: end,
            marked: Position::default(),
            last_record_end: end,
            batch: Vec::new(),
            _lock: lock,
        };
        let failed = |cause| match cause {
            StoreError::Full => LogError::Io(ErrorKind::StorageFull.into()),
            StoreError::Disk(cause) => LogError::Io(cause),
        };
        store.write_high_water_mark().map_err(failed)?;
        if header.version < FORMAT_VERSION {
            // A segment holds only records of the version in its header.
            store.start_segment().map_err(failed)?;
        }
        Ok(store)
    }

    /// A handle that makes the log durable, for its engine.
    pub fn log_sync(&self) -> LogSync {
        self.log_sync.clone()
    }

    /// Makes the last segment durable, and creates a new one that repeats the state of every group.
    fn start_segment(&mut self) -> Result<(), StoreError> {
        self.log_sync.sync_segment(&self.file, self.written)?;
        let mut header = SegmentHeader {
            version: FORMAT_VERSION,
            salt: self.random.next_u64() as u32,
            number: self.written.segment + 1,
            log_id: self.header.log_id,
            previous: self.written.segment,
            previous_bytes: self.written.offset,
            head_bytes: 0,
        };
        let head = segment_head(&mut header, &self.index);
        let made = make_segment(&*self.files, &self.dir, header.number, &head);
        self.file = made.map_err(|cause| match cause.kind() {
            ErrorKind::StorageFull => StoreError::Full,
            _ => StoreError::Disk(cause),
        })?;
        let bytes = head.len() as u64;
        self.header = header;
        self.written = Position { segment: header.number, offset: bytes };
        self.durable = self.written;
        self.log_sync.begin_segment(Arc::clone(&self.file), self.written);
        self.index.segments.push_back(Segment::new(header.number, bytes));
        self.write_high_water_mark()
    }

    fn push_record(&mut self, record: &Record<&[u8]>) {
        let at = Position { offset: self.written.offset + self.batch.len() as u64, ..self.written };
        if let Err(what) = self.index.add(record, at) {
            panic!("a record pushed to the log does not fit: {what}: {record:?}");
        }
        record::encode(record, self.header.salt, &mut self.batch);
    }
}

/// The first segment of a new log.
fn make_first_segment(
    files: &dyn Files,
    random: &dyn Random,
    dir: &Path,
    found: &mut RecoveredLog,
) -> Result<SegmentHeader, LogError> {
    let mut header = SegmentHeader {
        version: FORMAT_VERSION,
        salt: random.next_u64() as u32,
        number: 1,
        log_id: random.next_u64(),
        previous: 0,
        previous_bytes: 0,
        head_bytes: 0,
    };
    let head = segment_head(&mut header, &found.index);
    make_segment(files, dir, 1, &head)?;
    found.index.segments.push_back(Segment::new(1, head.len() as u64));
    Ok(header)
}

/// The beginning of a segment: its header, and the state of every group.
fn segment_head(header: &mut SegmentHeader, index: &Index) -> Vec<u8> {
    let mut head = vec![0; SEGMENT_HEADER_BYTES];
    let mut push = |record: Record<&[u8]>| record::encode(&record, header.salt, &mut head);
    for (group, StoredGroup { peer, outline, rows_invalid }) in index.groups() {
        let hard = &outline.hard;
        let (term, vote, commit) = (hard.term, hard.vote, hard.commit);
        push(Record::Member { group, peer: *peer, members: outline.members.clone() });
        push(Record::Vote { group, term, vote, commit });
        let (index, term) = (outline.last(), outline.last_term());
        push(Record::Tail { group, index, term, proposed: outline.proposed() });
        if *rows_invalid {
            push(Record::Rows { group, invalid: true });
        }
    }
    for (group, peer) in &index.removed {
        push(Record::Removed { group: *group, peer: *peer });
    }
    for group in &index.tombstones {
        push(Record::Tombstone { group: *group });
    }
    header.head_bytes = head.len() as u64;
    head[..SEGMENT_HEADER_BYTES].copy_from_slice(&header.encode());
    head
}

/// Creates a segment durably and atomically.
fn make_segment(files: &dyn Files, dir: &Path, number: u64, head: &[u8]) -> std::io::Result<Arc<dyn File>> {
    let next = dir.join(NEXT_NAME);
    remove_if_exists(files, &next)?;
    let file = files.create(&next)?;
    file.append(head)?;
    file.sync_data()?;
    io::failpoint("log.segment.made");
    files.rename(&next, &segment_path(dir, number))?;
    io::failpoint("log.segment.named");
    files.sync_dir(dir)?;
    Ok(file)
}

fn remove_if_exists(files: &dyn Files, path: &Path) -> std::io::Result<()> {
    match files.remove(path) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

impl Store for FileStore {
    fn group(&self, id: GroupId) -> Option<&StoredGroup> {
        self.index.group(id)
    }

    fn is_tombstone(&self, id: GroupId) -> bool {
        self.index.tombstones.contains(&id)
    }

    fn is_removed(&self, id: GroupId, peer: u64) -> bool {
        self.index.removed.contains(&(id, peer))
    }

    fn has_room(&self) -> bool {
        self.written.offset < self.options.segment_bytes
    }

    fn make_room(&mut self) -> Result<(), StoreError> {
        // A batch stays in one segment, since its checksums contain the salt of that segment.
        if self.batch.is_empty() && !self.has_room() {
            self.start_segment()?;
        }
        Ok(())
    }

    fn push(&mut self, record: &Record<&[u8]>) {
        if self.batch.is_empty() {
            self.push_mark();
        }
        self.push_record(record);
        let offset = self.written.offset + self.batch.len() as u64;
        self.last_record_end = Position { offset, ..self.written };
    }

    fn pushed_bytes(&self) -> usize {
        self.batch.len()
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if let Err(cause) = self.file.append(&self.batch) {
            // No record may follow a partial batch.
            self.file.truncate(self.written.offset)?;
            return Err(match cause.kind() {
                ErrorKind::StorageFull => StoreError::Full,
                _ => StoreError::Disk(cause),
            });
        }
        self.written.offset += self.batch.len() as u64;
        self.log_sync.appended(self.written);
        if let Some(segment) = self.index.segments.back_mut() {
            segment.bytes = self.written.offset;
        }
        self.batch.clear();
        self.batch.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    fn begin_sync(&self) -> SyncTask {
        // Earlier segments are durable: a segment is created only after the one before it is durable.
        SyncTask::new(self.log_sync(), Arc::clone(&self.file), self.written)
    }

    fn end_sync(&mut self, through: Position) {
        self.durable = self.durable.max(through);
    }

    fn wants_mark(&self) -> bool {
        self.durable > self.marked && self.last_record_end > self.marked
    }

    fn push_mark(&mut self) {
        if self.wants_mark() {
            self.marked = self.durable;
            let Position { segment, offset } = self.durable;
            self.push_record(&Record::Mark { segment, offset });
        }
    }

    fn read(&self, group: GroupId, index: u64, bytes_max: usize) -> Result<Vec<StoredEntry>, LogError> {
        let mut reader = Reader::new(self);
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut next = index + 1;
        while bytes < bytes_max
            && let Some(location) = self.index.location(group, next)
            // Pushed records can be read only once they are written, which takes long while the disk is full.
            && location.position() < self.written
        {
            let entry = reader.entry(group, next, location.position())?;
            bytes += entry.payload.len() + RECORD_HEADER_BYTES;
            entries.push(entry);
            next += 1;
        }
        Ok(entries)
    }

    fn delete_flushed(
        &mut self,
        flushed: &BTreeMap<GroupId, u64>,
        closing: &BTreeSet<GroupId>,
    ) -> Result<Vec<Compacted>, StoreError> {
        let mut compacted = Vec::new();
        while self.index.oldest_is_flushed(flushed, closing) {
            let Some(oldest) = self.index.segments.front() else { break };
            self.files.remove(&segment_path(&self.dir, oldest.number))?;
            io::failpoint("log.segment.removed");
            // One at a time, so that a power loss never leaves a gap between segments.
            self.files.sync_dir(&self.dir)?;
            self.log_sync.segment_removed(oldest.number);
            compacted.extend(self.index.remove_oldest());
        }
        Ok(compacted)
    }

    fn write_high_water_mark(&mut self) -> Result<(), StoreError> {
        let mark = HighWaterMark { log_id: self.header.log_id, at: self.durable };
        match mark.store(&*self.files, &self.dir) {
            // Writing does not depend on the mark; the next one will do.
            Err(cause) if cause.kind() == ErrorKind::StorageFull => Ok(()),
            stored => Ok(stored?),
        }
    }

    fn size(&self) -> StoreSize {
        let bytes = self.index.segments.iter().map(|segment| segment.bytes).sum();
        StoreSize { segments: self.index.segments.len() as u64, bytes }
    }
}

/// Reads consecutive entries, a range of a segment at a time.
struct Reader<'a> {
    store: &'a FileStore,
    open: Option<OpenSegment>,
    /// The offset of `bytes` in the segment.
    start: u64,
    bytes: Vec<u8>,
}

struct OpenSegment {
    number: u64,
    salt: u32,
    file: Arc<dyn File>,
}

impl<'a> Reader<'a> {
    fn new(store: &'a FileStore) -> Reader<'a> {
        Reader { store, open: None, start: 0, bytes: Vec::new() }
    }

    fn entry(&mut self, group: GroupId, index: u64, at: Position) -> Result<StoredEntry, LogError> {
        let salt = self.open_segment(at.segment)?;
        let record = self.record_at(at.offset)?;
        match record::decode(record, salt) {
            Some((Record::Entry { group: of, index: found, term, kind, payload }, _))
                if (of, found) == (group, index) =>
            {
                Ok(StoredEntry { index, term, kind, payload: Bytes::copy_from_slice(payload) })
            }
            _ => Err(LogError::Damaged {
                segment: segment_path(&self.store.dir, at.segment),
                offset: at.offset,
                what: format!("entry {index} of group {group} can no longer be read here"),
            }),
        }
    }

    /// Opens a segment, unless it is open; returns its salt.
    fn open_segment(&mut self, number: u64) -> Result<u32, LogError> {
        if let Some(open) = self.open.as_ref().filter(|open| open.number == number) {
            return Ok(open.salt);
        }
        let path = segment_path(&self.store.dir, number);
        let file = self.store.files.open(&path)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        file.read_at(0, &mut bytes)?;
        let header = SegmentHeader::decode(&bytes).map_err(|cause| LogError::Damaged {
            segment: path,
            offset: 0,
            what: cause.to_string(),
        })?;
        self.bytes.clear();
        self.open = Some(OpenSegment { number, salt: header.salt, file });
        Ok(header.salt)
    }

    /// The bytes from `offset` on: the whole record if the segment holds it.
    fn record_at(&mut self, offset: u64) -> Result<&[u8], LogError> {
        let whole =
            |bytes: &[u8]| record::record_bytes_unchecked(bytes).is_some_and(|need| need <= bytes.len());
        let skip = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        if let Some(skip) = skip.filter(|skip| self.bytes.get(*skip..).is_some_and(whole)) {
            return Ok(&self.bytes[skip..]);
        }
        self.fill(offset, READ_BYTES)?;
        if let Some(need) = record::record_bytes_unchecked(&self.bytes)
            && need > self.bytes.len()
        {
            self.fill(offset, need)?;
        }
        Ok(&self.bytes)
    }

    fn fill(&mut self, offset: u64, count: usize) -> Result<(), LogError> {
        self.start = offset;
        self.bytes.resize(count, 0);
        let Some(OpenSegment { file, .. }) = &self.open else { return Ok(()) };
        let filled = file.read_at(offset, &mut self.bytes)?;
        self.bytes.truncate(filled);
        Ok(())
    }
}
