//! Questions that read: rows by their keys, counts, and what is gathered over the rows of a part.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use datum::{Datum, PrimaryKey};
use reql::travel::Travel;
use reql::{Cancel, Pipeline};
use shard::ReadError;
use storage::TableId;

use super::Inner;
use crate::context::{Cx, Surroundings};
use crate::failure::read_failed;
use crate::far::{Fitness, Outcome, Part, Site};
use crate::gather::Local;
use crate::order::IndexRead;
use crate::stream::{IndexPart, RowPart, names_few};
use crate::table::ReadMode;

impl Inner {
    pub(super) fn rows(&self, part: &Part) -> Outcome<Vec<RowPart>> {
        self.parts(part, |_, shard, range| RowPart::of(shard, range).map_err(|error| read_failed(&error)))
    }

    pub(super) fn by_index(&self, cx: &Cx, part: &Part, index: &IndexRead) -> Outcome<Vec<IndexPart>> {
        self.parts(part, |table, shard, _| IndexPart::of(cx, table, shard, index, part.order))
    }

    pub(super) fn get(&self, table: TableId, mode: ReadMode, keys: &[PrimaryKey]) -> Bytes {
        let rows = self.table(table, mode).and_then(|table| {
            let mut rows = Vec::with_capacity(keys.len());
            let mut fitness = Fitness::new(mode);
            for key in keys {
                let found = match self.service.reader(table.handle.shard(key), mode) {
                    Some(Site::Near(shard)) if !fitness.allows(shard) => return Outcome::Moved(None),
                    Some(Site::Near(shard)) => shard.get(key),
                    Some(Site::Far(server)) => return Outcome::Moved(Some(server)),
                    None => return Outcome::Moved(None),
                };
                match found {
                    Ok(row) => rows.push(row.map_or(Datum::Null, Datum::Object)),
                    Err(ReadError::Elsewhere { .. }) => return Outcome::Moved(None),
                    Err(error) => return Outcome::Failed(read_failed(&error)),
                }
            }
            Outcome::Done(rows)
        });
        self.service.counters().rows_read.fetch_add(keys.len() as u64, Ordering::Relaxed);
        rows.to_bytes(Travel::pack)
    }

    pub(super) fn count(&self, part: &Part, cancel: Arc<Cancel>) -> Bytes {
        let cx = self.cx(Surroundings::none(), cancel);
        let count = match &part.index {
            Some(index) => self
                .by_index(&cx, part, index)
                .and_then(|parts| <IndexPart as Local>::count(&cx, parts).into()),
            None => self.rows(part).and_then(|parts| RowPart::count(&cx, parts).into()),
        };
        count.to_bytes(Travel::pack)
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
            return Outcome::Done(false).to_bytes(Travel::pack);
        };
        let few = self.parts(part, |_, shard, _| Ok(names_few(shard, &query)));
        few.and_then(|few| Outcome::Done(few.iter().all(|few| *few))).to_bytes(Travel::pack)
    }
}
