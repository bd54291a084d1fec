//! Reads rows from a file, one after the other. Lines that are no rows are counted and named.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use super::columns::{LineError, Row, parse};

/// How many broken lines are named.
const NAMED_MAX: usize = 10;
/// A longer line is not read into memory.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// What to do about lines that are no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBrokenLine {
    /// Leave them out.
    Skip,
    Stop,
}

/// Why no more rows can be read.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file cannot be opened or read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    /// A line is no row, and the load was to stop there.
    #[error("line {number} of {}: {cause}", path.display())]
    Broken {
        path: PathBuf,
        /// The number of the line, from 1.
        number: u64,
        cause: LineError,
    },
}

/// The lines that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokenLines {
    /// How many, by kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first ones.
    pub named: Vec<String>,
}

impl BrokenLines {
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    fn add(&mut self, number: u64, cause: &LineError) {
        *self.counts.entry(cause.kind()).or_default() += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("line {number}: {cause}"));
        }
    }
}

/// Reads rows line by line.
pub struct RowFile {
    path: PathBuf,
    lines: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    on_broken: OnBrokenLine,
    /// Hashes of the keys so far, unless keys may repeat.
    keys: Option<HashSet<u64>>,
    hasher: RandomState,
    broken: BrokenLines,
    /// Bytes of the lines of all rows so far, with their line breaks.
    bytes: u64,
}

impl RowFile {
    /// Opens `path`. With `once`, a key that stands in an earlier line is an error.
    pub fn open(path: &Path, on_broken: OnBrokenLine, once: bool) -> Result<RowFile, RowsError> {
        let unreadable = |cause| RowsError::Unreadable { path: path.to_owned(), cause };
        let file = File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(unreadable(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        Ok(RowFile {
            path: path.to_owned(),
            lines: BufReader::with_capacity(1 << 20, file),
            line: Vec::new(),
            number: 0,
            on_broken,
            keys: once.then(HashSet::new),
            hasher: RandomState::new(),
            broken: BrokenLines::default(),
            bytes: 0,
        })
    }

    /// The next row, or `None` at the end of the file.
    pub fn next_row(&mut self) -> Result<Option<Row>, RowsError> {
        while self.read_line()? {
            let parsed = parse(&self.line).and_then(|row| self.check_once(row));
            match parsed {
                Ok(row) => {
                    self.bytes += self.line.len() as u64 + 1;
                    return Ok(Some(row));
                }
                Err(cause) if self.on_broken == OnBrokenLine::Stop => {
                    return Err(RowsError::Broken { path: self.path.clone(), number: self.number, cause });
                }
                Err(cause) => self.broken.add(self.number, &cause),
            }
        }
        Ok(None)
    }

    /// Continues at the beginning of the file.
    pub fn rewind(&mut self) -> Result<(), RowsError> {
        self.number = 0;
        self.lines.rewind().map_err(|cause| RowsError::Unreadable { path: self.path.clone(), cause })
    }

    pub fn broken(&self) -> &BrokenLines {
        &self.broken
    }

    /// Bytes of the lines of all rows so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn check_once(&mut self, row: Row) -> Result<Row, LineError> {
        let Some(keys) = &mut self.keys else { return Ok(row) };
        match keys.insert(self.hasher.hash_one(&row.key)) {
            true => Ok(row),
            false => Err(LineError::Repeated),
        }
    }

    /// Reads a line without its line break; `false` at the end of the file.
    fn read_line(&mut self) -> Result<bool, RowsError> {
        self.line.clear();
        let mut limited = std::io::Read::take(&mut self.lines, LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut self.line);
        let read = read.map_err(|cause| RowsError::Unreadable { path: self.path.clone(), cause })?;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.number += u64::from(read > 0);
        Ok(read > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str) -> String {
        let rest: Vec<String> = (1..15).map(|column| format!("'{column}'")).collect();
        format!("{id}\t{}", rest.join("\t"))
    }

    #[test]
    fn broken_lines_are_counted_and_named_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.tsv");
        let text = [line("1"), "a\tb".to_owned(), String::new(), line("2"), line("1"), line("3")].join("\n");
        let bytes = [text.as_bytes(), b"\nx\t\xFF\n", line("4").as_bytes(), b"\r\n"].concat();
        std::fs::write(&path, bytes).unwrap();
        let mut rows = RowFile::open(&path, OnBrokenLine::Skip, true).unwrap();
        let mut ids = Vec::new();
        while let Some(row) = rows.next_row().unwrap() {
            ids.push(row.key.split('\t').next().unwrap().to_owned());
        }
        assert_eq!(ids, ["1", "2", "3", "4"]);
        let broken = rows.broken().clone();
        let counts: Vec<_> = broken.counts.clone().into_iter().collect();
        assert_eq!(counts, [("not UTF-8", 1), ("repeated key", 1), ("wrong columns", 2)]);
        assert_eq!((broken.total(), &*broken.named[0]), (4, "line 2: 2 columns instead of 15"));
        rows.rewind().unwrap();
        assert!(rows.next_row().unwrap().is_none(), "every key stands in an earlier line");

        let mut rows = RowFile::open(&path, OnBrokenLine::Stop, true).unwrap();
        rows.next_row().unwrap();
        let error = rows.next_row().unwrap_err().to_string();
        assert!(error.starts_with("line 2 of ") && error.ends_with("2 columns instead of 15"), "{error}");
        assert!(RowFile::open(folder.path(), OnBrokenLine::Skip, true).is_err());
        assert!(RowFile::open(&folder.path().join("none"), OnBrokenLine::Skip, true).is_err());
    }
}
