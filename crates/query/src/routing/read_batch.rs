//! Reads of rows that the queries of one turn ask of the same server: they travel as one question.
//!
//! A question costs each server on its way a frame, a checksum, a place among those that wait and an answer of its own,
//! whatever number of rows it is about. Where many connections are ready together, many of their reads go the same way,
//! and some are about the same row, which is asked for once: all of them had begun before the question leaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{RpcError, ServerId};
use datum::{Datum, PrimaryKey};
use parking_lot::Mutex;
use storage::TableId;

use super::peers::{EncodedRequest, OneShot, Peers, RemoteError};
use super::read_mode::ReadMode;

/// Most rows that one question asks for, however many read them: so many are looked up on the thread that brings the question.
pub(crate) const BATCH_KEYS_MAX: usize = 16;

/// Whom reads are asked of together, and what of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchKey {
    /// The server that has the rows.
    pub server: ServerId,
    /// Whose rows.
    pub table: TableId,
    /// How fresh they have to be.
    pub mode: ReadMode,
}

/// The row that one of the reads gets, null if there is none.
pub(crate) type RowSlot = OneShot<Result<Datum, RowUnavailable>>;

/// Why a read that was asked together with others has no row.
#[derive(Debug)]
pub(crate) enum RowUnavailable {
    /// There was no answer.
    Rpc(RpcError),
    /// There was none for all of them, perhaps because of one: it is to be asked for alone.
    RetryAlone,
}

/// How rows are asked for.
#[derive(Clone, Copy)]
pub(crate) struct BatchRpc {
    /// The question for the rows under some keys of a table.
    pub request: fn(TableId, ReadMode, Vec<PrimaryKey>) -> EncodedRequest,
    /// The rows in an answer, in the order of the keys.
    pub rows: fn(Bytes) -> Result<Vec<Datum>, RemoteError>,
    /// How long the answer is waited for.
    pub timeout: Duration,
}

/// The reads that wait for the turn.
#[derive(Default)]
pub(crate) struct ReadBatches(Mutex<Vec<ReadBatch>>);

/// The reads of one errand.
struct ReadBatch {
    target: BatchKey,
    rpc: BatchRpc,
    keys: Vec<PrimaryKey>,
    /// Who waits, and for the row under which of `keys`.
    slots: Vec<(usize, Arc<RowSlot>)>,
}

impl ReadBatches {
    /// Asks for the row under `key` with the next [`ReadBatches::leave`], or before if many are asked for.
    pub fn add(&self, peers: &Peers, target: BatchKey, rpc: BatchRpc, key: PrimaryKey) -> Arc<RowSlot> {
        let slot = Arc::<RowSlot>::default();
        let full = {
            let mut waiting = self.0.lock();
            // They are few: one for each server and table.
            let place = waiting.iter().position(|batch| batch.target == target).unwrap_or_else(|| {
                waiting.push(ReadBatch { target, rpc, keys: Vec::new(), slots: Vec::new() });
                waiting.len() - 1
            });
            let batch = &mut waiting[place];
            batch.add(key, slot.clone());
            (batch.keys.len() == BATCH_KEYS_MAX).then(|| waiting.swap_remove(place))
        };
        full.into_iter().for_each(|batch| batch.send(peers));
        slot
    }

    /// Asks for all that wait. The questions leave with [`Peers::turn`].
    pub fn flush(&self, peers: &Peers) {
        let waiting = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().for_each(|batch| batch.send(peers));
    }
}

impl ReadBatch {
    fn add(&mut self, key: PrimaryKey, slot: Arc<RowSlot>) {
        let known = self.keys.iter().position(|known| *known == key);
        let place = known.unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        });
        self.slots.push((place, slot));
    }

    fn send(self, peers: &Peers) {
        let ReadBatch { target: BatchKey { server, table, mode }, rpc, keys, slots } = self;
        let wanted = keys.len();
        match (rpc.request)(table, mode, keys) {
            Ok(request) => {
                let told = move |answer: Result<Bytes, RpcError>| {
                    let rows = |answer| (rpc.rows)(answer).ok().filter(|rows| rows.len() == wanted);
                    tell(slots, answer.map(rows));
                };
                peers.call_buffered_with(server, request, rpc.timeout, Box::new(told));
            }
            // There is no memory for it, or a limit: alone each is told so.
            Err(_) => tell(slots, Ok(None)),
        }
    }
}

/// Tells each what came of the question: its row, or that it is to ask alone.
fn tell(slots: Vec<(usize, Arc<RowSlot>)>, answer: Result<Option<Vec<Datum>>, RpcError>) {
    for (place, slot) in slots {
        slot.complete(match &answer {
            Ok(rows) => {
                rows.as_ref().and_then(|rows| rows.get(place)).cloned().ok_or(RowUnavailable::RetryAlone)
            }
            Err(error) => Err(RowUnavailable::Rpc(error.clone())),
        });
    }
}
