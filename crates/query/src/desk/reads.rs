//! Questions that read: rows by their keys, counts, and what is gathered over the rows of a part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cluster::TableHandle;
use datum::{Datum, Object, PrimaryKey, row};
use reql::codec::{Codec, Packer};
use reql::{Cancel, Pipeline};
use shard::ReadError;
use storage::TableId;

use super::Inner;
use crate::context::{Cx, Surroundings};
use crate::failure::read_failed;
use crate::far::{self, Fitness, Outcome, Part, Site};
use crate::gather::Local;
use crate::order::IndexRead;
use crate::read_mode::ReadMode;
use crate::stream::{IndexPart, RowPart, names_few};

impl Inner {
    pub(super) fn rows(&self, part: &Part) -> Outcome<Vec<RowPart>> {
        self.parts(part, |_, shard, range| {
            RowPart::of(shard, range).map_err(|error| read_failed(&error)).into()
        })
    }

    pub(super) fn by_index(&self, cx: &Cx, part: &Part, index: &IndexRead) -> Outcome<Vec<IndexPart>> {
        self.parts(part, |table, shard, range| match shard.has_seen_index(index.id) {
            true => IndexPart::of(cx, table, shard, range, index, part.order).into(),
            // It is elsewhere as long as this node has not heard of it.
            false => Outcome::Moved(None),
        })
    }

    pub(super) fn get(&self, table: TableId, mode: ReadMode, keys: &[PrimaryKey]) -> Bytes {
        self.service.counters().rows_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let mut found = Found::new(keys.len());
        let catalog = self.service.node().catalog_guard();
        // It is elsewhere as long as this node has not heard of it.
        let table = catalog.table_by_id(table);
        match table.map_or(Outcome::Moved(None), |table| self.find(table, mode, keys, &mut found)) {
            Outcome::Done(()) => found.finish(),
            other => other.to_bytes(|(), _| ()),
        }
    }

    fn find(
        &self,
        table: &TableHandle,
        mode: ReadMode,
        keys: &[PrimaryKey],
        found: &mut Found,
    ) -> Outcome<()> {
        let mut fitness = Fitness::new(mode);
        for key in keys {
            let shown = match self.service.reader(table.shard(key), mode) {
                Some(Site::Near(shard)) if !fitness.allows(shard) => return Outcome::Moved(None),
                Some(Site::Near(shard)) => shard.with_row(key, |row| found.add(row)),
                Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                None => return Outcome::Moved(None),
            };
            match shown {
                Ok(()) => {}
                Err(ReadError::WrongShard { .. }) => return Outcome::Moved(None),
                Err(error) => return Outcome::Failed(read_failed(&error)),
            }
        }
        Outcome::Done(())
    }

    pub(super) fn count(&self, part: &Part, cancel: Arc<Cancel>) -> Bytes {
        let cx = self.cx(Surroundings::none(), cancel);
        let count = match &part.index {
            Some(index) => self
                .by_index(&cx, part, index)
                .and_then(|parts| <IndexPart as Local>::count(&cx, parts).into()),
            None => self.rows(part).and_then(|parts| RowPart::count(&cx, parts).into()),
        };
        count.to_bytes(Codec::pack)
    }

    pub(super) fn gather(
        &self,
        part: &Part,
        around: Surroundings,
        pipeline: Pipeline,
        cancel: Arc<Cancel>,
    ) -> Bytes {
        let cx = self.cx(around, cancel);
        let work = Arc::new(pipeline);
        let tally = match &part.index {
            Some(index) => self
                .by_index(&cx, part, index)
                .and_then(|parts| IndexPart::tally(&cx, parts, part.order, &work).into()),
            None => self.rows(part).and_then(|parts| RowPart::tally(&cx, parts, part.order, &work).into()),
        };
        tally.to_bytes(|tally, out| {
            tally.pack(out);
            out.count(cx.take_looked_at());
        })
    }

    /// Whether the index of a part names few of its rows, in every shard.
    pub(super) fn few(&self, part: &Part) -> Bytes {
        let Some(query) = part.index.as_ref().and_then(|index| index.values()) else {
            return Outcome::Done(false).to_bytes(Codec::pack);
        };
        let few = self.parts(part, |_, shard, _| Outcome::Done(names_few(shard, &query)));
        few.and_then(|few| Outcome::Done(few.iter().all(|few| *few))).to_bytes(Codec::pack)
    }
}

/// The answer to a question for rows, copied into it from where they lie: what `Outcome::Done` with a list of datums
/// is as bytes.
struct Found {
    rows: usize,
    answer: Option<Packer>,
}

impl Found {
    fn new(rows: usize) -> Found {
        Found { rows, answer: None }
    }

    fn add(&mut self, row: Option<&Object>) {
        let answer = self.answer.get_or_insert_with(|| Found::begin(self.rows, row));
        match row {
            Some(row) => row.pack(answer),
            None => Datum::Null.pack(answer),
        }
    }

    /// With room for rows like the first one.
    fn begin(rows: usize, first: Option<&Object>) -> Packer {
        let each = first.and_then(row::stored).map_or(1, |bytes| bytes.len() + LENGTH_BYTES);
        let wanted = each.saturating_mul(rows).min(EXPECTED_BYTES_MAX.max(each));
        let mut answer = Packer::with_capacity(LENGTH_BYTES + wanted);
        far::begin_done(&mut answer);
        answer.count(rows as u64);
        answer
    }

    fn finish(self) -> Bytes {
        let rows = self.answer.unwrap_or_else(|| Found::begin(0, None)).finish();
        rows.unwrap_or_else(|fault| {
            Outcome::<()>::Failed(fault.error("The rows of another server")).to_bytes(|(), _| ())
        })
    }
}

/// Room for the kind of an answer or a datum, and a length.
const LENGTH_BYTES: usize = 12;
/// More room is not made for rows that may be smaller than the first.
const EXPECTED_BYTES_MAX: usize = 64 << 10;
