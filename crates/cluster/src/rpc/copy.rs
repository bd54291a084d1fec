//! The bytes of a copy: the ranges of rows that the receiver reports, and the differences that the sender responds with.
//! docs/formats/cluster-request.md.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use datum::PrimaryKey;
use io::ReadFields as _;
use shard::{CopyRange, Difference};

use crate::rpc::field::{put, put_reach, take, take_reach};

const DIGEST_BYTES: usize = 32;

pub(crate) fn put_copy_ranges(bytes: &mut BytesMut, copy_ranges: &[CopyRange]) {
    for copy_range in copy_ranges {
        put(bytes, copy_range.last.as_bytes());
        bytes.put_u64_le(copy_range.rows);
        bytes.put_u64_le(copy_range.bytes);
        bytes.put_slice(&copy_range.digest);
    }
}

/// Reads copy ranges to the end of the bytes.
pub(crate) fn take_copy_ranges(bytes: &mut Bytes) -> Option<Vec<CopyRange>> {
    let mut copy_ranges = Vec::new();
    while !bytes.is_empty() {
        let last = PrimaryKey(take(bytes)?);
        let (rows, len) = (bytes.read_u64()?, bytes.read_u64()?);
        let mut digest = [0; DIGEST_BYTES];
        if bytes.len() < DIGEST_BYTES {
            return None;
        }
        bytes.copy_to_slice(&mut digest);
        copy_ranges.push(CopyRange { last, rows, bytes: len, digest });
    }
    Some(copy_ranges)
}

pub(crate) fn encode_difference(difference: &Difference) -> Bytes {
    let mut bytes = BytesMut::new();
    // At most the number of ranges in the request, so it fits 32 bits.
    bytes.put_u32_le(difference.same as u32);
    put_reach(&mut bytes, difference.reach.as_ref());
    for (key, stored) in &difference.rows {
        put(&mut bytes, key.as_bytes());
        put(&mut bytes, stored);
    }
    bytes.freeze()
}

/// Reads what [`encode_difference`] wrote; `None` for anything else.
pub(crate) fn decode_difference(mut bytes: Bytes) -> Option<Difference> {
    let same = bytes.read_u32()? as usize;
    let reach = take_reach(&mut bytes)?;
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        rows.push((PrimaryKey(take(&mut bytes)?), take(&mut bytes)?));
    }
    Some(Difference { same, reach, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_differences_round_trip_and_truncated_ones_are_refused() {
        let key = |text: &'static str| PrimaryKey(Bytes::from_static(text.as_bytes()));
        let copy_ranges = vec![
            CopyRange { last: key("b"), rows: 2, bytes: 30, digest: [7; DIGEST_BYTES] },
            CopyRange { last: key("d"), rows: 1, bytes: 9, digest: [8; DIGEST_BYTES] },
        ];
        let mut bytes = BytesMut::new();
        put_copy_ranges(&mut bytes, &copy_ranges);
        let bytes = bytes.freeze();
        assert_eq!(take_copy_ranges(&mut bytes.clone()), Some(copy_ranges.clone()));
        let first_range = bytes.len() - DIGEST_BYTES - 21;
        for len in (0..bytes.len()).filter(|len| *len != 0 && *len != first_range) {
            assert_eq!(take_copy_ranges(&mut bytes.slice(..len)), None, "truncated to {len} bytes");
        }
        for reach in [None, Some(key("x"))] {
            let difference =
                Difference { same: 1, reach, rows: vec![(key("e"), Bytes::from_static(b"row"))] };
            let bytes = encode_difference(&difference);
            assert_eq!(decode_difference(bytes.clone()), Some(difference));
            assert_eq!(decode_difference(bytes.slice(..bytes.len() - 1)), None);
        }
    }
}
