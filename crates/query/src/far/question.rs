//! Questions as bytes: docs/formats/question.md.

use std::sync::Arc;

use bytes::Bytes;
use cluster::ServerId;
use datum::{Datum, KeyBound, KeyRange, PrimaryKey, Text, Time};
use log::Durability;
use reql::geo::{Ellipsoid, LazyShape, LonLat, nearest};
use reql::travel::{Garbled, Pack, Travel, Unpack};
use reql::{Pipeline, Transform};
use shard::{Bounds, IndexId, Side};
use storage::TableId;
use uuid::Uuid;

use super::rules::Rules;
use crate::context::Surroundings;
use crate::edit::{Edit, ReturnChanges};
use crate::order::{IndexItems, IndexRead, KeyOrder, Wanted};
use crate::table::{Identifiers, ReadMode};

/// The version all questions begin with.
const VERSION: u8 = 4;

/// No key is longer: an entry of the log has two bytes for its length.
const KEY_BYTES_MAX: usize = 65_535;

/// What one node asks of another.
pub(crate) enum Question {
    /// The rows under some keys.
    Get { table: TableId, mode: ReadMode, keys: Vec<PrimaryKey> },
    /// Writing the rows under some keys.
    Write(WriteQuestion),
    /// The number of rows in some ranges.
    Count { ticket: u64, part: Part },
    /// What becomes of all rows of some ranges.
    Gather { ticket: u64, part: Part, around: Surroundings, pipeline: Pipeline },
    /// The first rows of a range, after some steps, and a cursor for the rest.
    Open { cursor: u64, part: Part, around: Surroundings, steps: Vec<Transform> },
    /// The next rows of a cursor.
    Next { cursor: u64 },
    /// No more rows of a cursor are wanted.
    Close { cursor: u64 },
    /// Waiting until everything written to some ranges is on disk.
    Sync { table: TableId, ranges: Vec<KeyRange> },
    /// The rows of a system table, as the node asked knows them.
    System { table: Text, identifiers: Identifiers, user: Text },
    /// Stopping a query, if the node asked runs it.
    StopJob { id: Uuid },
    /// Whether an index names so few rows of some ranges that they are worth finding by it.
    Few { ticket: u64, part: Part },
    /// Stopping the question of that number, if it is still being answered.
    Cancel { ticket: u64 },
}

/// Writing some rows of a table.
pub(crate) struct WriteQuestion {
    /// By which it can be stopped while the functions of its edits run.
    pub ticket: u64,
    pub table: TableId,
    pub durability: Option<Durability>,
    pub ignore_hook: bool,
    pub show: ReturnChanges,
    pub rules: Rules,
    pub around: Surroundings,
    pub keys: Vec<PrimaryKey>,
    pub edits: Edits,
}

/// What becomes of rows.
pub(crate) enum Edits {
    /// The same of all.
    One(Edit),
    /// Of each its own.
    Each(Vec<Edit>),
}

/// Some ranges of a table, and how they are to be read.
#[derive(Clone)]
pub(crate) struct Part {
    pub table: TableId,
    pub mode: ReadMode,
    pub order: KeyOrder,
    /// In the order of their keys.
    pub ranges: Vec<KeyRange>,
    /// The secondary index rows are found by; ranges are those of whole shards then.
    pub index: Option<Arc<IndexRead>>,
}

impl Question {
    /// The bytes.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Pack::with_capacity(64);
        out.byte(VERSION);
        self.pack(&mut out);
        out.finish()
    }

    /// The question that `bytes` are.
    pub fn from_bytes(bytes: Bytes) -> Result<Question, Garbled> {
        let mut from = Unpack::new(bytes);
        if from.byte()? != VERSION {
            return Err(from.garbled("a question of a version that is known"));
        }
        let question = Question::unpack(&mut from)?;
        from.end()?;
        Ok(question)
    }

    fn pack(&self, out: &mut Pack) {
        match self {
            Question::Get { table, mode, keys } => {
                out.byte(1);
                pack_table(*table, out);
                out.byte(mode_number(*mode));
                pack_keys(keys, out);
            }
            Question::Write(write) => {
                out.byte(2);
                write.pack(out);
            }
            Question::Count { ticket, part } => {
                tagged(3, *ticket, out);
                part.pack(out);
            }
            Question::Gather { ticket, part, around, pipeline } => {
                tagged(4, *ticket, out);
                part.pack(out);
                around.pack(out);
                pipeline.pack(out);
            }
            Question::Open { cursor, part, around, steps } => {
                tagged(5, *cursor, out);
                part.pack(out);
                around.pack(out);
                steps.pack(out);
            }
            Question::Next { cursor } => tagged(6, *cursor, out),
            Question::Close { cursor } => tagged(7, *cursor, out),
            Question::Sync { table, ranges } => {
                out.byte(8);
                pack_table(*table, out);
                pack_ranges(ranges, out);
            }
            Question::System { table, identifiers, user } => {
                out.byte(9);
                table.pack(out);
                (*identifiers == Identifiers::Uuid).pack(out);
                user.pack(out);
            }
            Question::StopJob { id } => {
                out.byte(10);
                out.raw(id.as_bytes());
            }
            Question::Cancel { ticket } => tagged(11, *ticket, out),
            Question::Few { ticket, part } => {
                tagged(12, *ticket, out);
                part.pack(out);
            }
        }
    }

    fn unpack(from: &mut Unpack) -> Result<Question, Garbled> {
        Ok(match from.byte()? {
            1 => Question::Get {
                table: unpack_table(from)?,
                mode: unpack_mode(from)?,
                keys: unpack_keys(from)?,
            },
            2 => Question::Write(WriteQuestion::unpack(from)?),
            3 => Question::Count { ticket: from.count()?, part: Part::unpack(from)? },
            4 => Question::Gather {
                ticket: from.count()?,
                part: Part::unpack(from)?,
                around: Surroundings::unpack(from)?,
                pipeline: Pipeline::unpack(from)?,
            },
            5 => Question::Open {
                cursor: from.count()?,
                part: Part::unpack(from)?,
                around: Surroundings::unpack(from)?,
                steps: Vec::unpack(from)?,
            },
            6 => Question::Next { cursor: from.count()? },
            7 => Question::Close { cursor: from.count()? },
            8 => Question::Sync { table: unpack_table(from)?, ranges: unpack_ranges(from)? },
            9 => Question::System {
                table: Text::unpack(from)?,
                identifiers: match bool::unpack(from)? {
                    true => Identifiers::Uuid,
                    false => Identifiers::Name,
                },
                user: Text::unpack(from)?,
            },
            10 => Question::StopJob { id: Uuid::from_bytes(from.array()?) },
            11 => Question::Cancel { ticket: from.count()? },
            12 => Question::Few { ticket: from.count()?, part: Part::unpack(from)? },
            _ => return Err(from.garbled("a kind of question")),
        })
    }
}

fn tagged(kind: u8, number: u64, out: &mut Pack) {
    out.byte(kind);
    out.count(number);
}

impl Travel for WriteQuestion {
    fn pack(&self, out: &mut Pack) {
        out.count(self.ticket);
        pack_table(self.table, out);
        out.byte(match self.durability {
            None => 0,
            Some(Durability::Hard) => 1,
            Some(Durability::Soft) => 2,
        });
        out.byte(u8::from(self.ignore_hook));
        out.byte(match self.show {
            ReturnChanges::No => 0,
            ReturnChanges::Changed => 1,
            ReturnChanges::Always => 2,
        });
        self.rules.pack(out);
        self.around.pack(out);
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

    fn unpack(from: &mut Unpack) -> Result<Self, Garbled> {
        let (ticket, table) = (from.count()?, unpack_table(from)?);
        let durability = match from.byte()? {
            0 => None,
            1 => Some(Durability::Hard),
            2 => Some(Durability::Soft),
            _ => return Err(from.garbled("a durability")),
        };
        let ignore_hook = match from.byte()? {
            0 => false,
            1 => true,
            _ => return Err(from.garbled("whether a write passes the hook")),
        };
        let show = match from.byte()? {
            0 => ReturnChanges::No,
            1 => ReturnChanges::Changed,
            2 => ReturnChanges::Always,
            _ => return Err(from.garbled("what a write shows")),
        };
        let (rules, around) = (Rules::unpack(from)?, Surroundings::unpack(from)?);
        let keys = unpack_keys(from)?;
        let edits = match from.byte()? {
            0 => Edits::One(Edit::unpack(from)?),
            1 => Edits::Each(from.list(Edit::unpack)?),
            _ => return Err(from.garbled("edits")),
        };
        match &edits {
            Edits::Each(each) if each.len() != keys.len() => Err(from.garbled("an edit for each key")),
            _ => {
                Ok(WriteQuestion { ticket, table, durability, ignore_hook, show, rules, around, keys, edits })
            }
        }
    }
}

impl Edits {
    /// What becomes of the row at `index`, which is one of the keys'.
    pub fn at(&self, index: usize) -> &Edit {
        match self {
            Edits::One(edit) => edit,
            Edits::Each(edits) => &edits[index],
        }
    }
}

impl Travel for Part {
    fn pack(&self, out: &mut Pack) {
        pack_table(self.table, out);
        out.byte(mode_number(self.mode));
        out.byte(match self.order {
            KeyOrder::Any => 0,
            KeyOrder::Ascending => 1,
            KeyOrder::Descending => 2,
        });
        pack_ranges(&self.ranges, out);
        self.index.is_some().pack(out);
        self.index.iter().for_each(|index| pack_index(index, out));
    }

    fn unpack(from: &mut Unpack) -> Result<Self, Garbled> {
        let (table, mode) = (unpack_table(from)?, unpack_mode(from)?);
        let order = match from.byte()? {
            0 => KeyOrder::Any,
            1 => KeyOrder::Ascending,
            2 => KeyOrder::Descending,
            _ => return Err(from.garbled("an order")),
        };
        let ranges = unpack_ranges(from)?;
        let index = match bool::unpack(from)? {
            true => Some(Arc::new(unpack_index(from)?)),
            false => None,
        };
        Ok(Part { table, mode, order, ranges, index })
    }
}

impl Travel for Surroundings {
    fn pack(&self, out: &mut Pack) {
        self.now.pack(out);
        self.array_limit.pack(out);
        out.raw(&self.seed.to_le_bytes());
        self.globals.pack(out);
    }

    fn unpack(from: &mut Unpack) -> Result<Self, Garbled> {
        Ok(Surroundings {
            now: Time::unpack(from)?,
            array_limit: from.size()?,
            seed: u64::from_le_bytes(from.array()?),
            globals: Vec::unpack(from)?,
        })
    }
}

fn pack_index(index: &IndexRead, out: &mut Pack) {
    out.count(u64::from(index.id.0));
    index.name.pack(out);
    match &index.wanted {
        Wanted::Values(values) => {
            out.byte(match index.items {
                IndexItems::Rows => 0,
                IndexItems::Values => 1,
                IndexItems::Pairs => 2,
            });
            pack_values(values, out);
        }
        Wanted::Meeting(wanted) => {
            out.byte(3);
            wanted.value().pack(out);
        }
        Wanted::Nearest(bounds) => {
            out.byte(4);
            pack_nearest(bounds, out);
        }
    }
}

fn unpack_index(from: &mut Unpack) -> Result<IndexRead, Garbled> {
    let id = IndexId(unpack_u32(from)?);
    let name = Text::unpack(from)?;
    let (items, wanted) = match from.byte()? {
        0 => (IndexItems::Rows, Wanted::Values(unpack_values(from)?)),
        1 => (IndexItems::Values, Wanted::Values(unpack_values(from)?)),
        2 => (IndexItems::Pairs, Wanted::Values(unpack_values(from)?)),
        3 => (IndexItems::Rows, Wanted::Meeting(LazyShape::new(Datum::unpack(from)?))),
        4 => (IndexItems::Pairs, Wanted::Nearest(unpack_nearest(from)?)),
        _ => return Err(from.garbled("what is wanted of rows")),
    };
    Ok(IndexRead { id, name, wanted, items })
}

fn pack_values(values: &[(Bounds, u32)], out: &mut Pack) {
    out.count(values.len() as u64);
    for (bounds, times) in values {
        bounds.left.pack(out);
        (bounds.left_side == Side::Closed).pack(out);
        bounds.right.pack(out);
        (bounds.right_side == Side::Closed).pack(out);
        out.count(u64::from(*times));
    }
}

fn unpack_values(from: &mut Unpack) -> Result<Arc<[(Bounds, u32)]>, Garbled> {
    let side = |from: &mut Unpack| Ok(if bool::unpack(from)? { Side::Closed } else { Side::Open });
    let values = from.list(|from| {
        let (left, left_side) = (Datum::unpack(from)?, side(from)?);
        let (right, right_side) = (Datum::unpack(from)?, side(from)?);
        Ok((Bounds { left, left_side, right, right_side }, unpack_u32(from)?))
    })?;
    Ok(values.into())
}

fn pack_nearest(bounds: &nearest::Bounds, out: &mut Pack) {
    bounds.center.lon.pack(out);
    bounds.center.lat.pack(out);
    bounds.max_dist_m.pack(out);
    out.count(bounds.max_results as u64);
    bounds.ellipsoid.equator_m.pack(out);
    bounds.ellipsoid.flattening.pack(out);
}

fn unpack_nearest(from: &mut Unpack) -> Result<nearest::Bounds, Garbled> {
    let center = LonLat { lon: f64::unpack(from)?, lat: f64::unpack(from)? };
    let (max_dist_m, max_results) = (f64::unpack(from)?, from.size()?);
    let ellipsoid = Ellipsoid { equator_m: f64::unpack(from)?, flattening: f64::unpack(from)? };
    let is_figure = ellipsoid.equator_m > 0.0 && (0.0..1.0).contains(&ellipsoid.flattening);
    match is_figure && max_dist_m > 0.0 && max_results > 0 {
        true => Ok(nearest::Bounds { center, max_dist_m, max_results, ellipsoid }),
        false => Err(from.garbled("a search for the nearest")),
    }
}

fn unpack_u32(from: &mut Unpack) -> Result<u32, Garbled> {
    u32::try_from(from.count()?).map_err(|_| from.garbled("a small number"))
}

fn pack_table(table: TableId, out: &mut Pack) {
    out.raw(table.as_bytes());
}

fn unpack_table(from: &mut Unpack) -> Result<TableId, Garbled> {
    Ok(TableId::from_uuid(Uuid::from_bytes(from.array()?)))
}

fn mode_number(mode: ReadMode) -> u8 {
    match mode {
        ReadMode::Single => 0,
        ReadMode::Majority => 1,
        ReadMode::Outdated => 2,
        ReadMode::DebugDirect => 3,
    }
}

fn unpack_mode(from: &mut Unpack) -> Result<ReadMode, Garbled> {
    match from.byte()? {
        0 => Ok(ReadMode::Single),
        1 => Ok(ReadMode::Majority),
        2 => Ok(ReadMode::Outdated),
        3 => Ok(ReadMode::DebugDirect),
        _ => Err(from.garbled("a read mode")),
    }
}

fn pack_keys(keys: &[PrimaryKey], out: &mut Pack) {
    out.count(keys.len() as u64);
    keys.iter().for_each(|key| out.bytes(key.as_bytes()));
}

fn unpack_keys(from: &mut Unpack) -> Result<Vec<PrimaryKey>, Garbled> {
    from.list(|from| {
        let key = PrimaryKey(from.bytes()?);
        if key.0.len() <= KEY_BYTES_MAX { Ok(key) } else { Err(from.garbled("a key")) }
    })
}

fn pack_ranges(ranges: &[KeyRange], out: &mut Pack) {
    out.count(ranges.len() as u64);
    for range in ranges {
        pack_bound(&range.start, out);
        pack_bound(&range.end, out);
    }
}

fn unpack_ranges(from: &mut Unpack) -> Result<Vec<KeyRange>, Garbled> {
    from.list(|from| Ok(KeyRange { start: unpack_bound(from)?, end: unpack_bound(from)? }))
}

fn pack_bound(bound: &KeyBound, out: &mut Pack) {
    match bound {
        KeyBound::Unbounded => out.byte(0),
        KeyBound::Included(key) => {
            out.byte(1);
            out.bytes(key.as_bytes());
        }
        KeyBound::Excluded(key) => {
            out.byte(2);
            out.bytes(key.as_bytes());
        }
    }
}

fn unpack_bound(from: &mut Unpack) -> Result<KeyBound, Garbled> {
    match from.byte()? {
        0 => Ok(KeyBound::Unbounded),
        1 => Ok(KeyBound::Included(PrimaryKey(from.bytes()?))),
        2 => Ok(KeyBound::Excluded(PrimaryKey(from.bytes()?))),
        _ => Err(from.garbled("a bound")),
    }
}

/// A server, if there is one.
pub(super) fn pack_server(server: Option<ServerId>, out: &mut Pack) {
    out.byte(u8::from(server.is_some()));
    server.iter().for_each(|server| out.raw(server.0.as_bytes()));
}

/// What [`pack_server`] wrote.
pub(super) fn unpack_server(from: &mut Unpack) -> Result<Option<ServerId>, Garbled> {
    Ok(match bool::unpack(from)? {
        true => Some(ServerId(Uuid::from_bytes(from.array()?))),
        false => None,
    })
}
