//! Compresses single rows again with the settled dictionaries of their tables, and trains these dictionaries.

use std::sync::Arc;

use bytes::Bytes;
use engine::{EngineError, Occasion, RowRewriter, Space};

use super::compressed_row::{Encoder, Parts, compress};
use super::dictionary::{Tier, encode_settled_record};
use super::in_use::{InUse, SettledDictionary};
use super::samples::Samples;
use super::settled_encoder::SettledEncoder;
use super::tables::{Compression, is_compressed, table_of};
use super::training::train_settled;
use crate::TableId;
use crate::layout::VERSION;

/// A dictionary to be trained for the settled rows of a table.
pub(super) struct SettledTraining {
    pub table: TableId,
    pub tier: Tier,
    /// The bytes of the table now.
    pub table_bytes: u64,
    pub samples: Samples,
}

impl Compression {
    /// Finds the settled dictionary of a table in the engine.
    pub(super) fn load_settled(&self, table: TableId) -> Result<(), EngineError> {
        if self.settled.of(table).is_none()
            && let Some(found) = InUse::read(&*self.engine, table)?.settled
        {
            self.settled.adopt(table, found);
        }
        Ok(())
    }

    /// The form in which the row in `stored` is stored when it has settled; `None` if it is to stay as it is.
    pub(super) fn settle(&self, key: &[u8], stored: &[u8], occasion: Occasion) -> Option<Bytes> {
        let table = table_of(key)?;
        let settled = self.settled.of(table)?;
        let is_compressed = is_compressed(key, stored);
        if is_compressed && Parts::of(stored).ok()?.dictionary == settled.number {
            return None;
        }
        let encoder = self.settled_encoder(table, settled, occasion)?;
        let row;
        let row = match is_compressed {
            true => {
                // A damaged row stays as it is, for a reader to report.
                row = self.decode(key, stored, &|key| self.engine.get(Space::Meta, key)).ok()?;
                &row[..]
            }
            false => stored,
        };
        let compressed = compress(row, settled.number, &*encoder)?;
        compressed.stored.filter(|compressed| compressed.len() < stored.len())
    }

    /// Whether the settled dictionary of a table can be read. A lost one is forgotten, so that another one is trained;
    /// readers report it by name.
    pub(super) fn has_settled_dictionary(&self, table: TableId) -> bool {
        let Some(SettledDictionary { number, .. }) = self.settled.of(table) else { return false };
        let is_readable = self.content(table, number, &|key| self.engine.get(Space::Meta, key)).is_ok();
        if !is_readable {
            self.settled.forget(table);
        }
        is_readable
    }

    /// The encoder of a table. That of an archive takes long to prepare: only a requested compaction does it.
    fn settled_encoder(
        &self,
        table: TableId,
        settled: SettledDictionary,
        occasion: Occasion,
    ) -> Option<Arc<SettledEncoder>> {
        let SettledDictionary { number, tier, .. } = settled;
        if let Some(encoder) = self.settled.encoder(table, number) {
            return Some(encoder);
        }
        if (tier, occasion) == (Tier::Archived, Occasion::Settling) {
            return None;
        }
        let content = self.content(table, number, &|key| self.engine.get(Space::Meta, key)).ok();
        let Some(encoder) = content.and_then(|content| SettledEncoder::new(tier, &content)) else {
            // Lost since the pass over the table began.
            self.settled.forget(table);
            return None;
        };
        Some(self.settled.keep(table, number, encoder))
    }

    /// Trains a dictionary for settled rows, and has them use it if it is better than the present one. `flush` makes it
    /// durable. Returns whether it is used.
    pub(super) fn train_settled(
        &self,
        training: SettledTraining,
        flush: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let SettledTraining { table, tier, table_bytes, samples } = training;
        self.count_training();
        let policy = self.policy(table);
        let current = self.present_encoder(table, tier);
        let trained =
            train_settled(&samples, tier, current.as_ref().map(|current| &**current as &dyn Encoder));
        drop((samples, current));
        let Some((content, encoder)) = trained else { return Ok(false) };
        let record = |number| encode_settled_record(table, number, tier, table_bytes, &content);
        let Some(number) = self.store(table, &policy, VERSION, record, flush)? else { return Ok(false) };
        let adopted = self.if_present(table, &policy, || {
            self.settled.keep(table, number, encoder);
            let dictionary = SettledDictionary { number, tier, table_bytes };
            self.settled.adopt(table, dictionary);
        });
        Ok(adopted.is_some())
    }

    /// The encoder that a new one of `tier` is compared with.
    fn present_encoder(&self, table: TableId, tier: Tier) -> Option<Arc<dyn Encoder>> {
        if let Some(settled) = self.settled.of(table).filter(|settled| settled.tier == tier) {
            let encoder = self.settled_encoder(table, settled, Occasion::Requested)?;
            return Some(encoder);
        }
        if tier == Tier::Archived {
            // Most of its gain is in the rows of the sample itself, which do not judge it.
            return None;
        }
        let current = self.policy(table).lock().current()?;
        let encoder = self.dictionary_for_compression(table, current).ok()?;
        Some(encoder)
    }
}

impl RowRewriter for Compression {
    fn is_active(&self) -> bool {
        !self.settled.is_empty()
    }

    fn rewrite(&self, key: &[u8], value: &[u8], occasion: Occasion) -> Option<Bytes> {
        let settled = self.settle(key, value, occasion)?;
        self.settled.count_row(value.len(), settled.len());
        Some(settled)
    }
}
