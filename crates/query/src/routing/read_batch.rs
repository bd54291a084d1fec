//! Read batches: point reads of several queries from one server, sent as one request.
//!
//! Each request costs both servers a frame, a checksum, an entry in a table and a response, whatever number of rows it
//! is about. When many connections are ready at the same time, many of their reads go to the same server. Reads of the
//! same row ask for it once: all of them began before the request is sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{RpcError, ServerId};
use datum::{Datum, PrimaryKey};
use parking_lot::Mutex;
use storage::TableId;

use super::read_mode::ReadMode;
use super::remote_calls::{EncodedRequest, OneShot, RemoteCalls, RemoteError};

/// Most rows of one batch, counting each once. The receiving server reads up to this many on the thread that received
/// the request.
pub(crate) const BATCH_KEYS_MAX: usize = 16;

/// Reads with the same key share a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchKey {
    /// The server that has the rows.
    pub server: ServerId,
    pub table: TableId,
    pub mode: ReadMode,
}

/// The response to one read: its row, null if there is none.
pub(crate) type RowSlot = OneShot<Result<Datum, RowUnavailable>>;

/// Why a read of a batch has no row.
#[derive(Debug)]
pub(crate) enum RowUnavailable {
    /// The call failed.
    Rpc(RpcError),
    /// The batch as a whole failed, perhaps because of another row: the read must be retried without a batch.
    RetryAlone,
}

/// How the requests of batches are encoded and decoded.
#[derive(Clone, Copy)]
pub(crate) struct BatchRpc {
    /// Encodes the request for rows of a table by their keys.
    pub request: fn(TableId, ReadMode, Vec<PrimaryKey>) -> EncodedRequest,
    /// Decodes the rows of a response, in the order of the keys.
    pub rows: fn(Bytes) -> Result<Vec<Datum>, RemoteError>,
    pub timeout: Duration,
}

/// The batches that are not sent yet.
#[derive(Default)]
pub(crate) struct ReadBatches(Mutex<Vec<ReadBatch>>);

/// The reads of one key.
struct ReadBatch {
    target: BatchKey,
    rpc: BatchRpc,
    keys: Vec<PrimaryKey>,
    /// For each read the index of its key in `keys`, and where its row goes.
    slots: Vec<(usize, Arc<RowSlot>)>,
}

impl ReadBatches {
    /// Adds a read of the row under `key` to a batch. The batch is sent with the next [`ReadBatches::flush`], or at
    /// once when it is full.
    pub fn add(
        &self,
        remote_calls: &RemoteCalls,
        target: BatchKey,
        rpc: BatchRpc,
        key: PrimaryKey,
    ) -> Arc<RowSlot> {
        let slot = Arc::<RowSlot>::default();
        let full = {
            let mut waiting = self.0.lock();
            // There are few batches: one for each server and table.
            let place = waiting.iter().position(|batch| batch.target == target).unwrap_or_else(|| {
                waiting.push(ReadBatch { target, rpc, keys: Vec::new(), slots: Vec::new() });
                waiting.len() - 1
            });
            let batch = &mut waiting[place];
            batch.add(key, slot.clone());
            (batch.keys.len() == BATCH_KEYS_MAX).then(|| waiting.swap_remove(place))
        };
        full.into_iter().for_each(|batch| batch.send(remote_calls));
        slot
    }

    /// Hands all batches to the client, which sends them with [`RemoteCalls::flush`].
    pub fn flush(&self, remote_calls: &RemoteCalls) {
        let waiting = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().for_each(|batch| batch.send(remote_calls));
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

    fn send(self, remote_calls: &RemoteCalls) {
        let ReadBatch { target: BatchKey { server, table, mode }, rpc, keys, slots } = self;
        let wanted = keys.len();
        match (rpc.request)(table, mode, keys) {
            Ok(request) => {
                let respond = move |response: Result<Bytes, RpcError>| {
                    let rows = |response| (rpc.rows)(response).ok().filter(|rows| rows.len() == wanted);
                    complete_all(slots, response.map(rows));
                };
                remote_calls.call_buffered_with(server, request, rpc.timeout, Box::new(respond));
            }
            // Memory or a limit does not allow the request: each read is retried alone and reports that itself.
            Err(_) => complete_all(slots, Ok(None)),
        }
    }
}

/// Completes the reads of a batch: with their rows, or with the failure.
fn complete_all(slots: Vec<(usize, Arc<RowSlot>)>, response: Result<Option<Vec<Datum>>, RpcError>) {
    for (place, slot) in slots {
        slot.complete(match &response {
            Ok(rows) => {
                rows.as_ref().and_then(|rows| rows.get(place)).cloned().ok_or(RowUnavailable::RetryAlone)
            }
            Err(error) => Err(RowUnavailable::Rpc(error.clone())),
        });
    }
}
