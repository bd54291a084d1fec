//! Responses and their encoding: a value, an error, or that the shard is not here.

use bytes::Bytes;
use cluster::ServerId;
use datum::key::BUCKETS;
use datum::{Datum, PrimaryKey};
use reql::EvalError;
use reql::codec::{Codec, PackError, Packer, UnpackError, Unpacker};
use shard::{IndexCursor, IndexRowPosition};

use super::request::{pack_server, unpack_server};
use super::table_ranges::{pack_index_position, pack_position, unpack_index_position, unpack_position};
use crate::edit::{ReturnChanges, RowOutcome, RowReport};
use crate::routing::RemoteError;
use crate::table::BucketPosition;

const DONE: u8 = 0;
const FAILED: u8 = 1;
const MOVED: u8 = 2;

/// The response to a request.
pub(crate) enum Response<T> {
    /// The request was carried out.
    Done(T),
    /// The request was carried out and failed.
    Failed(EvalError),
    /// This node does not have the shard; nothing was done. It may name the leader.
    NotHere(Option<ServerId>),
}

impl<T> From<Result<T, EvalError>> for Response<T> {
    fn from(result: Result<T, EvalError>) -> Self {
        match result {
            Ok(value) => Response::Done(value),
            Err(error) => Response::Failed(error),
        }
    }
}

impl<T> Response<T> {
    /// Continues with the value.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Response<U>) -> Response<U> {
        match self {
            Response::Done(value) => next(value),
            Response::Failed(error) => Response::Failed(error),
            Response::NotHere(leader) => Response::NotHere(leader),
        }
    }

    /// Encodes the response; `pack` encodes the value. A value that is too large, or for which there is no memory,
    /// becomes an error.
    pub fn to_bytes(&self, pack: impl FnOnce(&T, &mut Packer)) -> Bytes {
        self.to_bytes_or(pack, |fault| fault.error("The results of another server"))
    }

    /// Encodes the response to a write. The write was carried out: if its reports cannot be encoded, its outcome is
    /// unknown to the sender.
    pub fn write_to_bytes(&self, pack: impl FnOnce(&T, &mut Packer)) -> Bytes {
        self.to_bytes_or(pack, |fault| {
            EvalError::op_indeterminate(format!(
                "Cannot perform write: it was carried out, but its results cannot be sent, since {fault}"
            ))
        })
    }

    fn to_bytes_or(
        &self,
        pack: impl FnOnce(&T, &mut Packer),
        unsendable: impl FnOnce(PackError) -> EvalError,
    ) -> Bytes {
        let mut out = Packer::with_capacity(64);
        match self {
            Response::Done(value) => {
                begin_done(&mut out);
                pack(value, &mut out);
            }
            Response::Failed(error) => {
                out.byte(FAILED);
                error.pack(&mut out);
            }
            Response::NotHere(leader) => {
                out.byte(MOVED);
                pack_server(*leader, &mut out);
            }
        }
        out.finish().unwrap_or_else(|fault| error_response(&unsendable(fault)))
    }
}

/// The encoded response for a value that cannot be encoded.
fn error_response(error: &EvalError) -> Bytes {
    let mut out = Packer::default();
    out.byte(FAILED);
    error.pack(&mut out);
    out.finish().expect("invariant: what is so short is packed whatever happens")
}

/// Starts the encoding of [`Response::Done`]; the caller encodes the value next.
pub(crate) fn begin_done(out: &mut Packer) {
    out.byte(DONE);
}

/// Decodes a response; `unpack` decodes the value.
pub(crate) fn read<T>(
    bytes: Bytes,
    unpack: impl FnOnce(&mut Unpacker) -> Result<T, UnpackError>,
) -> Result<T, RemoteError> {
    let mut from = Unpacker::new(bytes);
    let outcome = read_outcome(&mut from, unpack).map_err(|garbled| {
        RemoteError::Eval(EvalError::internal(format!(
            "the response of another server cannot be decoded: {garbled}"
        )))
    })?;
    match outcome {
        Response::Done(value) => Ok(value),
        Response::Failed(error) => Err(RemoteError::Eval(error)),
        Response::NotHere(leader) => Err(RemoteError::NotHere(leader)),
    }
}

fn read_outcome<T>(
    from: &mut Unpacker,
    unpack: impl FnOnce(&mut Unpacker) -> Result<T, UnpackError>,
) -> Result<Response<T>, UnpackError> {
    let outcome = match from.byte()? {
        DONE => Response::Done(unpack(from)?),
        FAILED => Response::Failed(EvalError::unpack(from)?),
        MOVED => Response::NotHere(unpack_server(from)?),
        _ => return Err(from.invalid("a response")),
    };
    from.end()?;
    Ok(outcome)
}

pub(crate) struct CursorBatch {
    pub items: Vec<Datum>,
    /// The position of each item in the order of an index; empty when that does not matter.
    pub positions: Vec<IndexRowPosition>,
    /// The bucket of each item where rows have no order; empty where they have one.
    pub buckets: Vec<BucketPosition>,
    /// Rows read after the last item, where rows have no order.
    pub rows_after: u64,
    /// The last row that was read for the items, if any was read and its position is known.
    pub position: Option<ReadPosition>,
    /// How many rows were read.
    pub rows_read: u64,
    pub end: BatchEnd,
}

/// How far a cursor has read.
#[derive(Clone)]
pub(crate) enum ReadPosition {
    /// Up to this primary key.
    Key(PrimaryKey),
    /// Up to this position of an index.
    Index(IndexCursor),
}

/// How a batch ends.
pub(crate) enum BatchEnd {
    More,
    /// The cursor is at its end.
    Done,
    Failed(EvalError),
}

impl CursorBatch {
    /// Without items, and not the last one.
    pub fn new() -> CursorBatch {
        let (items, positions, buckets) = (Vec::new(), Vec::new(), Vec::new());
        CursorBatch {
            items,
            positions,
            buckets,
            rows_after: 0,
            position: None,
            rows_read: 0,
            end: BatchEnd::More,
        }
    }
}

impl Codec for CursorBatch {
    fn pack(&self, out: &mut Packer) {
        self.items.pack(out);
        out.count(self.positions.len() as u64);
        self.positions.iter().for_each(|place| pack_position(place, out));
        out.count(self.buckets.len() as u64);
        for bucket in &self.buckets {
            out.byte(bucket.number);
            out.count(u64::from(bucket.rows));
        }
        out.count(self.rows_after);
        match &self.position {
            None => out.byte(0),
            Some(ReadPosition::Key(key)) => {
                out.byte(1);
                key.0.pack(out);
            }
            Some(ReadPosition::Index(position)) => {
                out.byte(2);
                pack_index_position(position, out);
            }
        }
        out.count(self.rows_read);
        match &self.end {
            BatchEnd::More => out.byte(0),
            BatchEnd::Done => out.byte(1),
            BatchEnd::Failed(error) => {
                out.byte(2);
                error.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let items: Vec<Datum> = Vec::unpack(from)?;
        let positions = from.list(unpack_position)?;
        if !positions.is_empty() && positions.len() != items.len() {
            return Err(from.invalid("a position for each item"));
        }
        let buckets = from.list(|from| {
            let (number, rows) = (from.byte()?, from.count()?);
            match u32::try_from(rows) {
                Ok(rows) if number < BUCKETS => Ok(BucketPosition { number, rows }),
                _ => Err(from.invalid("a bucket")),
            }
        })?;
        if !buckets.is_empty() && buckets.len() != items.len() {
            return Err(from.invalid("a bucket for each item"));
        }
        let rows_after = from.count()?;
        let position = match from.byte()? {
            0 => None,
            1 => Some(ReadPosition::Key(PrimaryKey(Bytes::unpack(from)?))),
            2 => Some(ReadPosition::Index(unpack_index_position(from)?)),
            _ => return Err(from.invalid("a read position")),
        };
        let rows_read = from.count()?;
        let end = match from.byte()? {
            0 => BatchEnd::More,
            1 => BatchEnd::Done,
            2 => BatchEnd::Failed(EvalError::unpack(from)?),
            _ => return Err(from.invalid("the end of a batch")),
        };
        Ok(CursorBatch { items, positions, buckets, rows_after, position, rows_read, end })
    }
}

/// Encodes the reports of a write, in the order of the keys; `None` for a row that was not written because it is not
/// here. `show` says which reports include their rows.
pub(crate) fn pack_reports(reports: &[Option<RowReport>], show: ReturnChanges, out: &mut Packer) {
    out.count(reports.len() as u64);
    for report in reports {
        let Some(report) = report else {
            out.byte(0);
            continue;
        };
        out.byte(match &report.outcome {
            RowOutcome::Inserted => 1,
            RowOutcome::Replaced => 2,
            RowOutcome::Deleted => 3,
            RowOutcome::Unchanged => 4,
            RowOutcome::Skipped => 5,
            RowOutcome::Failed(_) => 6,
        });
        if let RowOutcome::Failed(error) = &report.outcome {
            error.pack(out);
        }
        let shown = show.shows(report);
        shown.pack(out);
        if shown {
            report.old.pack(out);
            report.new.pack(out);
        }
    }
}

/// Decodes the result of [`pack_reports`].
pub(crate) fn unpack_reports(from: &mut Unpacker) -> Result<Vec<Option<RowReport>>, UnpackError> {
    from.list(|from| {
        let outcome = match from.byte()? {
            0 => return Ok(None),
            1 => RowOutcome::Inserted,
            2 => RowOutcome::Replaced,
            3 => RowOutcome::Deleted,
            4 => RowOutcome::Unchanged,
            5 => RowOutcome::Skipped,
            6 => RowOutcome::Failed(EvalError::unpack(from)?),
            _ => return Err(from.invalid("the outcome of a row")),
        };
        let (old, new) = match bool::unpack(from)? {
            true => (Datum::unpack(from)?, Datum::unpack(from)?),
            false => (Datum::Null, Datum::Null),
        };
        Ok(Some(RowReport { outcome, old, new }))
    })
}
