//! Reads and checks the segments of a folder when the log is opened, and finds the end of the log. Changes nothing on
//! disk; the store removes a torn tail. docs/formats/log.md.

use std::path::{Path, PathBuf};

use io::Files;

use super::high_water_mark::HighWaterMark;
use super::index::{Index, Segment};
use crate::error::LogError;
use crate::lsn::Position;
use crate::record::Record;
use crate::recovery::{Scanner, SegmentEnd};
use crate::segment::{FORMAT_VERSION, HeaderError, SegmentHeader, segment_number, segment_path};

/// The log as it was read.
#[derive(Default)]
pub(super) struct RecoveredLog {
    pub index: Index,
    /// The header of the last segment; `None` if there is no segment.
    pub last: Option<SegmentHeader>,
    /// The offset of the torn tail of the last segment, if it has one.
    pub torn_at: Option<u64>,
}

/// Whether there is a log in `dir`, empty or not. Reads no segment.
pub fn exists(files: &dyn Files, dir: &Path) -> std::io::Result<bool> {
    Ok(!segments(files, dir)?.is_empty())
}

/// Whether the log in `dir` has a replica of any group. Reads the log up to the first one. Damage is ignored here and
/// reported by [`super::FileLog::open`].
pub fn has_replicas(files: &dyn Files, dir: &Path) -> std::io::Result<bool> {
    let is_replica = |(_, record): (usize, Record<&[u8]>)| matches!(record, Record::Member { .. });
    for path in segments(files, dir)? {
        let bytes = files.read(&path)?;
        if Scanner::new(&bytes).is_ok_and(|mut records| records.any(is_replica)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn segments(files: &dyn Files, dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    match files.list(dir) {
        Ok(mut inside) => {
            inside.retain(|path| segment_number(path).is_some());
            Ok(inside)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

pub(super) fn read_segments(files: &dyn Files, dir: &Path) -> Result<RecoveredLog, LogError> {
    let mut found = RecoveredLog::default();
    let paths = segment_paths(files, dir)?;
    for (nth, (number, path)) in paths.iter().enumerate() {
        let is_last = nth + 1 == paths.len();
        let bytes = files.read(path)?;
        found.read_segment(*number, path, &bytes, is_last)?;
    }
    found.index.finish_reading();
    Ok(found)
}

/// The segments in `dir`, lowest first.
pub(super) fn segment_files(files: &dyn Files, dir: &Path) -> Result<Vec<(u64, PathBuf)>, LogError> {
    let mut paths: Vec<(u64, PathBuf)> = Vec::new();
    for path in files.list(dir)? {
        if let Some(number) = segment_number(&path) {
            paths.push((number, path));
        }
    }
    paths.sort();
    Ok(paths)
}

/// As [`segment_files`]. A missing number is damage.
fn segment_paths(files: &dyn Files, dir: &Path) -> Result<Vec<(u64, PathBuf)>, LogError> {
    let paths = segment_files(files, dir)?;
    for pair in paths.windows(2) {
        if pair[1].0 != pair[0].0 + 1 {
            return Err(damaged(&pair[1].1, 0, "the segment before it is missing"));
        }
    }
    Ok(paths)
}

fn damaged(path: &Path, offset: u64, what: &str) -> LogError {
    LogError::Damaged { segment: path.to_owned(), offset, what: what.to_owned() }
}

impl RecoveredLog {
    /// Fails if the log ends before its high-water mark.
    pub fn check_end(&self, mark: Option<HighWaterMark>, dir: &Path) -> Result<(), LogError> {
        let Some(HighWaterMark { log_id, at }) = mark else { return Ok(()) };
        let (last, bytes) =
            self.index.segments.back().map_or((0, 0), |segment| (segment.number, segment.bytes));
        let path = segment_path(dir, last);
        if self.last.is_some_and(|header| header.log_id != log_id) {
            return Err(damaged(&path, 24, "segment belongs to another log"));
        }
        if last < at.segment {
            return Err(LogError::Missing { dir: dir.to_owned(), last, newest: at.segment });
        }
        match last == at.segment && bytes < at.offset {
            true => Err(damaged(&path, bytes, &format!("it was durable up to byte {}", at.offset))),
            false => Ok(()),
        }
    }

    /// Adds the records of the next segment. Fails if it is damaged, or does not follow the segments before it.
    pub(super) fn read_segment(
        &mut self,
        number: u64,
        path: &Path,
        bytes: &[u8],
        is_last: bool,
    ) -> Result<(), LogError> {
        let mut scanner = Scanner::new(bytes).map_err(|cause| match cause {
            HeaderError::Invalid => damaged(path, 0, "not a segment header"),
            HeaderError::Version { found } => {
                LogError::Version { segment: path.to_owned(), found, known: FORMAT_VERSION }
            }
        })?;
        let header = *scanner.header();
        self.check_header(number, path, &header)?;
        self.index.segments.push_back(Segment::new(number, 0));
        for (offset, record) in scanner.by_ref() {
            let at = Position { segment: number, offset: offset as u64 };
            self.index.add(&record, at).map_err(|what| damaged(path, at.offset, what))?;
        }
        let end = match scanner.end() {
            SegmentEnd::Whole => bytes.len(),
            SegmentEnd::Torn { offset } if is_last => offset,
            SegmentEnd::Torn { offset } | SegmentEnd::Damaged { offset } => {
                return Err(damaged(path, offset as u64, "record does not match its checksum"));
            }
        };
        self.torn_at = (end < bytes.len()).then_some(end as u64);
        self.last = Some(header);
        if let Some(segment) = self.index.segments.back_mut() {
            segment.bytes = end as u64;
        }
        Ok(())
    }

    /// A segment must have the number in its name, belong to the same log, and follow the one before it.
    fn check_header(&self, number: u64, path: &Path, header: &SegmentHeader) -> Result<(), LogError> {
        if header.number != number {
            return Err(damaged(path, 16, "segment has the number of another"));
        }
        let (Some(before), Some(segment)) = (&self.last, self.index.segments.back()) else {
            return Ok(());
        };
        if header.log_id != before.log_id {
            return Err(damaged(path, 24, "segment belongs to another log"));
        }
        if (header.previous, header.previous_bytes) != (segment.number, segment.bytes) {
            return Err(damaged(path, 32, "segment before it has another length"));
        }
        Ok(())
    }
}
