//! The disk's own rate of random reads: blocks of files, read past the page cache by as many threads as reads are to be in
//! flight. `fio` with `rw=randread`, `direct=1` and `ioengine=psync` does the same.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::rng::Rng;

/// The unit of a read, and of its place in memory and in the file.
const BLOCK_BYTES: usize = 4096;
/// The streams of random numbers begin here.
const STREAM: u64 = 5_000_000;

/// Why the disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum RandomReadError {
    /// There is nothing to read.
    #[error("the files have less than {BLOCK_BYTES} bytes")]
    Empty,
    /// Usually because the file system has no reads past the page cache.
    #[error("{} cannot be read past the page cache", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A read failed.
    #[error("a read has failed: {0}")]
    Failed(io::Error),
}

/// A file and the number of blocks before its end, over this file and those before it.
struct Span {
    file: File,
    blocks_end: u64,
}

/// Random reads of 4 KB a second from `files`, with `in_flight` of them at a time, for as long as `time`.
pub fn per_second(
    files: &[PathBuf],
    in_flight: usize,
    time: Duration,
    seed: u64,
) -> Result<f64, RandomReadError> {
    let spans = open(files)?;
    let started = Instant::now();
    let counts: Vec<io::Result<u64>> = thread::scope(|scope| {
        let reader = |thread: usize| {
            let rng = Rng::new(seed, STREAM + thread as u64);
            let spans = &spans;
            scope.spawn(move || read(spans, rng, started + time))
        };
        let readers: Vec<_> = (0..in_flight).map(reader).collect();
        let lost = || Err(io::Error::other("a thread has failed"));
        readers.into_iter().map(|reader| reader.join().unwrap_or_else(|_| lost())).collect()
    });
    let reads: io::Result<u64> = counts.into_iter().sum();
    Ok(reads.map_err(RandomReadError::Failed)? as f64 / started.elapsed().as_secs_f64())
}

/// The files under `folder` at any depth, in the order of their paths. Folders that cannot be read have none.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_in(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

fn open(files: &[PathBuf]) -> Result<Vec<Span>, RandomReadError> {
    let (mut spans, mut blocks_end) = (Vec::new(), 0);
    for path in files {
        let unreadable = |cause| RandomReadError::Unreadable { path: path.clone(), cause };
        let flags = OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
        let blocks = file.metadata().map_err(unreadable)?.len() / BLOCK_BYTES as u64;
        if blocks > 0 {
            blocks_end += blocks;
            spans.push(Span { file, blocks_end });
        }
    }
    if spans.is_empty() { Err(RandomReadError::Empty) } else { Ok(spans) }
}

/// Reads until `end`; returns the number of reads.
fn read(spans: &[Span], mut rng: Rng, end: Instant) -> io::Result<u64> {
    // The kernel requires an aligned place in memory.
    let mut memory = vec![0; 2 * BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    let place = memory.get_mut(start..start + BLOCK_BYTES).ok_or(ErrorKind::OutOfMemory)?;
    let blocks = spans.last().map_or(0, |span| span.blocks_end);
    let mut reads = 0;
    while Instant::now() < end {
        let block = rng.below(blocks);
        let number = spans.partition_point(|span| span.blocks_end <= block);
        let Some(span) = spans.get(number) else { return Err(ErrorKind::UnexpectedEof.into()) };
        let before = number.checked_sub(1).map_or(0, |before| spans[before].blocks_end);
        span.file.read_exact_at(place, (block - before) * BLOCK_BYTES as u64)?;
        reads += 1;
    }
    Ok(reads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        for (name, bytes) in [("a", 3 * BLOCK_BYTES + 5), ("inner/b", BLOCK_BYTES), ("c", 10)] {
            std::fs::write(folder.path().join(name), vec![7; bytes]).unwrap();
        }
        let files = files_in(folder.path());
        assert_eq!(files.len(), 3);
        match per_second(&files, 4, Duration::from_millis(50), 1) {
            Ok(rate) => assert!(rate > 0.0, "{rate}"),
            // A file system in memory has no such reads.
            Err(RandomReadError::Unreadable { cause, .. }) => {
                assert_eq!(cause.kind(), ErrorKind::InvalidInput);
            }
            Err(other) => panic!("{other}"),
        }
        let none = per_second(&[folder.path().join("c")], 1, Duration::from_millis(1), 1);
        assert!(none.is_err(), "{none:?}");
    }
}
