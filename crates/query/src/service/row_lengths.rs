//! The mean length of the rows of each table, which is sampled and then known for some seconds.

use std::collections::HashMap;
use std::time::Duration;

use io::Nanos;
use parking_lot::Mutex;
use storage::TableId;

/// How long a sample is good for, unless the table grows or shrinks.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(10);
/// A sample is taken again when the number of rows has changed by more than one in this many.
const CHANGE_DIVISOR: u64 = 10;

/// The mean lengths of the rows of tables.
#[derive(Debug, Default)]
pub(crate) struct RowLengths(Mutex<HashMap<TableId, Sample>>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Nanos,
    rows: u64,
    mean_bytes: f64,
}

impl RowLengths {
    /// The mean length of the rows of `table`, which has `rows` of them, from the last sample, or else from `sample`.
    pub fn mean_bytes(&self, table: TableId, now: Nanos, rows: u64, sample: impl FnOnce() -> f64) -> f64 {
        let known = self.0.lock().get(&table).copied();
        if let Some(known) = known
            && now.since(known.at) < SAMPLE_AGE_MAX
            && known.rows.abs_diff(rows) <= known.rows / CHANGE_DIVISOR
        {
            return known.mean_bytes;
        }
        let mean_bytes = sample();
        self.0.lock().insert(table, Sample { at: now, rows, mean_bytes });
        mean_bytes
    }

    /// Removes the tables that are gone.
    pub fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        self.0.lock().retain(|table, _| is_there(*table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_taken_when_it_is_old_or_the_table_has_changed() {
        let table = TableId::from_uuid(uuid::Uuid::from_u128(7));
        let (lengths, at) = (RowLengths::default(), |seconds: u64| Nanos(seconds * 1_000_000_000));
        assert_eq!(lengths.mean_bytes(table, at(0), 0, || 0.0), 0.0);
        assert_eq!(lengths.mean_bytes(table, at(1), 1, || 50.0), 50.0);
        assert_eq!(lengths.mean_bytes(table, at(1), 100, || 60.0), 60.0);
        assert_eq!(lengths.mean_bytes(table, at(2), 110, || 70.0), 60.0);
        assert_eq!(lengths.mean_bytes(table, at(2), 111, || 70.0), 70.0);
        assert_eq!(lengths.mean_bytes(table, at(20), 111, || 80.0), 80.0);
        lengths.retain(|_| false);
        assert_eq!(lengths.mean_bytes(table, at(20), 111, || 90.0), 90.0);
    }
}
