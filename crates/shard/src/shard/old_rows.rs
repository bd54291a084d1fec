//! The rows that writes are evaluated on. Nothing waits for the disk under a latch, as writers of other rows would wait
//! with it: rows that are not in memory are read before the latches are taken.

use datum::{Object, PrimaryKey};
use log::Term;
use storage::{Reach, ReadError, RowAhead, Table};

use super::Shard;
use crate::entry_builder::EntryBuilder;
use crate::latch::HeldLatches;
use crate::{WriteError, WriteRefusal};

/// A write that holds its latches, with the rows it is evaluated on, in the order of its keys.
pub(super) struct LatchedWrite<'a> {
    pub held: HeldLatches<'a>,
    pub term: Term,
    pub builder: EntryBuilder,
    pub old_rows: Vec<Option<Object>>,
}

impl LatchedWrite<'_> {
    /// Takes the latches of `keys` and finds the rows under them, as far as `reach` goes.
    pub(super) fn take<'a>(
        shard: &'a Shard,
        keys: &[PrimaryKey],
        reach: Reach,
    ) -> Result<LatchedWrite<'a>, WriteError> {
        match LatchedWrite::take_with(shard, keys, &[]) {
            Err(error) if error.needs_disk() && reach == Reach::Disk => {
                let ahead = keys.iter().map(|key| shard.table.read_ahead(key)).collect::<Result<Vec<_>, _>>();
                LatchedWrite::take_with(shard, keys, &ahead.map_err(WriteRefusal::Read)?)
            }
            taken => taken,
        }
    }

    /// Takes the latches. Rows come from `ahead`, which has one for each key, or else from memory.
    fn take_with<'a>(
        shard: &'a Shard,
        keys: &[PrimaryKey],
        ahead: &[RowAhead],
    ) -> Result<LatchedWrite<'a>, WriteError> {
        let (held, term) = shard.hold(keys)?;
        let mut builder = shard.entry_builder();
        let mut old_rows = Vec::with_capacity(keys.len());
        for (i, key) in keys.iter().enumerate() {
            let row = newest(&shard.table, key, &held, &mut builder, ahead.get(i));
            old_rows.push(row.map_err(WriteRefusal::Read)?);
        }
        Ok(LatchedWrite { held, term, builder, old_rows })
    }
}

/// The row on which the next change of `key` is evaluated.
fn newest(
    table: &Table,
    key: &PrimaryKey,
    held: &HeldLatches<'_>,
    builder: &mut EntryBuilder,
    ahead: Option<&RowAhead>,
) -> Result<Option<Object>, ReadError> {
    if let Some(proposed) = held.newest(key) {
        builder.depend_on(proposed.sequence);
        return Ok(proposed.row.clone());
    }
    let Some(ahead) = ahead else { return table.get_within(key, Reach::Memory) };
    match table.newest(ahead) {
        Some(row) => Ok(row.cloned()),
        // This row was written meanwhile, or another one. Mostly it is in memory, as it was read a moment ago.
        None => table.get(key),
    }
}
