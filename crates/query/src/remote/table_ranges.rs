//! The rows that a request is about: a table, ranges of it and perhaps an index.

use std::sync::Arc;

use bytes::Bytes;
use datum::{Datum, KeyBound, KeyRange, PrimaryKey, Text};
use reql::codec::{Codec, Packer, UnpackError, Unpacker};
use reql::geo::{Ellipsoid, LazyShape, LonLat, nearest};
use shard::{Bounds, IndexCursor, IndexId, IndexRowPosition, Side};
use storage::TableId;
use uuid::Uuid;

use crate::routing::ReadMode;
use crate::table::{IndexItems, IndexRead, IndexSearch, KeyOrder};

/// Ranges of a table, and how to read them.
#[derive(Clone)]
pub(crate) struct TableRanges {
    pub table: TableId,
    pub mode: ReadMode,
    pub order: KeyOrder,
    /// In the order of their keys.
    pub ranges: Vec<KeyRange>,
    /// The secondary index that finds the rows.
    pub index: Option<Arc<IndexRead>>,
}

impl Codec for TableRanges {
    fn pack(&self, out: &mut Packer) {
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

    fn unpack(from: &mut Unpacker) -> Result<Self, UnpackError> {
        let (table, mode) = (unpack_table(from)?, unpack_mode(from)?);
        let order = match from.byte()? {
            0 => KeyOrder::Any,
            1 => KeyOrder::Ascending,
            2 => KeyOrder::Descending,
            _ => return Err(from.invalid("an order")),
        };
        let ranges = unpack_ranges(from)?;
        let index = match bool::unpack(from)? {
            true => Some(Arc::new(unpack_index(from)?)),
            false => None,
        };
        Ok(TableRanges { table, mode, order, ranges, index })
    }
}

pub(super) fn pack_table(table: TableId, out: &mut Packer) {
    out.raw(table.as_bytes());
}

pub(super) fn unpack_table(from: &mut Unpacker) -> Result<TableId, UnpackError> {
    Ok(TableId::from_uuid(Uuid::from_bytes(from.array()?)))
}

pub(super) fn mode_number(mode: ReadMode) -> u8 {
    match mode {
        ReadMode::Single => 0,
        ReadMode::Majority => 1,
        ReadMode::Outdated => 2,
        ReadMode::DebugDirect => 3,
    }
}

pub(super) fn unpack_mode(from: &mut Unpacker) -> Result<ReadMode, UnpackError> {
    match from.byte()? {
        0 => Ok(ReadMode::Single),
        1 => Ok(ReadMode::Majority),
        2 => Ok(ReadMode::Outdated),
        3 => Ok(ReadMode::DebugDirect),
        _ => Err(from.invalid("a read mode")),
    }
}

pub(super) fn pack_ranges(ranges: &[KeyRange], out: &mut Packer) {
    out.count(ranges.len() as u64);
    for range in ranges {
        pack_bound(&range.start, out);
        pack_bound(&range.end, out);
    }
}

pub(super) fn unpack_ranges(from: &mut Unpacker) -> Result<Vec<KeyRange>, UnpackError> {
    from.list(|from| Ok(KeyRange { start: unpack_bound(from)?, end: unpack_bound(from)? }))
}

fn pack_bound(bound: &KeyBound, out: &mut Packer) {
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

fn unpack_bound(from: &mut Unpacker) -> Result<KeyBound, UnpackError> {
    match from.byte()? {
        0 => Ok(KeyBound::Unbounded),
        1 => Ok(KeyBound::Included(PrimaryKey(from.bytes()?))),
        2 => Ok(KeyBound::Excluded(PrimaryKey(from.bytes()?))),
        _ => Err(from.invalid("a bound")),
    }
}

fn pack_index(index: &IndexRead, out: &mut Packer) {
    out.count(u64::from(index.id.0));
    index.name.pack(out);
    index.after.is_some().pack(out);
    index.after.iter().for_each(|after| pack_index_position(after, out));
    match &index.search {
        IndexSearch::Values(values) => {
            out.byte(match index.items {
                IndexItems::Rows => 0,
                IndexItems::Values => 1,
                IndexItems::Pairs => 2,
            });
            pack_values(values, out);
        }
        IndexSearch::Intersecting(shape) => {
            out.byte(3);
            shape.value().pack(out);
        }
        IndexSearch::Nearest(bounds) => {
            out.byte(4);
            pack_nearest(bounds, out);
        }
    }
}

fn unpack_index(from: &mut Unpacker) -> Result<IndexRead, UnpackError> {
    let id = IndexId(unpack_u32(from)?);
    let name = Text::unpack(from)?;
    let after = match bool::unpack(from)? {
        true => Some(unpack_index_position(from)?),
        false => None,
    };
    let (items, search) = match from.byte()? {
        0 => (IndexItems::Rows, IndexSearch::Values(unpack_values(from)?)),
        1 => (IndexItems::Values, IndexSearch::Values(unpack_values(from)?)),
        2 => (IndexItems::Pairs, IndexSearch::Values(unpack_values(from)?)),
        3 => (IndexItems::Rows, IndexSearch::Intersecting(LazyShape::new(Datum::unpack(from)?))),
        4 => (IndexItems::Pairs, IndexSearch::Nearest(unpack_nearest(from)?)),
        _ => return Err(from.invalid("a kind of index read")),
    };
    Ok(IndexRead { id, name, search, items, after, relied_on: None })
}

/// Encodes the position of a row in the order of an index.
pub(super) fn pack_position(place: &IndexRowPosition, out: &mut Packer) {
    place.key.pack(out);
    place.value.pack(out);
    place.primary.0.pack(out);
}

/// Decodes the result of [`pack_position`].
pub(super) fn unpack_position(from: &mut Unpacker) -> Result<IndexRowPosition, UnpackError> {
    let (key, value) = (Bytes::unpack(from)?, Option::unpack(from)?);
    Ok(IndexRowPosition { key, value, primary: PrimaryKey(Bytes::unpack(from)?) })
}

/// Encodes how far an index was read.
pub(super) fn pack_index_position(position: &IndexCursor, out: &mut Packer) {
    out.count(u64::from(position.wanted));
    pack_position(&position.position, out);
}

/// Decodes the result of [`pack_index_position`].
pub(super) fn unpack_index_position(from: &mut Unpacker) -> Result<IndexCursor, UnpackError> {
    Ok(IndexCursor { wanted: unpack_u32(from)?, position: unpack_position(from)? })
}

fn pack_values(values: &[(Bounds, u32)], out: &mut Packer) {
    out.count(values.len() as u64);
    for (bounds, times) in values {
        bounds.left.pack(out);
        (bounds.left_side == Side::Closed).pack(out);
        bounds.right.pack(out);
        (bounds.right_side == Side::Closed).pack(out);
        out.count(u64::from(*times));
    }
}

fn unpack_values(from: &mut Unpacker) -> Result<Arc<[(Bounds, u32)]>, UnpackError> {
    let side = |from: &mut Unpacker| Ok(if bool::unpack(from)? { Side::Closed } else { Side::Open });
    let values = from.list(|from| {
        let (left, left_side) = (Datum::unpack(from)?, side(from)?);
        let (right, right_side) = (Datum::unpack(from)?, side(from)?);
        Ok((Bounds { left, left_side, right, right_side }, unpack_u32(from)?))
    })?;
    Ok(values.into())
}

fn pack_nearest(bounds: &nearest::Bounds, out: &mut Packer) {
    bounds.center.lon.pack(out);
    bounds.center.lat.pack(out);
    bounds.max_dist_m.pack(out);
    out.count(bounds.max_results as u64);
    bounds.ellipsoid.equator_m.pack(out);
    bounds.ellipsoid.flattening.pack(out);
}

fn unpack_nearest(from: &mut Unpacker) -> Result<nearest::Bounds, UnpackError> {
    let center = LonLat { lon: f64::unpack(from)?, lat: f64::unpack(from)? };
    let (max_dist_m, max_results) = (f64::unpack(from)?, from.size()?);
    let ellipsoid = Ellipsoid { equator_m: f64::unpack(from)?, flattening: f64::unpack(from)? };
    let is_figure = ellipsoid.equator_m > 0.0 && (0.0..1.0).contains(&ellipsoid.flattening);
    match is_figure && max_dist_m > 0.0 && max_results > 0 {
        true => Ok(nearest::Bounds { center, max_dist_m, max_results, ellipsoid }),
        false => Err(from.invalid("a search for the nearest")),
    }
}

fn unpack_u32(from: &mut Unpacker) -> Result<u32, UnpackError> {
    u32::try_from(from.count()?).map_err(|_| from.invalid("a small number"))
}
