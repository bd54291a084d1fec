//! Estimates of the sizes of a table: of its texts, and of the space that they take.

use std::ops::Bound;

use datum::KeyRange;
use engine::{Direction, Space};

use crate::layout::{after_prefix, dictionaries_prefix};
use crate::{ReadError, TableSnapshot};

/// The most rows that are read to estimate the length of a row, and the most places where they are read.
const SAMPLE_ROWS: usize = 512;
const SAMPLE_PLACES: usize = 64;

impl TableSnapshot {
    /// About how long the JSON text of a row of the shard is in bytes. Reads some hundred rows at most. Zero if there
    /// are no rows.
    pub fn mean_text_bytes(&self) -> Result<f64, ReadError> {
        let (mut rows, mut bytes) = (0_u64, 0_u64);
        let places = self.split(&KeyRange::all(), SAMPLE_PLACES)?;
        for place in &places {
            let mut scan = self.scan(place, Direction::Ascending).at_most(SAMPLE_ROWS / places.len());
            while let Some(row) = scan.next_view()? {
                rows += 1;
                bytes += row.json().len() as u64;
            }
        }
        Ok(if rows == 0 { 0.0 } else { bytes as f64 / rows as f64 })
    }

    /// About how many bytes the entries of all indexes of the table take, those of its other shards on this node
    /// included.
    pub fn index_bytes(&self) -> Result<u64, ReadError> {
        self.bytes_under(Space::Index, self.table().as_bytes())
    }

    /// About how many bytes the dictionaries of the table take, with which its rows are compressed.
    pub fn dictionary_bytes(&self) -> Result<u64, ReadError> {
        self.bytes_under(Space::Meta, &dictionaries_prefix(self.table()))
    }

    fn bytes_under(&self, space: Space, prefix: &[u8]) -> Result<u64, ReadError> {
        let end = after_prefix(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.view().bytes_in(space, (Bound::Included(prefix), end))?)
    }
}
