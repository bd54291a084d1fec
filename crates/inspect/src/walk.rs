//! Reads all pairs of a space in order and goes on after damaged blocks.
//!
//! RocksDB ends a scan at a damaged block and does not say with which key the next block begins. So the walk seeks: keys
//! further and further after the last good one, until a seek succeeds, and then back by bisection. Between the two, the
//! blocks are read once more without their checksums. Rows and dictionaries have checksums of their own, so the undamaged
//! ones are found.

use std::ops::Bound;

use bytes::Bytes;
use engine::rocks::RocksEngine;
use engine::{Direction, Engine, EngineError, Space};
use storage::after_prefix;

/// Something that the walk found.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A pair from an undamaged block.
    Pair { key: &'a [u8], value: &'a [u8] },
    /// A pair from a damaged block: its key or its value may be wrong, and it may be an older version.
    Doubtful { key: &'a [u8], value: &'a [u8] },
    /// A block cannot be read as it was written.
    Damage { range: Range<'a>, cause: &'a EngineError },
    /// Even without checksums, nothing of this range can be read.
    Lost { range: Range<'a>, cause: &'a EngineError },
}

/// Keys after one and before another; `None` for no bound.
#[derive(Clone, Copy, Debug)]
pub struct Range<'a> {
    pub after: Option<&'a [u8]>,
    pub before: Option<&'a [u8]>,
}

/// Calls `each` with everything in `space` from the key `from` on and before the key `until`, in the order of the keys.
pub fn walk(
    engine: &RocksEngine,
    space: Space,
    (from, until): (&[u8], Option<&[u8]>),
    each: &mut dyn FnMut(Found<'_>),
) -> Result<(), EngineError> {
    let snapshot = engine.snapshot()?;
    let mut start = from.to_vec();
    loop {
        let range = (Bound::Included(&start[..]), until.map_or(Bound::Unbounded, Bound::Excluded));
        let mut scan = snapshot.clone().scan(space, range, Direction::Ascending);
        let mut last: Option<Vec<u8>> = None;
        let cause = loop {
            match scan.next() {
                Ok(Some((key, value))) => {
                    each(Found::Pair { key, value });
                    let last = last.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(key);
                }
                Ok(None) => return Ok(()),
                Err(cause) => break cause,
            }
        };
        drop(scan);
        let seen = match &last {
            Some(last) => last.clone(),
            None => start.clone().max(lowest_key(engine, space)?),
        };
        let next =
            next_readable(engine, space, &seen)?.filter(|next| until.is_none_or(|until| &next[..] < until));
        let damaged = Range { after: last.as_deref(), before: next.as_deref().or(until) };
        each(Found::Damage { range: damaged, cause: &cause });
        let from = last.as_deref().map_or(Bound::Included(&start[..]), Bound::Excluded);
        read_damaged(engine, space, from, damaged, each);
        match next {
            Some(next) => start = next.to_vec(),
            None => return Ok(()),
        }
    }
}

/// The lowest key of all files of a space.
pub(crate) fn lowest_key(engine: &RocksEngine, space: Space) -> Result<Vec<u8>, EngineError> {
    let files = engine.files()?.into_iter().filter(|file| file.space == Some(space));
    Ok(files.map(|file| file.first).min().unwrap_or_default())
}

/// Reads damaged blocks without their checksums.
fn read_damaged(
    engine: &RocksEngine,
    space: Space,
    start: Bound<&[u8]>,
    range: Range<'_>,
    each: &mut dyn FnMut(Found<'_>),
) {
    let end = range.before.map_or(Bound::Unbounded, Bound::Excluded);
    let mut scan = engine.scan_unverified(space, (start, end));
    let mut last = range.after.map(<[u8]>::to_vec);
    loop {
        match scan.next() {
            Ok(Some((key, value))) => {
                each(Found::Doubtful { key, value });
                last = Some(key.to_vec());
            }
            Ok(None) => return,
            Err(cause) => {
                let range = Range { after: last.as_deref(), before: range.before };
                each(Found::Lost { range, cause: &cause });
                return;
            }
        }
    }
}

/// The first key after a damaged block that begins after `after`. `None` if there is none.
pub(crate) fn next_readable(
    engine: &RocksEngine,
    space: Space,
    after: &[u8],
) -> Result<Option<Bytes>, EngineError> {
    // The highest probe that failed, and the first that succeeded.
    let mut failed = after.to_vec();
    failed.push(0);
    let mut readable = None;
    for len in (0..=after.len()).rev() {
        let Some(probe) = after_prefix(&after[..len]) else { continue };
        if is_readable(engine, space, &probe)? {
            readable = Some(probe);
            break;
        }
        failed = probe;
    }
    let Some(mut readable) = readable else {
        return Ok(None);
    };
    for _ in 0..BISECTIONS_MAX {
        let Some(middle) = between(&failed, &readable) else { break };
        match is_readable(engine, space, &middle)? {
            true => readable = middle,
            false => failed = middle,
        }
    }
    first_key(engine, space, &readable)
}

/// Enough for the distance of two keys that differ in their first byte and have 32 more.
const BISECTIONS_MAX: usize = 264;

/// A key about half way between two keys, as binary fractions with 33 bytes after their common prefix. `None` if there is
/// none.
fn between(low: &[u8], high: &[u8]) -> Option<Vec<u8>> {
    const BYTES: usize = 33;
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let digit = |key: &[u8], at: usize| u16::from(key.get(common + at).copied().unwrap_or(0));
    let mut sum = [0_u16; BYTES];
    let mut carry = 0;
    for at in (0..BYTES).rev() {
        let total = digit(low, at) + digit(high, at) + carry;
        (sum[at], carry) = (total & 0xff, total >> 8);
    }
    let mut middle = low[..common].to_vec();
    for digit in sum {
        let total = carry << 8 | digit;
        middle.push((total >> 1) as u8);
        carry = total & 1;
    }
    while middle.len() > low.len().max(common + 1) && middle.last() == Some(&0) {
        middle.pop();
    }
    (middle.as_slice() > low && middle.as_slice() < high).then_some(middle)
}

/// Whether a scan can begin at `key`.
fn is_readable(engine: &RocksEngine, space: Space, key: &[u8]) -> Result<bool, EngineError> {
    let range = (Bound::Included(key), Bound::Unbounded);
    let mut scan = engine.snapshot()?.scan(space, range, Direction::Ascending);
    Ok(scan.next().is_ok())
}

fn first_key(engine: &RocksEngine, space: Space, from: &[u8]) -> Result<Option<Bytes>, EngineError> {
    let range = (Bound::Included(from), Bound::Unbounded);
    let mut scan = engine.snapshot()?.scan(space, range, Direction::Ascending);
    Ok(scan.next()?.map(|(key, _)| Bytes::copy_from_slice(key)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use engine::Batch;
    use engine::rocks::{EngineOptions, Tolerance};

    use super::*;

    const ROWS: u32 = 5000;
    /// A key is stored as its difference from the one before, up to so many in a row: one damaged byte may change them all.
    const SHARED: usize = 8;

    fn options() -> EngineOptions {
        EngineOptions { cache_bytes: 8 << 20, write_buffer_bytes: 32 << 20, ..EngineOptions::default() }
    }

    fn key(row: u32) -> Vec<u8> {
        // Not in the order of their numbers, as random keys.
        format!("table {:08x}", row.wrapping_mul(0x9E37_79B1)).into_bytes()
    }

    fn value(row: u32) -> Vec<u8> {
        format!("value {row} ").repeat(20).into_bytes()
    }

    /// An engine of five thousand rows in one file, whose path is returned.
    fn made(dir: &Path) -> std::path::PathBuf {
        let engine = RocksEngine::open(dir, &options()).unwrap();
        let mut batch = Batch::new();
        for row in 0..ROWS {
            batch.put(Space::Rows, &key(row), value(row).into());
        }
        engine.write(batch).unwrap();
        engine.flush().unwrap();
        let files = engine.files().unwrap();
        dir.join(&files.iter().find(|file| file.space == Some(Space::Rows)).unwrap().name)
    }

    #[derive(Default)]
    struct Walked {
        good: usize,
        doubtful: Vec<(Vec<u8>, Vec<u8>)>,
        damages: Vec<String>,
        lost: usize,
    }

    fn walked(dir: &Path) -> Walked {
        let engine = RocksEngine::open_read_only(dir, &options(), Tolerance::Damage).unwrap();
        let mut walked = Walked::default();
        walk(&engine, Space::Rows, (b"", None), &mut |found| match found {
            Found::Pair { .. } => walked.good += 1,
            Found::Doubtful { key, value } => walked.doubtful.push((key.to_vec(), value.to_vec())),
            Found::Damage { cause, .. } => walked.damages.push(cause.to_string()),
            Found::Lost { .. } => walked.lost += 1,
        })
        .unwrap();
        walked
    }

    #[test]
    fn one_block_is_skipped_and_what_is_left_of_it_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(walked(dir.path()).good, ROWS as usize);
        for at in [10, 100_000, whole.len() / 2] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            let walked = walked(dir.path());
            assert_eq!(walked.damages.len(), 1, "{:?}", walked.damages);
            assert!(walked.damages[0].contains(".sst"), "{:?}", walked.damages);
            assert!(walked.doubtful.len() < 200, "{} doubtful", walked.doubtful.len());
            let known: std::collections::HashMap<_, _> =
                (0..ROWS).map(|row| (key(row), value(row))).collect();
            let right = walked.doubtful.iter().filter(|(key, value)| known.get(key) == Some(value)).count();
            assert!(walked.good + right >= ROWS as usize - SHARED, "{} and {right}", walked.good);
            assert_eq!(walked.lost, 0);
        }
    }

    #[test]
    fn several_blocks_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        for at in [50_000, 200_000, 201_000, 600_000] {
            bytes[at] ^= 0x10;
        }
        std::fs::write(&path, &bytes).unwrap();
        let walked = walked(dir.path());
        assert!((2..=4).contains(&walked.damages.len()), "{:?}", walked.damages);
        assert!(walked.good + walked.doubtful.len() >= ROWS as usize - 4 * SHARED);
    }

    #[test]
    fn a_missing_file_ends_the_walk_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = made(dir.path());
        std::fs::remove_file(&path).unwrap();
        let walked = walked(dir.path());
        assert_eq!((walked.good, walked.damages.len(), walked.lost), (0, 1, 1));
    }

    #[test]
    fn the_middle_of_two_keys_lies_between_them() {
        for (low, high) in [("a", "c"), ("a", "b"), ("table x", "table y"), ("ab", "b"), ("a\0", "b")] {
            let middle = between(low.as_bytes(), high.as_bytes()).unwrap();
            assert!(low.as_bytes() < &middle[..] && &middle[..] < high.as_bytes(), "{low} {high} {middle:?}");
        }
        assert_eq!(between(b"a", b"a\0"), None);
    }
}
