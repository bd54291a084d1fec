//! Requests and their encoding: docs/formats/request.md.

use bytes::Bytes;
use cluster::ServerId;
use datum::{Datum, KeyRange, PrimaryKey, Text, Time};
use log::Durability;
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use reql::{EvalError, GlobalOption, Pipeline, Transform};
use storage::TableId;
use uuid::Uuid;

use super::settings_version::SettingsVersion;
use super::table_ranges::{
    TableRanges, mode_number, pack_ranges, pack_table, unpack_mode, unpack_ranges, unpack_table,
};
use crate::context::EvalParams;
use crate::edit::{Edit, ReturnChanges, WriteOptions};
use crate::routing::ReadMode;
use crate::table::Identifiers;

/// The version that all requests begin with.
pub const REQUEST_VERSION: u8 = 8;

const GET: u8 = 1;
const WRITE: u8 = 2;
const COUNT: u8 = 3;
const GATHER: u8 = 4;
const OPEN: u8 = 5;
const NEXT: u8 = 6;
const CLOSE: u8 = 7;
const SYNC: u8 = 8;
const SYSTEM: u8 = 9;
const STOP_JOB: u8 = 10;
const CANCEL: u8 = 11;
const FEW: u8 = 12;

/// The kinds that can be cancelled by their number, which follows the kind.
const STOPPABLE: [u8; 5] = [WRITE, COUNT, GATHER, OPEN, FEW];

/// No key is longer: an entry of the log has two bytes for its length.
const KEY_BYTES_MAX: usize = 65_535;

/// A request of one node to another.
pub(crate) enum Request {
    /// Reads rows by their keys.
    Get { table: TableId, mode: ReadMode, keys: Vec<PrimaryKey> },
    /// Writes rows by their keys.
    Write(WriteRequest),
    /// Counts the rows of some ranges.
    Count { ticket: u64, part: TableRanges },
    /// Aggregates all rows of some ranges.
    Gather { ticket: u64, part: TableRanges, eval_params: EvalParams, pipeline: Pipeline },
    /// Reads the first rows of a range, after some steps, and opens a cursor for the rest.
    Open { cursor: u64, part: TableRanges, eval_params: EvalParams, steps: Vec<Transform> },
    /// Reads the next rows of a cursor.
    Next { cursor: u64 },
    /// Frees a cursor whose rows are no longer wanted.
    Close { cursor: u64 },
    /// Waits until everything written to some ranges is on disk.
    Sync { table: TableId, ranges: Vec<KeyRange> },
    /// Reads the rows of a system table as the receiving node knows them.
    System { table: Text, identifiers: Identifiers, user: Text },
    /// Stops a query, if it runs on the receiving node.
    StopJob { id: Uuid },
    /// Asks whether an index names so few rows of some ranges that a scan of the index is worth it.
    Few { ticket: u64, part: TableRanges },
    /// Cancels the request with this number, if it is still running.
    Cancel { ticket: u64 },
}

/// Writes rows of a table.
pub(crate) struct WriteRequest {
    /// The number to cancel it by while the functions of its edits run.
    pub ticket: u64,
    pub table: TableId,
    pub options: WriteOptions,
    pub settings: SettingsVersion,
    pub eval_params: EvalParams,
    pub keys: Vec<PrimaryKey>,
    pub edits: Edits,
}

/// The edits of the rows of a write.
pub(crate) enum Edits {
    /// The same edit for all rows.
    One(Edit),
    /// An edit for each row.
    Each(Vec<Edit>),
}

impl Request {
    /// Encodes the request. Fails if it exceeds the size limit, if there is no memory for it, or if the query was
    /// cancelled; or if its terms may ask for an option of the whole query whose evaluation has failed.
    pub fn to_bytes(&self) -> Result<Bytes, EvalError> {
        if let Some(Err(error)) = self.globals().iter().map(|(_, value)| value).find(|value| value.is_err()) {
            return Err(error.clone());
        }
        let mut out = Packer::with_capacity(64);
        out.byte(REQUEST_VERSION);
        self.pack(&mut out);
        out.finish().map_err(|fault| fault.error(self.subject()))
    }

    /// The options of the whole query, if the request has terms.
    fn globals(&self) -> &[GlobalOption] {
        match self {
            Request::Write(write) => &write.eval_params.globals,
            Request::Gather { eval_params, .. } => &eval_params.globals,
            Request::Open { eval_params, steps, .. } if !steps.is_empty() => &eval_params.globals,
            _ => &[],
        }
    }

    /// The part of the request that may be too large, as the error names it.
    fn subject(&self) -> &'static str {
        match self {
            Request::Get { .. } => "The keys of the rows",
            Request::Write(_) => "The rows or functions of a write, with the values that they use,",
            Request::Count { .. } | Request::Few { .. } => "The values to look up in an index",
            Request::Gather { .. } | Request::Open { .. } => {
                "The functions of the query, with the values that they use,"
            }
            _ => "The parts of a request",
        }
    }

    /// Decodes a request.
    pub fn from_bytes(bytes: Bytes) -> Result<Request, UnpackError> {
        let mut from = Unpacker::new(bytes);
        if from.byte()? != REQUEST_VERSION {
            return Err(from.invalid("a request of a known version"));
        }
        let request = Request::unpack(&mut from)?;
        from.end()?;
        Ok(request)
    }

    /// The number to cancel it by, if it can be cancelled.
    pub fn number(&self) -> Option<u64> {
        let (kind, number) = self.head();
        number.filter(|_| STOPPABLE.contains(&kind))
    }

    /// The [`Request::number`] of an encoded request, without decoding the rest.
    pub fn number_of(bytes: &Bytes) -> Option<u64> {
        let mut from = Unpacker::new(bytes.clone());
        match (from.byte().ok()?, from.byte().ok()?) {
            (REQUEST_VERSION, kind) if STOPPABLE.contains(&kind) => from.count().ok(),
            _ => None,
        }
    }

    /// The start of the encoding: the kind, and the number if there is one.
    fn head(&self) -> (u8, Option<u64>) {
        match self {
            Request::Get { .. } => (GET, None),
            Request::Write(write) => (WRITE, Some(write.ticket)),
            Request::Count { ticket, .. } => (COUNT, Some(*ticket)),
            Request::Gather { ticket, .. } => (GATHER, Some(*ticket)),
            Request::Open { cursor, .. } => (OPEN, Some(*cursor)),
            Request::Next { cursor } => (NEXT, Some(*cursor)),
            Request::Close { cursor } => (CLOSE, Some(*cursor)),
            Request::Sync { .. } => (SYNC, None),
            Request::System { .. } => (SYSTEM, None),
            Request::StopJob { .. } => (STOP_JOB, None),
            Request::Cancel { ticket } => (CANCEL, Some(*ticket)),
            Request::Few { ticket, .. } => (FEW, Some(*ticket)),
        }
    }

    fn pack(&self, out: &mut Packer) {
        let (kind, number) = self.head();
        out.byte(kind);
        number.iter().for_each(|number| number.pack(out));
        match self {
            Request::Get { table, mode, keys } => {
                pack_table(*table, out);
                out.byte(mode_number(*mode));
                pack_keys(keys, out);
            }
            Request::Write(write) => write.pack_after_ticket(out),
            Request::Count { part, .. } | Request::Few { part, .. } => part.pack(out),
            Request::Gather { part, eval_params, pipeline, .. } => {
                part.pack(out);
                eval_params.pack(out);
                pipeline.pack(out);
            }
            Request::Open { part, eval_params, steps, .. } => {
                part.pack(out);
                eval_params.pack(out);
                steps.pack(out);
            }
            Request::Next { .. } | Request::Close { .. } | Request::Cancel { .. } => {}
            Request::Sync { table, ranges } => {
                pack_table(*table, out);
                pack_ranges(ranges, out);
            }
            Request::System { table, identifiers, user } => {
                table.pack(out);
                (*identifiers == Identifiers::Uuid).pack(out);
                user.pack(out);
            }
            Request::StopJob { id } => out.raw(id.as_bytes()),
        }
    }

    fn unpack(from: &mut Unpacker) -> Result<Request, UnpackError> {
        Ok(match from.byte()? {
            GET => Request::Get {
                table: unpack_table(from)?,
                mode: unpack_mode(from)?,
                keys: unpack_keys(from)?,
            },
            WRITE => Request::Write(WriteRequest::unpack(from.count()?, from)?),
            COUNT => Request::Count { ticket: from.count()?, part: TableRanges::unpack(from)? },
            GATHER => Request::Gather {
                ticket: from.count()?,
                part: TableRanges::unpack(from)?,
                eval_params: EvalParams::unpack(from)?,
                pipeline: Pipeline::unpack(from)?,
            },
            OPEN => Request::Open {
                cursor: from.count()?,
                part: TableRanges::unpack(from)?,
                eval_params: EvalParams::unpack(from)?,
                steps: Vec::unpack(from)?,
            },
            NEXT => Request::Next { cursor: from.count()? },
            CLOSE => Request::Close { cursor: from.count()? },
            SYNC => Request::Sync { table: unpack_table(from)?, ranges: unpack_ranges(from)? },
            SYSTEM => Request::System {
                table: Text::unpack(from)?,
                identifiers: match bool::unpack(from)? {
                    true => Identifiers::Uuid,
                    false => Identifiers::Name,
                },
                user: Text::unpack(from)?,
            },
            STOP_JOB => Request::StopJob { id: Uuid::from_bytes(from.array()?) },
            CANCEL => Request::Cancel { ticket: from.count()? },
            FEW => Request::Few { ticket: from.count()?, part: TableRanges::unpack(from)? },
            _ => return Err(from.invalid("a kind of request")),
        })
    }
}

impl WriteRequest {
    fn pack_after_ticket(&self, out: &mut Packer) {
        pack_table(self.table, out);
        out.byte(match self.options.durability {
            None => 0,
            Some(Durability::Hard) => 1,
            Some(Durability::Soft) => 2,
        });
        out.byte(u8::from(self.options.ignore_hook));
        out.byte(match self.options.return_changes {
            ReturnChanges::No => 0,
            ReturnChanges::Changed => 1,
            ReturnChanges::Always => 2,
        });
        self.settings.pack(out);
        self.eval_params.pack(out);
        pack_keys(&self.keys, out);
        match &self.edits {
            Edits::One(edit) => {
                out.byte(0);
                edit.pack(out);
            }
            Edits::Each(edits) => {
                out.byte(1);
                edits.pack(out);
            }
        }
    }

    fn unpack(ticket: u64, from: &mut Unpacker) -> Result<Self, UnpackError> {
        let table = unpack_table(from)?;
        let durability = match from.byte()? {
            0 => None,
            1 => Some(Durability::Hard),
            2 => Some(Durability::Soft),
            _ => return Err(from.invalid("a durability")),
        };
        let ignore_hook = match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(from.invalid("a flag for the write hook")),
        };
        let return_changes = match from.byte()? {
            0 => ReturnChanges::No,
            1 => ReturnChanges::Changed,
            2 => ReturnChanges::Always,
            _ => return Err(from.invalid("an option `return_changes`")),
        };
        let (settings, eval_params) = (SettingsVersion::unpack(from)?, EvalParams::unpack(from)?);
        let keys = unpack_keys(from)?;
        let edits = match from.byte()? {
            0 => Edits::One(Edit::unpack(from)?),
            1 => Edits::Each(from.list(Edit::unpack)?),
            _ => return Err(from.invalid("edits")),
        };
        match &edits {
            Edits::Each(each) if each.len() != keys.len() => Err(from.invalid("an edit for each key")),
            _ => Ok(WriteRequest {
                ticket,
                table,
                options: WriteOptions { durability, return_changes, ignore_hook },
                settings,
                eval_params,
                keys,
                edits,
            }),
        }
    }
}

impl Edits {
    /// The edit of the row at `index` of the keys.
    pub fn at(&self, index: usize) -> &Edit {
        match self {
            Edits::One(edit) => edit,
            Edits::Each(edits) => &edits[index],
        }
    }
}

impl Codec for EvalParams {
    fn pack(&self, out: &mut Packer) {
        self.now.pack(out);
        self.array_limit.pack(out);
        out.raw(&self.seed.to_le_bytes());
        let known = |(name, value): &GlobalOption| Some((name.clone(), value.clone().ok()?));
        self.globals.iter().filter_map(known).collect::<Vec<(Text, Datum)>>().pack(out);
    }

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        Ok(EvalParams {
            now: Time::unpack(from)?,
            array_limit: from.size()?,
            seed: u64::from_le_bytes(from.array()?),
            globals: Vec::<(Text, Datum)>::unpack(from)?
                .into_iter()
                .map(|(name, value)| (name, Ok(value)))
                .collect(),
        })
    }
}

fn pack_keys(keys: &[PrimaryKey], out: &mut Packer) {
    out.count(keys.len() as u64);
    keys.iter().for_each(|key| out.bytes(key.as_bytes()));
}

fn unpack_keys(from: &mut Unpacker) -> Result<Vec<PrimaryKey>, UnpackError> {
    from.list(|from| {
        let key = PrimaryKey(from.bytes()?);
        if key.0.len() <= KEY_BYTES_MAX { Ok(key) } else { Err(from.invalid("a key")) }
    })
}

/// Encodes a server, or that there is none.
pub(super) fn pack_server(server: Option<ServerId>, out: &mut Packer) {
    out.byte(u8::from(server.is_some()));
    server.iter().for_each(|server| out.raw(server.0.as_bytes()));
}

/// Decodes the result of [`pack_server`].
pub(super) fn unpack_server(from: &mut Unpacker) -> Result<Option<ServerId>, UnpackError> {
    Ok(match bool::unpack(from)? {
        true => Some(ServerId(Uuid::from_bytes(from.array()?))),
        false => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use reql::Terminal;

    use super::*;
    use crate::table::KeyOrder;

    const TABLE: TableId = TableId::from_uuid(Uuid::nil());

    /// One of each kind; those with a number have 300.
    fn all() -> Vec<Request> {
        let (number, mode) = (300, ReadMode::Single);
        let part = TableRanges {
            table: TABLE,
            mode,
            order: KeyOrder::Any,
            ranges: vec![KeyRange::all()],
            index: None,
        };
        let eval_params = EvalParams::none;
        let pipeline =
            Pipeline { steps: Vec::new(), group: None, grouped_steps: Vec::new(), terminal: Terminal::Count };
        let write = WriteRequest {
            ticket: number,
            table: TABLE,
            options: WriteOptions { durability: None, return_changes: ReturnChanges::No, ignore_hook: false },
            settings: SettingsVersion::unpack(&mut Unpacker::new(Bytes::from_static(&[0, 0])))
                .expect("two numbers"),
            eval_params: eval_params(),
            keys: Vec::new(),
            edits: Edits::Each(Vec::new()),
        };
        vec![
            Request::Get { table: TABLE, mode, keys: Vec::new() },
            Request::Write(write),
            Request::Count { ticket: number, part: part.clone() },
            Request::Gather { ticket: number, part: part.clone(), eval_params: eval_params(), pipeline },
            Request::Open {
                cursor: number,
                part: part.clone(),
                eval_params: eval_params(),
                steps: Vec::new(),
            },
            Request::Next { cursor: number },
            Request::Close { cursor: number },
            Request::Sync { table: TABLE, ranges: Vec::new() },
            Request::System { table: "t".into(), identifiers: Identifiers::Name, user: "u".into() },
            Request::StopJob { id: Uuid::nil() },
            Request::Cancel { ticket: number },
            Request::Few { ticket: number, part },
        ]
    }

    #[test]
    fn a_request_has_the_number_of_its_encoding() {
        let mut kinds = BTreeSet::new();
        for request in all() {
            let bytes = request.to_bytes().expect("a small request");
            kinds.insert(bytes[1]);
            assert_eq!(Request::number_of(&bytes), request.number(), "kind {}", bytes[1]);
            assert!(request.number().is_none_or(|number| number == 300), "kind {}", bytes[1]);
            let again = Request::from_bytes(bytes.clone()).expect("what was written is read");
            assert_eq!(again.to_bytes().expect("a small request"), bytes);
        }
        let is_known = |kind: &u8| {
            let read = Request::from_bytes(Bytes::copy_from_slice(&[REQUEST_VERSION, *kind]));
            read.err().is_none_or(|garbled| garbled.what != "a kind of request")
        };
        assert_eq!((0..=u8::MAX).filter(is_known).collect::<BTreeSet<_>>(), kinds, "one of each kind");
    }
}
