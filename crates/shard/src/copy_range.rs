//! Finds the rows that two replicas have in common without sending them: ranges of consecutive rows are compared by a
//! digest. docs/decisions/0032-resumable-copies.md.

use bytes::Bytes;
use datum::{KeyBound, KeyRange, PrimaryKey};
use sha2::{Digest, Sha256};
use storage::{Direction, ReadError, RowBatch, RowScan, TableSnapshot};

/// A range of consecutive rows: those after a key known to both replicas, up to and including another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The key of the last row.
    pub last: PrimaryKey,
    pub rows: u64,
    /// The bytes of keys and rows.
    pub bytes: u64,
    /// The SHA-256 of the rows: docs/formats/cluster-request.md.
    pub digest: [u8; 32],
}

/// Bounds the ranges that replicas compare for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRangeSizes {
    /// About how many bytes one range has; at least one row.
    pub bytes: usize,
    /// The most ranges of one request.
    pub count: usize,
}

/// The difference between the rows of two replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// How many of the other replica's ranges, from the first on, are identical.
    pub same: usize,
    /// The key up to which the difference is complete; `None`: up to the end.
    pub reach: Option<PrimaryKey>,
    /// All rows after the identical ranges, ascending.
    pub rows: Vec<(PrimaryKey, Bytes)>,
}

impl CopyRange {
    /// Divides the rows of `snapshot` after `after` into copy ranges. Empty if there are no rows.
    pub fn after(
        snapshot: &TableSnapshot,
        after: Option<&PrimaryKey>,
        sizes: CopyRangeSizes,
    ) -> Result<Vec<CopyRange>, ReadError> {
        let mut walk = RowWalk::after(snapshot, after);
        let (mut copy_ranges, mut run) = (Vec::new(), RowRun::default());
        while copy_ranges.len() < sizes.count {
            let Some((key, row)) = walk.peek()? else { break };
            walk.step();
            run.add(&key, &row);
            if run.bytes >= sizes.bytes as u64 {
                copy_ranges.push(std::mem::take(&mut run).end(key));
            } else {
                run.last = Some(key);
            }
        }
        if let Some(last) = run.last.take() {
            copy_ranges.push(run.end(last));
        }
        Ok(copy_ranges)
    }
}

impl Difference {
    /// The difference of `snapshot` from a replica that has `theirs` after `after`: about `bytes_max` bytes of rows, at
    /// least one row if there is any.
    ///
    /// Fails with [`ReadError::Corrupt`] if a row is damaged: damage is never copied.
    pub fn with(
        snapshot: &TableSnapshot,
        after: Option<&PrimaryKey>,
        theirs: &[CopyRange],
        bytes_max: usize,
    ) -> Result<Difference, ReadError> {
        let mut walk = RowWalk::after(snapshot, after);
        let mut found = Difference { same: 0, reach: None, rows: Vec::new() };
        let (mut bytes, mut differs) = (0, false);
        for copy_range in theirs {
            let (run, is_whole) = walk.run_to(copy_range, (bytes_max as u64).saturating_sub(bytes))?;
            let is_same = is_whole
                && (run.count, run.bytes) == (copy_range.rows, copy_range.bytes)
                && run.digest() == copy_range.digest;
            match (is_same, differs) {
                (true, false) => found.same += 1,
                // The next request begins there.
                (true, true) => return Ok(found),
                (false, _) => {
                    differs = true;
                    bytes += run.bytes;
                    found.rows.extend(run.rows);
                }
            }
            found.reach = match is_whole {
                true => Some(copy_range.last.clone()),
                false => found.rows.last().map(|(key, _)| key.clone()),
            };
            if !is_whole || bytes >= bytes_max as u64 {
                return Ok(found);
            }
        }
        while theirs.is_empty() && (found.rows.is_empty() || bytes < bytes_max as u64) {
            let Some((key, row)) = walk.verified()? else { break };
            bytes += (key.as_bytes().len() + row.len()) as u64;
            found.reach = Some(key.clone());
            found.rows.push((key, row));
        }
        if walk.peek()?.is_none() {
            found.reach = None;
        }
        Ok(found)
    }

    /// Whether this is a valid response for a replica that has `theirs` after `after`: it makes progress, and its rows
    /// ascend.
    #[must_use]
    pub fn fits(&self, after: Option<&PrimaryKey>, theirs: &[CopyRange]) -> bool {
        let Some(same) = theirs.get(..self.same) else { return false };
        let known = same.last().map(|copy_range| &copy_range.last).or(after);
        let ascends = self.rows.is_sorted_by(|(a, _), (b, _)| a < b);
        let begins = self.rows.first().is_none_or(|(first, _)| Some(first) > known);
        let ends = match (&self.reach, self.rows.last()) {
            (None, _) => true,
            (Some(reach), last) => {
                Some(reach) > after && Some(reach) >= known && last.is_none_or(|(last, _)| last <= reach)
            }
        };
        ascends && begins && ends
    }
}

/// The range after `after`, up to and including `last`.
pub(crate) fn range_after(after: Option<&PrimaryKey>, last: Option<&PrimaryKey>) -> KeyRange {
    let start = after.map_or(KeyBound::Unbounded, |key| KeyBound::Excluded(key.clone()));
    let end = last.map_or(KeyBound::Unbounded, |key| KeyBound::Included(key.clone()));
    KeyRange { start, end }
}

/// Consecutive rows.
#[derive(Default)]
struct RowRun {
    digest: Sha256,
    bytes: u64,
    count: u64,
    rows: Vec<(PrimaryKey, Bytes)>,
    last: Option<PrimaryKey>,
}

impl RowRun {
    fn add(&mut self, key: &PrimaryKey, row: &Bytes) {
        let lens = [key.as_bytes().len(), row.len()];
        // Keys and rows have less than 4 GiB: docs/formats/row.md.
        lens.iter().for_each(|len| self.digest.update((*len as u32).to_le_bytes()));
        self.digest.update(key.as_bytes());
        self.digest.update(row);
        self.bytes += lens.iter().sum::<usize>() as u64;
        self.count += 1;
    }

    fn digest(&self) -> [u8; 32] {
        self.digest.clone().finalize().into()
    }

    fn end(self, last: PrimaryKey) -> CopyRange {
        let digest = self.digest();
        CopyRange { last, rows: self.count, bytes: self.bytes, digest }
    }
}

/// A scan of stored rows with lookahead.
struct RowWalk {
    scan: RowScan,
    batch: Option<RowBatch>,
    at: usize,
}

impl RowWalk {
    fn after(snapshot: &TableSnapshot, after: Option<&PrimaryKey>) -> RowWalk {
        let scan = snapshot.scan(&range_after(after, None), Direction::Ascending).to_the_end();
        RowWalk { scan, batch: None, at: 0 }
    }

    /// The next row, without advancing.
    fn peek(&mut self) -> Result<Option<(PrimaryKey, Bytes)>, ReadError> {
        if self.batch.as_ref().is_none_or(|batch| self.at == batch.len()) {
            (self.batch, self.at) = (self.scan.next_batch()?, 0);
        }
        Ok(self.batch.as_ref().map(|batch| (batch.key(self.at), batch.row_bytes(self.at))))
    }

    fn step(&mut self) {
        self.at += 1;
    }

    /// The next row, its checksum verified.
    fn verified(&mut self) -> Result<Option<(PrimaryKey, Bytes)>, ReadError> {
        let row = self.peek()?;
        if let Some(batch) = self.batch.as_ref().filter(|_| row.is_some()) {
            batch.object(self.at)?;
            self.step();
        }
        Ok(row)
    }

    /// The rows up to the end of `copy_range`, and whether they are complete. Once the range certainly differs, stops
    /// after about `bytes_max` bytes and at least one row.
    fn run_to(&mut self, copy_range: &CopyRange, bytes_max: u64) -> Result<(RowRun, bool), ReadError> {
        let mut run = RowRun::default();
        while self.peek()?.is_some_and(|(key, _)| key <= copy_range.last) {
            if run.bytes > copy_range.bytes && run.bytes >= bytes_max {
                return Ok((run, false));
            }
            let Some((key, row)) = self.verified()? else { break };
            run.add(&key, &row);
            run.rows.push((key, row));
        }
        Ok((run, true))
    }
}
