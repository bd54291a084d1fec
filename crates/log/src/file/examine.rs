//! Reads a log that no server has open, damaged or not, and changes nothing on disk: for the offline check and for
//! salvage. Recovery ([`super::recover`]) ends at the first damage; this goes on after it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use io::Files;

use super::high_water_mark::HighWaterMark;
use super::recover::{RecoveredLog, segment_files};
use crate::entry_compression::decompress;
use crate::error::LogError;
use crate::lsn::{GroupId, Lsn, Position};
use crate::member::{Members, PeerId};
use crate::record::Record;
use crate::recovery::{Scanner, SegmentEnd};
use crate::segment::segment_path;

/// A log as its files have it.
pub struct ExaminedLog {
    dir: PathBuf,
    pub segments: u64,
    /// Valid records.
    pub records: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// The last segment and the offset of its torn tail, if it has one: an append that was never acknowledged.
    pub torn: Option<(PathBuf, u64)>,
    /// Damage, in the order in which it was found. Nothing can be said about the groups then.
    pub damages: Vec<LogError>,
    /// The groups that are not closed, lowest id first. Empty if there is damage.
    pub groups: Vec<ExaminedGroup>,
    entries: BTreeMap<(GroupId, u64), Position>,
}

/// One group of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExaminedGroup {
    pub group: GroupId,
    /// The replica of this log.
    pub peer: PeerId,
    pub members: Members,
    /// Whether the rows of the replica are being replaced by a copy.
    pub rows_invalid: bool,
    /// The engine must have the entries up to here, since the log no longer has them.
    pub begins_after: Lsn,
    /// The last entry.
    pub last: Lsn,
    /// Entries up to here are known to be committed.
    pub commit: Lsn,
}

impl ExaminedLog {
    /// Reads every segment in `dir`. Fails if a file cannot be read at all; damage is no failure.
    pub fn read(files: &dyn Files, dir: &Path) -> Result<ExaminedLog, LogError> {
        let mut examined = ExaminedLog::empty(dir);
        let mut recovered = RecoveredLog::default();
        let paths = segment_files(files, dir)?;
        examined.segments = paths.len() as u64;
        let mut before: Option<u64> = None;
        for (nth, (number, path)) in paths.iter().enumerate() {
            let is_last = nth + 1 == paths.len();
            if before.is_some_and(|before| before + 1 != *number) {
                examined.damage(path, 0, "the segment before it is missing");
            }
            before = Some(*number);
            let bytes = files.read(path)?;
            examined.bytes += bytes.len() as u64;
            if examined.damages.is_empty()
                && let Err(cause) = recovered.read_segment(*number, path, &bytes, is_last)
            {
                examined.damages.push(cause);
                examined.read_records(*number, path, &bytes, is_last, Report::Nothing);
            } else {
                examined.read_records(*number, path, &bytes, is_last, Report::Damage);
            }
        }
        examined.finish(files, recovered)?;
        Ok(examined)
    }

    fn empty(dir: &Path) -> ExaminedLog {
        ExaminedLog {
            dir: dir.to_owned(),
            segments: 0,
            records: 0,
            bytes: 0,
            torn: None,
            damages: Vec::new(),
            groups: Vec::new(),
            entries: BTreeMap::new(),
        }
    }

    /// The entries of `group` after `after` that the log has, in order: entries that were replaced are left out, and
    /// after damage some may be missing. Only entries that were proposed.
    pub fn entries(
        &self,
        files: &dyn Files,
        group: GroupId,
        after: Lsn,
        mut each: impl FnMut(Lsn, Bytes),
    ) -> Result<(), LogError> {
        let mut segment: Option<(u64, Bytes)> = None;
        for ((_, index), at) in self.entries.range((group, after.0 + 1)..=(group, u64::MAX)) {
            let bytes = match &segment {
                Some((number, bytes)) if *number == at.segment => bytes.clone(),
                _ => Bytes::from(files.read(&segment_path(&self.dir, at.segment))?),
            };
            segment = Some((at.segment, bytes.clone()));
            let Ok(scanner) = Scanner::new(&bytes) else { continue };
            match scanner.record_at(at.offset as usize) {
                Some(Record::Entry { kind, payload, .. }) if kind.is_proposed() => {
                    each(Lsn(*index), bytes.slice_ref(payload));
                }
                Some(Record::CompressedEntry { kind, frame, .. }) if kind.is_proposed() => {
                    if let Some(payload) = decompress(frame) {
                        each(Lsn(*index), Bytes::from(payload));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether all entries of `group` from `after` to `last` are there.
    #[must_use]
    pub fn has_all(&self, group: GroupId, after: Lsn, last: Lsn) -> bool {
        let wanted = last.0.saturating_sub(after.0);
        wanted == 0 || self.entries.range((group, after.0 + 1)..=(group, last.0)).count() as u64 == wanted
    }

    /// The groups with entries, also of a damaged log.
    #[must_use]
    pub fn groups_with_entries(&self) -> Vec<GroupId> {
        let mut groups: Vec<GroupId> = self.entries.keys().map(|(group, _)| *group).collect();
        groups.dedup();
        groups
    }

    fn damage(&mut self, path: &Path, offset: u64, what: &str) {
        let (segment, what) = (path.to_owned(), what.to_owned());
        self.damages.push(LogError::Damaged { segment, offset, what });
    }

    /// Notes the entries of a segment, also those after damage.
    fn read_records(&mut self, number: u64, path: &Path, bytes: &[u8], is_last: bool, report: Report) {
        let Ok(mut scanner) = Scanner::new(bytes) else {
            if report == Report::Damage {
                self.damage(path, 0, "not a segment header");
            }
            return;
        };
        loop {
            for (offset, record) in scanner.by_ref() {
                self.records += 1;
                self.note(&record, Position { segment: number, offset: offset as u64 });
            }
            let at = match scanner.end() {
                SegmentEnd::Whole => return,
                SegmentEnd::Torn { offset } if is_last => {
                    self.torn = Some((path.to_owned(), offset as u64));
                    return;
                }
                SegmentEnd::Torn { offset } | SegmentEnd::Damaged { offset } => offset,
            };
            if report == Report::Damage {
                self.damage(path, at as u64, "record does not match its checksum");
            }
            if !scanner.skip_damage() {
                return;
            }
        }
    }

    fn note(&mut self, record: &Record<&[u8]>, at: Position) {
        match record {
            Record::Entry { group, index, .. } | Record::CompressedEntry { group, index, .. } => {
                // A later leader's entry replaces the one at its position and all after it.
                drop(self.take_from(*group, *index));
                self.entries.insert((*group, *index), at);
            }
            Record::Start { group, .. } | Record::Tombstone { group } | Record::Removed { group, .. } => {
                drop(self.take_from(*group, 0));
            }
            _ => {}
        }
    }

    fn take_from(&mut self, group: GroupId, index: u64) -> BTreeMap<(GroupId, u64), Position> {
        let is_later = self.entries.range((group, index)..=(group, u64::MAX)).next().is_some();
        if !is_later {
            return BTreeMap::new();
        }
        let mut taken = self.entries.split_off(&(group, index));
        let mut others = match group.0.checked_add(1) {
            Some(next) => taken.split_off(&(GroupId(next), 0)),
            None => BTreeMap::new(),
        };
        self.entries.append(&mut others);
        taken
    }

    fn finish(&mut self, files: &dyn Files, mut recovered: RecoveredLog) -> Result<(), LogError> {
        match HighWaterMark::load(files, &self.dir) {
            Ok(mark) if self.damages.is_empty() => {
                self.damages.extend(recovered.check_end(mark, &self.dir).err());
            }
            Ok(_) => {}
            Err(LogError::Io(cause)) => return Err(LogError::Io(cause)),
            Err(damage) => self.damages.push(damage),
        }
        if self.damages.is_empty() {
            recovered.index.finish_reading();
            let group = |(group, stored): (GroupId, &crate::StoredGroup)| ExaminedGroup {
                group,
                peer: PeerId(stored.peer),
                members: stored.outline.members.clone(),
                rows_invalid: stored.rows_invalid,
                begins_after: Lsn(stored.outline.proposed_start()),
                last: Lsn(stored.outline.last()),
                commit: Lsn(stored.outline.hard.commit),
            };
            self.groups = recovered.index.groups().map(group).collect();
        }
        Ok(())
    }
}

/// Whether the damage in a segment is still to be reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    Damage,
    /// The strict reader has reported it.
    Nothing,
}

#[cfg(test)]
mod tests {
    use io::sim::SimRandom;
    use io::{Files, Random};
    use std::sync::Arc;

    use super::*;
    use crate::entry_compression::EntryCompression;
    use crate::file::{FileStore, StoreOptions};
    use crate::lsn::Durability;
    use crate::record::EntryKind;
    use crate::store::Store;

    const GROUP: GroupId = GroupId(4);
    const ENTRIES: u64 = 40;

    /// A log of a few segments with forty entries of one group, some of them compressed.
    fn made(dir: &Path) {
        let files: Arc<dyn Files> = Arc::new(io::real::RealFiles);
        let options = StoreOptions { segment_bytes: 1000 };
        let random: Arc<dyn Random> = Arc::new(SimRandom::new(5));
        let mut store = FileStore::open(files, random, dir, options).unwrap();
        let members = Members::first(vec![PeerId(9)]);
        store.push(&Record::Member { group: GROUP, peer: 9, members });
        let mut compression = EntryCompression::default();
        for index in 1..=ENTRIES {
            let kind = EntryKind::Proposed(Durability::Hard);
            let is_long = index.is_multiple_of(5);
            let payload = format!("entry {index}").repeat(if is_long { 80 } else { 4 });
            let payload = payload.as_bytes();
            store.make_room().unwrap();
            match compression.compress(GROUP, payload).filter(|_| is_long) {
                Some(frame) => {
                    store.push(&Record::CompressedEntry { group: GROUP, index, term: 1, kind, frame })
                }
                None => store.push(&Record::Entry { group: GROUP, index, term: 1, kind, payload }),
            }
            store.write().unwrap();
        }
        store.begin_sync().run().unwrap();
    }

    fn examine(dir: &Path) -> ExaminedLog {
        ExaminedLog::read(&io::real::RealFiles, dir).unwrap()
    }

    fn found(log: &ExaminedLog) -> Vec<u64> {
        let mut found = Vec::new();
        log.entries(&io::real::RealFiles, GROUP, Lsn(0), |lsn, payload| {
            assert!(payload.starts_with(format!("entry {lsn}").as_bytes()));
            found.push(lsn.0);
        })
        .unwrap();
        found
    }

    #[test]
    fn a_log_is_read_without_changing_it() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        let log = examine(dir.path());
        assert!(log.damages.is_empty(), "{:?}", log.damages);
        assert!(log.segments > 2, "{} segments", log.segments);
        let group = &log.groups[0];
        assert_eq!((group.group, group.last, group.begins_after), (GROUP, Lsn(ENTRIES), Lsn(0)));
        assert_eq!(found(&log), (1..=ENTRIES).collect::<Vec<_>>());
        assert!(log.has_all(GROUP, Lsn(0), Lsn(ENTRIES)) && !log.has_all(GROUP, Lsn(0), Lsn(ENTRIES + 1)));
    }

    #[test]
    fn entries_after_a_damaged_one_are_found() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        let path = segment_path(dir.path(), 1);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(7).position(|part| part == b"entry 3").unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let log = examine(dir.path());
        assert!(matches!(&log.damages[..], [LogError::Damaged { segment, .. }] if *segment == path));
        assert_eq!(found(&log), (1..=ENTRIES).filter(|index| *index != 3).collect::<Vec<_>>());
        assert!(!log.has_all(GROUP, Lsn(0), Lsn(ENTRIES)));
    }

    #[test]
    fn every_damaged_segment_is_named() {
        let dir = tempfile::tempdir().unwrap();
        made(dir.path());
        for number in [1, 2] {
            let path = segment_path(dir.path(), number);
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 100].fill(0xEE);
            std::fs::write(&path, bytes).unwrap();
        }
        let log = examine(dir.path());
        assert!(log.damages.len() >= 2, "{:?}", log.damages);
        std::fs::remove_file(segment_path(dir.path(), 1)).unwrap();
        std::fs::remove_file(segment_path(dir.path(), 3)).unwrap();
        let texts: Vec<String> = examine(dir.path()).damages.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains("is missing")), "{texts:?}");
    }
}
